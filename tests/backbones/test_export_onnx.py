"""Every backbone exports to ONNX with dynamic batch size and length, with the same outputs in onnxruntime."""

import json

import pytest
import torch
from zoo_export.export import export

from tests.networks import NETWORKS, inputs, trained

for name in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(name, reason="needs hypercomplex-zoo[onnx]")

SLOW = ("lstm", "transformer, seq2seq")


@torch.no_grad()
@pytest.mark.parametrize("name", ["vit", "gpt", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_network_is_exported_to_onnx(name, tmp_path):
    from onnxruntime import InferenceSession

    model = trained(*NETWORKS[name], "complex", scope="all")
    export(model, tmp_path / "made", "onnx")
    session, config = InferenceSession(tmp_path / "made/model.onnx"), json.loads((tmp_path / "made/config.json").read_text())
    assert [one.name for one in session.get_inputs()] == list(config["inputs"])
    assert [one.name for one in session.get_outputs()] == [config["output"]] == ["logits"]
    for arguments in (inputs(name, 4, (8, 7)), inputs(name, 1, (3, 2))):
        given = {key: x.numpy() for key, x in zip(config["inputs"], arguments, strict=True)}
        answer = torch.from_numpy(session.run(None, given)[0])
        torch.testing.assert_close(answer, model.net(*arguments), rtol=0, atol=1e-4)
