"""Layers use the kernel that is planned or asked for, and the real matrix wherever only that is right."""

import copy
import warnings

import pytest
import torch

import zoo
from tests.faults.process import forked
from zoo.kernels import real_matrix
from zoo.kernels.block import Block
from zoo.kernels.factored import Factored
from zoo.kernels.fused import Fused, is_available
from zoo.kernels.thin import Thin
from zoo.layers import Linear, kernel_choice
from zoo.layers.kernel_choice import set_kernel


@pytest.fixture
def called(monkeypatch):
    """The kernels that were called."""
    names = []
    for kernel in (Block, Factored, Fused, Thin):
        spy = lambda self, *args, apply=kernel.apply: names.append(self.name) or apply(self, *args)  # noqa: E731
        monkeypatch.setattr(kernel, "apply", spy)
    return names


def layer(spec="quaternion", inp=12, out=8, **options):
    torch.manual_seed(0)
    pure = zoo.Algebra(zoo.algebra("quaternion").structure, left=torch.eye(4)[1:])
    return Linear(pure if spec == "pure quaternions" else zoo.algebra(spec), inp, out, **options)


def with_kernel(kernel, *args, **options):
    one = layer(*args, **options)
    set_kernel(one.modules(), kernel)
    return one


def expected(one, x):
    weight = one.weight_module
    return torch.nn.functional.linear(x, real_matrix(weight.action(), weight.elements, one.out, one.inp), one.bias)


@pytest.mark.parametrize("spec", ["complex", "quaternion", "octonion", "phm-3", "phm(n=4, rank=9)", "pure quaternions", "real"])
@pytest.mark.parametrize("kernel", ["auto", "block", "factored", "thin"])
def test_every_kernel_equals_the_real_matrix(kernel, spec):
    one = with_kernel(kernel, spec, 10, 14).double()
    x = torch.randn(3, 7, 10, dtype=torch.float64, requires_grad=True)
    wanted = torch.autograd.grad(expected(one, x).sin().sum(), [x, *one.parameters()])
    found = torch.autograd.grad(one(x).sin().sum(), [x, *one.parameters()])
    for this, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(this, other)
    one.eval()
    with torch.no_grad():
        torch.testing.assert_close(one(x), expected(one, x))


@pytest.mark.parametrize(("kernel", "training"), [("factored", True), ("block", True), ("thin", False), ("factored", False)])
def test_requested_kernel_is_used(kernel, training, called):
    one, x = layer().train(training), torch.randn(5, 12)
    with torch.set_grad_enabled(training):
        one(x)
        set_kernel(one, kernel)  # what was planned before is forgotten
        called.clear()
        one(x)
    assert called == [kernel]


def test_block_is_the_fallback(called):
    with_kernel("thin")(torch.randn(5, 12))
    with_kernel("factored", "phm-4")(torch.randn(5, 12))
    assert called == ["block", "block"]


def test_plan_is_cached_by_number_of_rows(monkeypatch):
    asked = []
    monkeypatch.setattr(kernel_choice, "plan", lambda work, name: asked.append(work.rows) or Block())
    one = layer()
    for rows in (5, 5, 9, 5, 9):
        one(torch.randn(rows, 12))
    assert asked == [5, 9]
    one.double()(torch.randn(5, 12).double())
    assert asked == [5, 9, 5]


def test_large_products_in_training_are_factored_automatically(called):
    layer("quaternion", 512, 512)(torch.randn(4096, 512))
    layer("quaternion", 16, 16)(torch.randn(8, 16))
    assert called == ["fused" if is_available() else "factored", "block"]


def compiled(one, x):
    return torch.export.export(one, (x,)).module()(x)


def traced(one, x):
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit is deprecated, and still used
        return torch.jit.trace(one.eval(), x, check_trace=False)(x)


def mapped(one, x):
    return torch.func.vmap(one)(x)


def in_bfloat16(one, x):
    with torch.autocast("cpu", torch.bfloat16):
        return one(x)


def forward_mode(one, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch's own decompositions
        return torch.func.jvp(one, (x,), (torch.ones_like(x),))[0]


def parametrized(one, x):
    torch.nn.utils.parametrizations.spectral_norm(one)
    return one(x)


@pytest.mark.parametrize("use", [compiled, traced, mapped, in_bfloat16, forward_mode, parametrized], ids=lambda f: f.__name__)
def test_real_matrix_is_used_by_transformations(use, called):
    one, x = with_kernel("factored"), torch.randn(5, 12)
    y = use(one, x)
    assert called == []
    if use not in (parametrized, in_bfloat16):
        torch.testing.assert_close(y, expected(one, x))


def one_rank(rank, folder):
    torch.set_num_threads(2)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    one = with_kernel("factored").double()
    net = torch.nn.parallel.DistributedDataParallel(one)
    net(rows_of(rank)).sin().mean().backward()
    torch.save(one.components.grad, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def rows_of(rank):
    return torch.randn(200, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))


def test_distributed_gradients_equal_those_of_all_rows(tmp_path):
    ranks = [forked(one_rank, rank, tmp_path) for rank in (0, 1)]
    for process in ranks:
        process.join(60)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()  # one whose partner failed would wait for it
    assert codes == [0, 0]
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    one = with_kernel("block").double()
    one(torch.cat([rows_of(0), rows_of(1)])).sin().mean().backward()
    for gradient in found:
        torch.testing.assert_close(gradient, one.components.grad)


def test_copies_keep_the_requested_kernel():
    one = with_kernel("factored")
    one(torch.randn(5, 12))
    other = copy.deepcopy(one)
    assert other.weight_module.kernel == "factored"
    torch.testing.assert_close(other(torch.ones(2, 12)), one(torch.ones(2, 12)))


def test_gradient_penalty():
    one = with_kernel("factored").double()
    x = torch.randn(5, 12, dtype=torch.float64, requires_grad=True)

    def penalty(y):
        return torch.autograd.grad(y.square().sum(), x, create_graph=True)[0].square().sum()

    found, wanted = (torch.autograd.grad(penalty(y), one.components)[0] for y in (one(x), expected(one, x)))
    torch.testing.assert_close(found, wanted)
