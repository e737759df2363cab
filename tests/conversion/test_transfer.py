"""Projection of real networks onto algebras: exact if possible, and its errors."""

import pytest
import torch
from torch import nn

import zoo
from tests.errors import raises
from tests.networks import NETWORKS, build, inputs
from zoo.algebras import algebra, reals
from zoo.conversion import convert, transfer
from zoo.conversion.transfer import summary
from zoo.layers.weight import Weight

_, SIZES = NETWORKS["vit"]


def over_the_reals(spec, net, **sizes):
    """Return the real network that computes the same as a network over an algebra."""
    twin = zoo.backbone(spec, reals(), **sizes)
    theirs = net.state_dict()
    for name, value in twin.state_dict().items():
        if name in theirs and theirs[name].shape == value.shape:
            value.copy_(theirs[name])
    for name, module in twin.named_modules():
        if isinstance(module, Weight):
            layer = name.removesuffix(".weight_module")
            weight = net.get_submodule(layer).weight if name != layer else net.get_submodule(name)()
            module.components.data.copy_(weight.detach())
    return twin


@pytest.mark.parametrize("name", NETWORKS)
def test_the_projection_of_a_hypercomplex_network_is_exact(name):
    (spec, sizes), product, x = NETWORKS[name], algebra("quaternion"), inputs(name, 2)
    net = build(name, "quaternion")
    twin, again = over_the_reals(spec, net, **sizes).eval(), zoo.backbone(spec, product, **sizes).eval()
    rows = transfer(twin, again, product)
    assert max(row.error for row in rows) < 1e-6
    with torch.no_grad():
        expected = net(*x)
        if "product" not in spec and not sizes.get("pair") and "hermitian" not in spec:  # these multiply features too
            torch.testing.assert_close(twin(*x), expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(again(*x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spec", ["octonion", "phm-4", "phm(n=4, shared=true)", "phm(n=4, rank=8)"])
def test_the_error_is_that_of_the_matrices(spec):
    real, product = build("vit", reals()), algebra(spec)
    net = build("vit", product)
    rows = transfer(real, net, product)
    assert len(rows) == 4
    for row in rows:
        assert 0 < row.error < 1
        matrix = dict(real.named_modules())[f"{row.layer}.weight_module"]().detach()
        ours = dict(net.named_modules())[f"{row.layer}.weight_module"]().detach()
        assert float((matrix - ours).norm() / matrix.norm()) == pytest.approx(row.error, rel=1e-4)
    totals = summary(rows)
    assert totals["worst"] == max(row.error for row in rows)
    assert totals["mean"] == pytest.approx(sum(row.error for row in rows) / 4)


def test_tensors_other_than_hypercomplex_matrices_are_copied():
    real, product = build("vit", reals()), algebra("quaternion")
    for parameter in real.parameters():
        nn.init.normal_(parameter)
    net = build("vit", product)
    transfer(real, net, product)
    theirs = {name.replace(".weight_module.components", ".weight"): value for name, value in real.state_dict().items()}
    same = [
        name for name, value in net.state_dict().items() if "weight_module" not in name and torch.equal(theirs[name], value)
    ]
    assert {"pos_embed", "cls_token", "patch_embed.proj.weight", "head.weight", "blocks.0.norm1.weight"} <= {*same}
    assert len(same) == sum("weight_module" not in name for name in net.state_dict())


def test_random_matrices_have_the_error_of_matrices_without_structure():
    torch.manual_seed(0)
    model = convert(nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 256)), "quaternion", weights="project")
    for row in model.projections:
        assert row.error == pytest.approx(row.unstructured, rel=0.02)
        assert row.unstructured == pytest.approx(0.75**0.5)
    assert convert(nn.Sequential(nn.Linear(8, 8)), "quaternion").projections == []


def test_a_layer_without_a_counterpart_is_named():
    real, product = build("vit", reals()), algebra("quaternion")
    for spec, values in (
        ("vit(dim=32, depth=2, heads=2)", ("'blocks.1.attn.qkv'", [96, 32])),
        ("vit(dim=16, depth=1, heads=2)", ("'blocks.0.attn.qkv'", [48, 16], [96, 32])),
    ):
        net = zoo.backbone(spec, product, **SIZES)
        before = {name: value.clone() for name, value in net.state_dict().items()}
        with raises("mismatch", *values):
            transfer(real, net, product)
        assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
