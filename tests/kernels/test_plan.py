"""The plan chooses the kernel of the lowest cost, including third-party kernels."""

import math

import pytest
import torch

import zoo
from tests.errors import raises
from zoo.kernels import Kernel, Work, axis_layout, block_linear
from zoo.kernels.base import kernels, plan, real_cost
from zoo.layers import Linear, set_kernel
from zoo.registry import unregister


def work(rows, size, n=4, rank=8, training=True, threads=2, prepared=False):
    return Work(rows, axis_layout(size, n), axis_layout(size, n), n, rank, training, prepared, threads)


@pytest.mark.parametrize(
    ("product", "name", "compiled"),
    [
        (work(4096, 2048), "factored", "fused"),
        (work(4096, 2048, rank=0), "block", "block"),
        (work(64, 64), "block", "block"),
        (work(0, 64), "block", "block"),
        (work(8192, 1024, 2, 3), "factored", "fused"),
        (work(1, 64, training=False, prepared=True), "block", "block"),
        (work(1, 256, training=False, prepared=True), "block", "block"),
        (work(1, 1024, training=False, prepared=True), "thin", "thin"),
        (work(32, 1024, training=False, prepared=True), "block", "fused"),
        (work(1, 512, training=False), "thin", "thin"),
        (work(1, 1024, 8, 30, training=False), "thin", "thin"),
        (work(4096, 2048, training=False), "factored", "fused"),
    ],
)
def test_lowest_cost_is_chosen(product, name, compiled, monkeypatch):
    for is_available, expected in ((False, name), (True, compiled)):
        monkeypatch.setattr("zoo.kernels.fused.is_available", lambda value=is_available: value)
        assert plan(product).name == expected


@pytest.mark.parametrize("compiled", [False, True])
def test_costs_increase_with_work_and_decrease_with_caching(compiled, monkeypatch):
    monkeypatch.setattr("zoo.kernels.fused.is_available", lambda: compiled)
    for kernel in kernels():
        few, many = (work(rows, 512, training=False) for rows in (512, 8192))
        if kernel.can(few) and kernel.cost(few) < math.inf:
            assert 0 < kernel.cost(few._replace(prepared=True)) <= kernel.cost(few) < kernel.cost(many)
    assert real_cost(few._replace(training=True)) == pytest.approx(3 * real_cost(few))


class Negated(Kernel):
    """A wrong kernel."""

    name = "negated"

    def can(self, work):
        return not work.convolution

    def cost(self, work):
        return 0.0

    def prepare(self, weight):
        return weight.components.clone()

    def apply(self, x, weight, bias, prepared=None, geometry=None):
        w = weight.components if prepared is None else prepared
        return -block_linear(x, w, weight.action(), weight.out, weight.inp, bias)


def test_registered_kernel():
    layer, x = Linear(zoo.algebra("quaternion"), 8, 8), torch.randn(3, 8)
    expected = layer(x)
    zoo.register("kernels", "negated", Negated)
    try:
        set_kernel(layer, "auto")  # plan anew
        torch.testing.assert_close(layer(x), -expected)
        with torch.no_grad(), zoo.keep_matrices(layer):
            torch.testing.assert_close(layer(x), -expected)
            layer.components.zero_()  # the kernel was prepared with the values of before
            torch.testing.assert_close(layer(x), -expected)
    finally:
        unregister("kernels", "negated")
    with raises("unknown", "negated"):
        set_kernel(layer, "negated")


def test_kernel_that_fails_to_load_is_skipped():
    def broken():
        raise ImportError("no such library")

    zoo.register("kernels", "broken", broken)
    try:
        with pytest.warns(UserWarning, match="broken"):
            assert plan(work(64, 64)).name == "block"
    finally:
        unregister("kernels", "broken")
