"""Layers that multiply by components compute the same as layers with real matrices, and ExecuTorch runs them."""

import json
from copy import deepcopy
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from zoo_export.component_products import ComponentProducts, with_component_products
from zoo_export.export import export, parameter_bytes

import zoo
from tests import networks
from tests.networks import NETWORKS
from zoo.nn import Conv1d, Conv2d, Linear

needs_executorch = pytest.mark.skipif(not find_spec("executorch"), reason="needs hypercomplex-zoo[executorch]")
ALGEBRAS = "quaternion", "clifford(p=0, q=2, r=1)", "phm-3"
LAYERS = {
    "whole elements": (lambda a: Linear(24, 48, algebra=a), (5, 24)),
    "padding": (lambda a: Linear(10, 7, algebra=a), (2, 3, 10)),
    "blocks": (lambda a: Linear(48, 72, False, algebra=a, blocks=(2, 3)), (2, 3, 48)),
    "blocks with padding": (lambda a: Linear(20, 14, algebra=a, blocks=(4, 2)), (3, 20)),
    "stride": (lambda a: Conv2d(10, 14, 3, stride=2, padding=1, algebra=a), (2, 10, 9, 7)),
    "dilation": (lambda a: Conv1d(24, 48, 3, dilation=2, padding="same", bias=False, algebra=a), (2, 24, 11)),
}


@torch.no_grad()
@pytest.mark.parametrize("algebra", ALGEBRAS)
@pytest.mark.parametrize("layer", LAYERS)
def test_products_of_components_equal_those_with_the_matrix(layer, algebra):
    build, shape = LAYERS[layer]
    old, x = build(algebra), torch.randn(shape)
    if old.bias is not None:
        nn.init.normal_(old.bias)
    new = with_component_products(deepcopy(old))
    assert isinstance(new, ComponentProducts)
    assert parameter_bytes(new) == parameter_bytes(old) - (0 if old.algebra.kind == "fixed" else 4 * old.algebra.n**3)
    torch.testing.assert_close(new(x), old(x), rtol=0, atol=1e-5)
    quantized = with_component_products(deepcopy(old))
    torch.testing.assert_close(zoo.quantize(quantized)(x), zoo.quantize(old)(x), rtol=0, atol=1e-5)  # the same integers


@torch.no_grad()
@pytest.mark.parametrize("name", [n if n in ("vit", "lstm") else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS])
def test_networks_of_component_products(name):
    net, given = networks.build(name), networks.inputs(name)
    torch.testing.assert_close(with_component_products(deepcopy(net))(*given), net(*given), rtol=0, atol=1e-5)


def test_other_layers_remain():
    real, grouped = Linear(4, 4, algebra="real"), Conv2d(8, 8, 3, groups=2, algebra="complex")
    circular, hooked = Conv2d(8, 8, 3, padding=1, padding_mode="circular", algebra="complex"), Linear(4, 4, algebra="complex")
    nn.utils.parametrizations.weight_norm(hooked)
    layers = [real, grouped, circular, hooked]
    assert list(with_component_products(nn.Sequential(*layers))) == layers


@needs_executorch
@pytest.mark.parametrize("quantize", [None, "int8"])
def test_an_executorch_program_is_as_small_as_the_model(quantize, tmp_path):
    model = zoo.load("vit-digits-quaternion")
    result = export(model, tmp_path / "made", "executorch", quantize=quantize, measure=False)
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["config.json", "model.pte"]
    assert result["bytes"] == (tmp_path / "made/model.pte").stat().st_size < result["weight_bytes"] + 80_000
    assert result["weight_bytes"] < (result["float_bytes"] if quantize is None else 0.5 * result["float_bytes"]) + 1
    assert result["max_difference"] < 1e-4
    assert result["activation_bytes"] > 64 * 4
    config = json.loads((tmp_path / "made/config.json").read_text())
    assert (config["format"], config["folded"]) == ("executorch", False)
    assert config["inputs"]["x"]["shape"][0] == 1


@needs_executorch
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_backbone_runs_in_executorch(name, tmp_path):
    model = networks.trained(*NETWORKS[name], "quaternion")
    assert export(model, tmp_path / "made", "executorch")["max_difference"] < 1e-4


def test_the_table_of_the_page_matches_the_results():
    from benchmarks.speed import executorch as measured

    assert measured.PAGE.read_text(encoding="utf-8") == measured.text()
