"""Initialization: the variance for all algebras, and the moments of the published ones."""

import math

import pytest
import torch

from zoo.algebras import algebra
from zoo.layers import Linear
from zoo.layers.weight import draw_components

SPECS = ["real", "complex", "quaternion", "octonion", "sedenion", "clifford(p=2,q=0,r=1)", "phm-4"]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("inp", "out", "gain"), [(256, 1024, 1.0), (480, 720, 0.5)])
def test_variance_initialization_has_the_expected_std(spec, inp, out, gain):
    layer = Linear(algebra(spec), inp, out, gain=gain)
    table, n = layer.algebra.structure, layer.algebra.n
    std = gain / math.sqrt((inp / n) * table.square().sum().item() / n)
    assert abs(layer.components.std().item() / std - 1) < 0.03
    assert abs(layer.components.mean().item()) < 0.05 * std
    assert layer.bias.abs().max() == 0


@pytest.mark.parametrize("spec", SPECS)
def test_glorot_bounds_each_component(spec):
    layer = Linear(algebra(spec), 480, 240, init="glorot")
    n = layer.algebra.n
    bound = math.sqrt(6 / (480 / n + 240 / n))
    assert 0.98 * bound < layer.components.abs().max() <= bound
    assert abs(layer.components.var().item() / (bound**2 / 3) - 1) < 0.05


@pytest.mark.parametrize(("spec", "n"), [("complex", 2), ("quaternion", 4), ("octonion", 8)])
def test_polar_modulus_is_chi_distributed(spec, n):
    inp, out = 512, 256
    layer = Linear(algebra(spec), inp, out, init="polar")
    scale = 1 / math.sqrt(2 * (inp + out) / n)
    r = layer.components.detach().double().norm(dim=0).flatten() / scale
    mean = math.sqrt(2) * math.gamma((n + 1) / 2) / math.gamma(n / 2)
    for power, moment in ((1, mean), (2, n), (4, n * (n + 2))):
        assert abs(r.pow(power).mean().item() / moment - 1) < 0.05, power


def test_polar_phase_and_axis_are_uniform():
    w = Linear(algebra("quaternion"), 512, 512, init="polar").components.detach().double().flatten(1)
    cosine = w[0] / w.norm(dim=0)
    # The cosine of a uniform phase has the arcsine law: variance 1/2, fourth moment 3/8.
    assert abs(cosine.square().mean().item() - 1 / 2) < 0.02
    assert abs(cosine.pow(4).mean().item() - 3 / 8) < 0.02
    axis = w[1:] / w[1:].norm(dim=0)
    assert axis.mean(1).abs().max() < 0.03
    torch.testing.assert_close(axis @ axis.T / axis.shape[1], torch.eye(3, dtype=torch.float64) / 3, atol=0.02, rtol=0)
    assert Linear(algebra("real"), 64, 64, init="polar").components.isfinite().all()


def test_zero_structure_initializes_zeros():
    w = torch.full((2, 3, 3), 7.0)
    draw_components(w, torch.zeros(2, 2, 2), 3, 3)
    assert w.abs().max() == 0
