"""Random calls of the compiled operators: each returns the value of the definition or raises an error of torch.

``python -m tests.kernels.fuzz LIBRARY CALLS`` loads a library and makes so many calls of each of its operators.
"""

import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels import fused as fused  # defines the operators
from zoo.kernels.base import AxisLayout
from zoo.kernels.block import real_matrix

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
ERRORS = (RuntimeError, TypeError, NotImplementedError, MemoryError)
HUGE = 2**62


class Call(NamedTuple):
    """An operator, its arguments, and its definition in float64."""

    operator: Any
    arguments: list[Any]
    definition: Callable[..., Any]
    written: int | None = None  # the argument that the operator writes to


def draw(rng: random.Random, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw a tensor whose memory is contiguous, strided, transposed, expanded or overlapping."""
    memory = rng.choice(("contiguous",) * 3 + ("strided", "offset", "transposed", "expanded", "overlapping", "negated"))
    if memory == "strided":
        return torch.randn(*shape, 2).to(dtype)[..., 0]
    if memory == "offset" and shape:
        return torch.randn(*shape[:-1], shape[-1] + 3).to(dtype)[..., 1:-2]
    if memory == "transposed" and len(shape) > 1:
        return torch.randn(*reversed(shape)).to(dtype).permute(*reversed(range(len(shape))))
    if memory == "expanded" and shape:
        axis = rng.randrange(len(shape))
        return torch.randn(*shape[:axis], 1, *shape[axis + 1 :]).to(dtype).expand(shape)
    if memory == "overlapping" and shape:
        return torch.randn(sum(shape)).to(dtype).as_strided(shape, (1,) * len(shape))
    if memory == "negated" and dtype != torch.bfloat16:
        return torch.randn(*shape, dtype=torch.promote_types(dtype, torch.complex64)).conj().imag
    return torch.randn(*shape).to(dtype)


def spoil(value: Any, rng: random.Random) -> Any:
    """Return an argument that an operator may have to refuse."""
    if isinstance(value, tuple):
        changed = list(value)
        changed[rng.randrange(3)] = rng.choice((0, -1, 1, 2, 3, 7, 2**31, HUGE))
        return tuple(changed)
    if not isinstance(value, Tensor) or value.numel() > 2**30:  # an expanded tensor must not be copied
        return value
    sizes = list(value.shape)
    axis = rng.randrange(len(sizes)) if sizes else None
    changes: list[Callable[[], Any]] = [
        lambda: value.to(rng.choice((torch.float64, torch.float32, torch.bfloat16, torch.half, torch.int64, torch.bool))),
        lambda: value.to(torch.complex64),
        lambda: value.to("meta"),
        lambda: value[None],
        lambda: value.flatten(),
        lambda: value.to_sparse(),
        lambda: value.float().to_mkldnn(),
        lambda: torch.randn(()),
        lambda: value.to("cuda" if torch.cuda.is_available() else "meta"),
    ]
    if axis is not None:
        changes += 3 * [
            lambda: value.new_ones(*sizes[:axis], rng.choice((0, 1, sizes[axis] + 1, abs(sizes[axis] - 1))), *sizes[axis + 1 :])
        ]
        changes += [
            lambda: value.narrow(axis, 0, 1).expand(*sizes[:axis], rng.choice((3, 2**45, HUGE)), *sizes[axis + 1 :]),
            lambda: value.sum(axis),
            lambda: value.transpose(axis, 0),
        ][: 3 * bool(value.numel())]
    try:
        return rng.choice(changes)()
    except ERRORS:
        return value


def axis(rng: random.Random, n: int, most: int) -> tuple[int, int, int]:
    """Draw the layout of a channel axis."""
    blocks = rng.choice((1, 1, 2, 3))
    return blocks * rng.randint(1, most), n, blocks


def product(rng: random.Random) -> tuple[Any, ...]:
    """Draw the operands of a product of rows: x, w, the factors, a bias and the layouts."""
    n, m, rank = rng.randint(1, 5), rng.randint(1, 5), rng.randint(1, 9)
    most = 300 if rng.random() < 0.03 else 24
    out, inp = axis(rng, n, most), axis(rng, n, most)
    of_x, of_w = rng.choice(
        [(torch.float32,) * 2] * 3 + [(torch.float64,) * 2, (torch.bfloat16,) * 2, (torch.bfloat16, torch.float32)]
    )
    rows = rng.choice(((), (0,), (1,), (2,), (1, 3), (rng.randint(3, 80),), (2, 0, 3), (2, rng.randint(1, 40))))
    x = draw(rng, *rows, inp[0], dtype=of_x)
    w = draw(rng, m, AxisLayout(*out).elements, AxisLayout(*inp).elements, dtype=of_w)
    factors = [draw(rng, rank, size, dtype=rng.choice((of_w, torch.float32))) for size in (m, n, n)]
    bias = rng.choice((None, draw(rng, out[0], dtype=of_x), torch.randn(1).to(of_x)))
    return x, w, factors, bias, out, inp


def multiply(x: Tensor, structure: Tensor, w: Tensor, bias: Tensor | None, out: Any, inp: Any) -> Tensor:
    """Multiply by the definition."""
    layouts = AxisLayout(*out), AxisLayout(*inp)
    if min(*out, *inp) < 1 or any(layout.channels % layout.blocks for layout in layouts):
        raise RuntimeError("no layout")
    if bias is not None:
        bias = bias.expand(out[0])
    return F.linear(x, real_matrix(structure, w, *layouts), bias)


def linear(rng: random.Random, name: str) -> Call:
    """Draw a call of fused_linear or fused_rows."""

    def definition(x: Any, w: Any, left: Any, right: Any, result: Any, bias: Any, out: Any, inp: Any) -> Tensor:
        return multiply(x, torch.einsum("ri,rj,rk->ijk", left, right, result), w, bias, out, inp)

    x, w, factors, bias, out, inp = product(rng)
    return Call(getattr(torch.ops.zoo, name), [x, w, *factors, bias, out, inp], definition)


def combined(rng: random.Random) -> Call:
    """Draw a call of fused_combined, with a result for each matrix or for each pair."""

    def definition(x: Any, w: Any, right: Any, result: Any, bias: Any, out: Any, inp: Any) -> Tensor:
        if len(w) == len(right) == len(result):
            structure = torch.einsum("rj,rk->rjk", right, result)
        else:
            structure = torch.einsum("gj,mgk->mjk", right, result.view(len(w), len(right), -1))
        return multiply(x, structure, w, bias, out, inp)

    x, w, (_, right, result), bias, out, inp = product(rng)
    ranks = len(right)
    matrices = draw(rng, ranks if rng.random() < 0.5 else len(w), *w.shape[1:], dtype=x.dtype)
    if rng.random() < 0.5 or len(matrices) != ranks:
        result = draw(rng, len(matrices) * ranks, result.shape[1], dtype=result.dtype)
    return Call(torch.ops.zoo.fused_combined, [x, matrices, right, result, bias, out, inp], definition)


def combinations(rng: random.Random) -> Call:
    """Draw a call of fused_combinations."""
    x, w, (left, *_), *_ = product(rng)
    return Call(torch.ops.zoo.fused_combinations, [x, w, left], lambda x, w, left: torch.einsum("rm,moi->roi", left, w))


def mix(rng: random.Random) -> Call:
    """Draw a call of fused_mix, which writes to its last argument."""

    def definition(x: Tensor, coefficients: Tensor, y: Tensor) -> Tensor:
        n = coefficients.shape[1]
        return torch.einsum("rn,bncp->brcp", coefficients, x.unflatten(1, (n, x.shape[1] // n))).flatten(1, 2)

    images, n, ranks, width, places = (rng.randint(low, high) for low, high in ((0, 3), (1, 4), (1, 9), (0, 20), (0, 70)))
    dtype = rng.choice((torch.float32, torch.float64, torch.bfloat16))
    y = torch.empty(images, ranks * width, places, dtype=dtype)
    if rng.random() < 0.5:
        y = torch.empty(images, places, ranks * width, dtype=dtype).transpose(1, 2)
    x = draw(rng, images, n * width, places, dtype=dtype)
    return Call(torch.ops.zoo.fused_mix, [x, draw(rng, ranks, n), y], definition, written=2)


def backward(rng: random.Random) -> Call:
    """Draw a call of fused_backward."""

    def definition(g: Any, x: Any, w: Any, left: Any, right: Any, result: Any, out: Any, inp: Any, needs: Any) -> Any:
        leaves = [t.detach().requires_grad_() for t in (x, w, left, right, result, x.new_zeros(out[0]))]
        structure = torch.einsum("ri,rj,rk->ijk", *leaves[2:5])
        y = multiply(leaves[0], structure, leaves[1], leaves[5], out, inp)
        if y.shape != g.shape:
            raise RuntimeError("g does not fit")
        with torch.enable_grad():
            gradients = torch.autograd.grad(y, leaves, g, allow_unused=True, materialize_grads=True)
        return [gradient if need else torch.empty(0) for gradient, need in zip(gradients, needs, strict=True)]

    x, w, factors, _, out, inp = product(rng)
    g, needs = draw(rng, *x.shape[:-1], out[0], dtype=x.dtype), [rng.random() < 0.7 for _ in range(6)]
    return Call(torch.ops.zoo.fused_backward, [g, x, w, *factors, out, inp, needs], definition)


OPERATORS: dict[str, Callable[[random.Random], Call]] = {
    "fused_linear": lambda rng: linear(rng, "fused_linear"),
    "fused_rows": lambda rng: linear(rng, "fused_rows"),
    "fused_combined": combined,
    "fused_combinations": combinations,
    "fused_mix": mix,
    "fused_backward": backward,
}


def check(call: Call, is_valid: bool) -> bool:
    """Call an operator and return whether it returned a value, which is the definition's; valid calls must."""
    try:
        with torch.no_grad():
            returned = call.operator(*call.arguments)
    except ERRORS:
        if is_valid:
            raise
        return False
    actual = _listed(returned if call.written is None else call.arguments[call.written])
    tensors = [argument for argument in call.arguments if isinstance(argument, Tensor)]
    if any(t.is_meta for t in tensors):
        assert all(t.is_meta for t in (*tensors, *actual)), "a mix of devices was accepted"
        return True
    # Roundings are bounded by the same sum of the absolute values.
    exact, bounds = (call.definition(*map(change, call.arguments)) for change in (_double, _absolute))
    for a, b, bound in zip(actual, _listed(exact), _listed(bounds), strict=True):
        assert a.shape == b.shape, f"{list(a.shape)} instead of {list(b.shape)}"
        coarsest = max(TOLERANCE[t.dtype] for t in (a, *tensors) if t.dtype in TOLERANCE)
        assert not a.numel() or (a.double() - b).abs().max() <= coarsest * bound.abs().max(), "wrong value"
    return True


def _listed(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) else value


def _absolute(value: Any) -> Any:
    return value.double().abs() if isinstance(value, Tensor) else value


def fuzz(name: str, calls: int, seed: int = 0) -> int:
    """Make random calls of an operator, of which two in five are valid; return how many returned a value."""
    returned = 0
    for number in range(calls):
        rng = random.Random(f"{name} {seed} {number}")
        torch.manual_seed(rng.randrange(2**31))
        call = OPERATORS[name](rng)
        spoiled = rng.choice((0, 0, 1, 1, 2))
        for _ in range(spoiled):
            place = rng.randrange(len(call.arguments))
            call.arguments[place] = spoil(call.arguments[place], rng)
        try:
            returned += check(call, is_valid=not spoiled)
        except BaseException as error:
            error.add_note(f"{name}, call {number}: {[getattr(a, 'shape', a) for a in call.arguments]}")
            raise
    return returned


if __name__ == "__main__":
    library, calls = sys.argv[1:]
    torch.ops.load_library(library)
    for operator in OPERATORS:
        sys.stdout.write(f"{operator} {fuzz(operator, int(calls))}\n")
        sys.stdout.flush()
