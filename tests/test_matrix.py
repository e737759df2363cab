"""Every installed algebra in every backbone: one step, finite, with 1 / n of the weights."""

from functools import cache

import pytest
import torch

from zoo import registry
from zoo.algebra import algebra
from zoo.layers import Layers
from zoo.testing.backbone import installed_algebras
from zoo.testing.training import loss, matrices, weights

BACKBONES = {
    "vit(dim=96, heads=2, depth=2)": {"in_channels": 1, "image_size": 8, "num_classes": 10},
    "timm/test_resnet": {"in_channels": 3, "image_size": 32, "num_classes": 10},
}
ALGEBRAS = [*installed_algebras(), "clifford(p=0, q=2)"]


def build(backbone, spec):
    torch.manual_seed(0)
    return registry.create("zoo.backbones", backbone, Layers(spec), **BACKBONES[backbone])


@cache
def body(backbone, spec):
    """Weights of the matrices over the algebra, and all weights."""
    model = build(backbone, spec)
    return {name: layer.components.numel() for name, layer in matrices(model).items()}, weights(model)


def test_the_built_in_algebras_are_tried():
    assert {"real", "complex", "quaternion", "octonion", "sedenion", "phm(n=4)", "clifford(p=1, q=1)"} <= {
        str(registry.Spec.parse(spec)) for spec in ALGEBRAS
    }


@pytest.mark.parametrize("spec", ALGEBRAS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_one_step(backbone, spec):
    model, facts = build(backbone, spec), BACKBONES[backbone]
    images = torch.rand(4, facts["in_channels"], facts["image_size"], facts["image_size"])
    value = loss(model, images)
    value.backward()
    assert value.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    for name, layer in matrices(model).items():
        # Some gradient arrives at every matrix that does not stand behind a norm whose gain starts at zero.
        if backbone.startswith("vit"):
            assert layer.components.grad.abs().max() > 0, name


@pytest.mark.parametrize("spec", ALGEBRAS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_one_nth_of_the_weights(backbone, spec):
    n, (ours, total), (real, real_total) = algebra(spec).n, body(backbone, spec), body(backbone, "real")
    assert ours
    body_ratio = sum(ours.values()) / sum(real[name] for name in ours)
    if 96 % (2 * n) == 0 and n in (1, 2, 4, 8, 16):
        assert body_ratio == 1 / n
    assert 1 / n <= body_ratio < 1.5 / n
    # What is not over the algebra is the same number of weights as in the real network.
    assert total - sum(ours.values()) == real_total - sum(real[name] for name in ours)
