r"""Multiply a few rows on a GPU: one launch that reads every component once, and never assembles the real matrix.

The kernel is written as text for one algebra, with the constants of a fixed product folded in, like those of `zoo_gpu.source`.
With components w_i, [P, Q] each, a program computes TP elements of the output, y_k = sum_ij A[i, j, k] w_i x_j, in float32, for
a chunk of rows at a time. The components of these elements are in the cache when the next chunk reads them.
"""

from functools import lru_cache
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from zoo.kernels import Geometry, Kernel, Operand, Work
from zoo.kernels.assembly import entries
from zoo.kernels.base import Call, Prepared
from zoo_gpu.assembly import DTYPES, FUSED, is_interpreted, is_recent, missing, on_device

MOST_ROWS = 16
MOST_DIMENSIONS = 8
MOST_COEFFICIENTS = 64  # of a learned product, which are kept in registers
SUMS = 16  # tiles of the output that a program sums at once
TILE = {"TP": 8, "TQ": 128, "num_warps": 8}  # fastest of those tried on an H100, with one row
INTERPRETED_TILE = {"TP": 32, "TQ": 32}


class ThinTriton(Kernel):
    """All products of components, for up to 16 rows without a gradient."""

    name = "thin_triton"

    def can(self, work: Work) -> bool:
        """Return whether the kernel supports the product."""
        is_row = 0 < work.rows <= MOST_ROWS and not (work.training or work.convolution)
        is_short = work.inp.n <= MOST_DIMENSIONS and (not work.learned or work.m * work.inp.n**2 <= MOST_COEFFICIENTS)
        fits = work.m * work.out.elements * work.inp.elements < 2**31  # offsets are 32-bit numbers
        if not (is_row and is_short and fits and work.dtype in DTYPES) or missing():
            return False
        return is_interpreted() or (work.device == "cuda" and is_recent(torch.device("cuda")))

    def cost(self, work: Work) -> float:
        """Return 0: reading the components once is faster than anything that reads more."""
        return 0.0

    def missing(self) -> str | None:
        """Return why the kernel cannot run on this machine, or None."""
        return missing()

    def bind(self, weight: Operand, prepared: Prepared = None) -> Call | None:
        """Return a call of the kernel."""
        return thin_product(weight)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Prepared, geometry: Geometry | None) -> Tensor:
        """Multiply; a bias with a gradient is added by torch."""
        multiply = thin_product(weight)
        if bias is not None and bias.requires_grad and torch.is_grad_enabled():
            return multiply(x, None) + bias
        return multiply(x, bias)


def thin_product(weight: Operand) -> Call:
    """Return a call that multiplies a few rows by a weight and adds a bias, [..., in] to [..., out], without gradients."""
    w, table, literal, out, inp = weight.part()
    table = None if table is None else table.contiguous()
    sizes = out.elements, inp.elements, out.width, inp.width, out.size, inp.size
    options: dict[str, Any] = (INTERPRETED_TILE if is_interpreted() else TILE) | FUSED
    grid = (-(-out.elements // options["TP"]),)

    def multiply(x: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.numel() // inp.channels
        y = x.new_empty((*x.shape[:-1], out.channels))
        kernel = _kernel(literal, len(w), out.n, 1 if rows == 1 else min(4, SUMS // out.n))
        with on_device(w.device):
            kernel[grid](w.contiguous(), x.contiguous(), table, bias, y, rows, *sizes, **options)
        return y

    return multiply


HEAD = """@triton.jit
def thin(w, x, a, bias, y, rows, P, Q, PW, QW, SO, SI, TP: tl.constexpr, TQ: tl.constexpr):
    p, q = tl.program_id(0) * TP + tl.arange(0, TP), tl.arange(0, TQ)
    size, in_channels, out_channels = P * Q, (Q // QW) * SI, (P // PW) * SO
    row = (p // PW) * SO + p % PW
"""

LOOP = """        for start in range(0, Q, TQ):
            c = start + q
            at, inside = p[:, None] * Q + c[None, :], (p < P)[:, None] & (c < Q)[None, :]
            column = (c // QW) * SI + c % QW
"""


@lru_cache(256)
def _kernel(literal: str, m: int, n: int, chunk: int) -> Any:
    """Return the kernel of a product, see `zoo.algebras.literal`; empty if it is learned."""
    from zoo_gpu.source import compiled

    known = {(i, j, k): f"a{i}_{j}_{k}" for i in range(m) for j in range(n) for k in range(n)}
    text = HEAD
    if literal:
        known = {(i, j, k): repr(a) for i, j, k, a in entries(literal)[2]}
    else:
        text += "".join(f"    {a} = tl.load(a + {at}).to(tl.float32)\n" for at, a in enumerate(known.values()))
    pairs = [(r, k) for r in range(chunk) for k in range(n)]  # rows and components
    text += f"    for first in range(0, rows, {chunk}):\n"
    # The last row is computed again in place of rows that do not exist.
    text += "".join(f"        r{r} = tl.minimum(first + {r}, rows - 1)\n" for r in range(chunk))
    text += "".join(f"        s{r}_{k} = tl.zeros((TP, TQ), tl.float32)\n" for r, k in pairs) + LOOP
    load = "tl.load({}, mask={}, other=0.0).to(tl.float32)\n"
    for r, j in pairs:
        place, mask = f"x + r{r} * in_channels + column + {j} * QW", f"(c < Q) & ({j} * QW + c % QW < SI)"
        text += f"            x{r}_{j} = {load.format(place, mask)}"
    text += "".join(f"            w{i} = {load.format(f'w + {i} * size + at', 'inside')}" for i in range(m))
    for i in range(m):
        for r, k in pairs:
            if terms := " + ".join(f"({known[i, j, k]}) * x{r}_{j}" for j in range(n) if (i, j, k) in known):
                text += f"            s{r}_{k} += w{i} * ({terms})[None, :]\n"
    for r, k in pairs:
        place, mask = f"row + {k} * PW", f"(p < P) & ({k} * PW + p % PW < SO)"
        text += f"        t = tl.sum(s{r}_{k}, 1)\n"
        text += f"        if bias is not None:\n            t += {load.format(f'bias + {place}', mask)}"
        text += f"        tl.store(y + r{r} * out_channels + {place}, t.to(y.dtype.element_ty), mask={mask})\n"
    return compiled(text, f"thin_{sha256(text.encode()).hexdigest()[:16]}")
