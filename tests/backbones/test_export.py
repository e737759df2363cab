"""Every backbone exports and compiles as one graph with dynamic batch size and length, with the same outputs."""

import json
from copy import deepcopy
from inspect import signature
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from torch.export import load
from zoo_export.export import export as write
from zoo_export.tracing import program

import zoo
from tests import networks
from tests.networks import COLOUR, NETWORKS, TEXT

ROOT = Path(zoo.__file__).parents[1]
FEW = ("vit", "lstm", "transformer, seq2seq", "gpt, rotary")
# Each layer and direction of an LSTM is traced for seconds.
EXPORTED = NETWORKS | {"lstm": ("lstm(dim=8, hidden=8, bidirectional=true, rules=gate)", TEXT)}
most_are_slow = pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)


def trained(name):
    return networks.trained(*EXPORTED[name], "complex", scope="all")


def inputs(name, rows, *lengths):
    return networks.inputs(name, rows, lengths)


@torch.no_grad()
@most_are_slow
def test_a_network_compiles_as_one_graph(name):
    torch._dynamo.reset()
    net, given = trained(name).net, inputs(name, 4, 8, 7)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(*given), net(*given))


@torch.no_grad()
@pytest.mark.parametrize(
    ("spec", "given"),
    [("fasttext(dim=8, hidden=8)", inputs("fasttext", 4, 8)), ("timm/regnetx_002", inputs("timm", 4))],
    ids=["table over the algebra", "groups"],
)
def test_tables_and_groups_over_an_algebra_compile_as_one_graph(spec, given):
    torch._dynamo.reset()
    info = COLOUR if given[0].is_floating_point() else TEXT
    net = zoo.backbone(spec, "complex", scope="all+embed", **info).eval()
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(*given), net(*given))


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in FEW])  # those are exported to files below
def test_every_backbone_exports_with_dynamic_sizes(name):
    model = trained(name)
    exported, given = program(model, deepcopy(model.net)).module(), inputs(name, 2, 5, 4)
    torch.testing.assert_close(exported(*given), model.net(*given), rtol=0, atol=1e-5)


@torch.no_grad()
@most_are_slow
def test_a_network_is_exported_to_a_file(name, tmp_path):
    model = trained(name)
    made = write(model, tmp_path / "made", "pt2")
    program = load(tmp_path / "made/model.pt2").module()
    for arguments in (inputs(name, 3, 11, 9), inputs(name, 1, 1, 2)):
        torch.testing.assert_close(program(*arguments), model.net(*arguments), rtol=0, atol=1e-5)
    assert made["max_difference"] < 1e-5
    with ZipFile(tmp_path / "made/model.pt2") as archive:  # files that people share name no folder of their author
        assert not [name for name in archive.namelist() if str(ROOT).encode() in archive.read(name)]
    config = json.loads((tmp_path / "made/config.json").read_text())
    assert list(config["inputs"]) == list(signature(model.net.forward).parameters)[: len(arguments)]
    shapes = [["batch", "length"] if x.ndim == 2 and not x.is_floating_point() else ["batch", *x.shape[1:]] for x in arguments]
    assert [one["shape"] for one in config["inputs"].values()] == shapes
