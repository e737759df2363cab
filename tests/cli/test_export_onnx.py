"""``zoo export --format onnx``: files, sizes, and outputs in onnxruntime."""

import errno
import json

import pytest
import torch
from zoo_export.export import export
from zoo_export.onnx_file import OnnxNetwork, run_by

import zoo
from tests import networks

for name in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(name, reason="needs hypercomplex-zoo[onnx]")

NAME, TICKET = "vit-digits-quaternion", "vit-digits-quaternion-ticket"


def test_networks_of_two_texts_become_onnx(tmp_path):
    model = networks.trained(*networks.NETWORKS["decomposable_attention"], "quaternion")
    assert export(model, tmp_path / "pairs", "onnx")["max_difference"] < 1e-4
    assert all(parameter.requires_grad for parameter in model.net.parameters())


def test_int8_is_small_and_evaluated(call, tmp_path):
    code, out, err = call("export", NAME, "--format", "onnx", "--quantize", "int8", "--to", "small", "--json")
    assert (code, err) == (0, "")
    result, model = json.loads(out), zoo.load(NAME)
    file = tmp_path / "small/model.onnx"
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == ["config.json", "model.onnx"]
    weights = sum(p.numel() for p in model.net.parameters())
    assert result["float_bytes"] == 4 * weights
    assert result["bytes"] == file.stat().st_size < result["weight_bytes"] + 25_000
    assert result["weight_bytes"] < 1.5 * weights  # of so small a network, biases, norms and scales are a third
    assert result["float_metrics"]["accuracy"] == model.metrics["accuracy"]
    images = torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        small, expected = OnnxNetwork(file, model.net)(images), zoo.quantize(model).net(images)
    torch.testing.assert_close(small, expected, rtol=0, atol=1e-4)
    assert run_by(model, OnnxNetwork(file, model.net)).evaluate()["accuracy"] == result["metrics"]["accuracy"]
    config = json.loads((tmp_path / "small/config.json").read_text())
    assert config["metrics"] == result["metrics"]
    assert config["float_metrics"] == result["float_metrics"]


@pytest.mark.slow
@pytest.mark.parametrize(("quantize", "size"), [(None, 4), ("int8", 1), ("int4", 18 / 32)])
def test_a_ticket_is_small_and_computes_the_same(quantize, size, tmp_path):
    model = zoo.load(TICKET)
    result = export(model, tmp_path / "small", "onnx", sparse=True, quantize=quantize, measure=False)
    matrices = [p for p in model.net.parameters() if sum(n > 1 for n in p.shape) > 1]
    kept, numbers = sum(int(p.count_nonzero()) for p in matrices), sum(p.numel() for p in matrices)
    others = 4 * sum(p.numel() for p in model.net.parameters()) - 4 * numbers
    scales = 4 * sum(p.shape[0] * (p.shape[1] if p.dim() == 3 else 1) for p in matrices) if quantize == "int8" else 0
    assert result["weight_bytes"] - others - scales <= 1.2 * size * kept + numbers / 8
    assert result["bytes"] <= result["weight_bytes"] + 40_000
    assert result["max_difference"] < 1e-4


def test_onnxruntime_quantizes_activations(call, tmp_path):
    code, out, err = call("export", NAME, "--format", "onnx", "--quantize", "dynamic", "--to", "small")
    assert (code, err) == (0, "")
    assert "quantized" in out
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == ["config.json", "model.onnx"]
    model, images = zoo.load(NAME), torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        small, expected = OnnxNetwork(tmp_path / "small/model.onnx", model.net)(images), model.net(images)
    assert 1e-4 < (small - expected).abs().max() < 0.1 * expected.abs().max()  # only rounded


@torch.no_grad()
def test_the_loss_of_an_onnx_network_is_that_of_the_model(generative_run, tmp_path):
    from onnx import load

    model = zoo.load(generative_run("gpt"))
    result = export(model, tmp_path / "result", "onnx")
    few = {"trainer": {"limit_test_batches": 1, "accelerator": "cpu", "enable_progress_bar": False}}
    network = OnnxNetwork(tmp_path / "result/model.onnx", model.net)
    assert run_by(model, network).evaluate(**few) == pytest.approx(model.evaluate(**few), rel=1e-4)
    assert result["max_difference"] < 1e-4
    assert (tmp_path / "result/tokenizer.json").read_text() == model.tokenizer.to_json()
    nodes = load(tmp_path / "result/model.onnx").graph.node
    assert [node.name for node in nodes if node.metadata_props] == []  # they contain paths of this machine


@pytest.mark.parametrize("format", ["pt2", "onnx"])
def test_a_full_disk_is_no_fault_of_the_network(format, tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        export(zoo.load("linear-hamilton-quaternion"), tmp_path / "x", format)
    assert not list(tmp_path.iterdir())
