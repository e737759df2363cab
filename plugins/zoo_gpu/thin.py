r"""Multiply a few rows on a GPU: one launch that reads every component once, and never assembles the real matrix.

The kernel is written as text for one algebra, with the constants of a fixed product folded in, like those of `zoo_gpu.source`.
With components w_i, [P, Q] each, a program computes TP elements of the output, y_k = sum_ij A[i, j, k] w_i x_j. One row is
multiplied and summed, up to `MOST_ROWS` rows are padded to `MOST_ROWS` and multiplied by tensor cores.
"""

from functools import lru_cache
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from zoo.kernels import Geometry, Kernel, Operand, Work
from zoo.kernels.assembly import entries
from zoo.kernels.base import Call
from zoo_gpu.assembly import FUSED, input_precision, is_interpreted, is_recent, missing, multiplies, on_device

MOST_ROWS = 16
MOST_DIMENSIONS = 8
MOST_COEFFICIENTS = 64  # of a learned product, which are kept in registers
ONE_ROW = {"TP": 8, "TQ": 128, "num_warps": 8}  # fastest of those tried on an H100
MORE_ROWS = {"TP": 16, "TQ": 128, "num_warps": 2, "num_stages": 4}  # not measured; each warp has 16 x 8 of the 16 x 16 results
INTERPRETED = {"TP": 32, "TQ": 32}


class ThinTriton(Kernel):
    """All products of components, for up to 16 rows without a gradient."""

    name = "thin_triton"

    def can(self, work: Work) -> bool:
        """Return whether the kernel supports the product."""
        is_row = 0 < work.rows <= MOST_ROWS and not (work.training or work.convolution)
        is_short = work.inp.n <= MOST_DIMENSIONS and (not work.learned or work.m * work.inp.n**2 <= MOST_COEFFICIENTS)
        fits = work.m * work.out.elements * work.inp.elements < 2**31  # offsets are 32-bit numbers
        if not (is_row and is_short and fits and multiplies(work.dtype)) or missing():
            return False
        return is_interpreted() or (work.device == "cuda" and is_recent(torch.device("cuda")))

    def cost(self, work: Work) -> float:
        """Return 0: reading the components once is faster than anything that reads more."""
        return 0.0

    def missing(self) -> str | None:
        """Return why the kernel cannot run on this machine, or None."""
        return missing()

    def bind(self, weight: Operand, prepared: Any = None) -> Call | None:
        """Return a call of the kernel."""
        return lambda x, bias: multiply_rows(x, weight, bias)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any, geometry: Geometry | None) -> Tensor:
        """Multiply; a bias with a gradient is added by torch."""
        if bias is not None and bias.requires_grad and torch.is_grad_enabled():
            return multiply_rows(x, weight, None) + bias
        return multiply_rows(x, weight, bias)


def multiply_rows(x: Tensor, weight: Operand, bias: Tensor | None) -> Tensor:
    """Multiply up to `MOST_ROWS` rows and add a bias: [..., in] to [..., out], without gradients."""
    w, table, literal, out, inp = weight.part()
    rows = x.reshape(-1, inp.channels).contiguous()
    y = rows.new_empty(len(rows), out.channels)
    is_single = len(rows) == 1
    options = INTERPRETED if is_interpreted() else ONE_ROW if is_single else MORE_ROWS
    sizes = out.elements, inp.elements, out.width, inp.width, out.size, inp.size
    table = None if table is None else table.contiguous()
    grid = (-(-out.elements // options["TP"]),)
    with on_device(w.device):
        _kernel(literal, len(w), inp.n, is_single)[grid](
            w.contiguous(), rows, table, bias, y, len(rows), *sizes, **options, **FUSED
        )
    return y.view(*x.shape[:-1], out.channels)


ROWS = "w, x, a, bias, y, rows, P, Q, PW, QW, SO, SI, PRECISION: tl.constexpr, TP: tl.constexpr, TQ: tl.constexpr"

HEAD = f"""@triton.jit
def thin({ROWS}):
    p, q, r = tl.program_id(0) * TP + tl.arange(0, TP), tl.arange(0, TQ), tl.arange(0, {MOST_ROWS})
    size, in_channels, out_channels = P * Q, (Q // QW) * SI, (P // PW) * SO
    row = (p // PW) * SO + p % PW
"""

LOOP = """    for start in range(0, Q, TQ):
        c = start + q
        at, inside = p[:, None] * Q + c[None, :], (p < P)[:, None] & (c < Q)[None, :]
        column = (c // QW) * SI + c % QW
"""


@lru_cache(256)
def _kernel(literal: str, m: int, n: int, is_single: bool) -> Any:
    """Return the kernel of a product, see `zoo.algebras.literal`; empty if it is learned."""
    from zoo_gpu.source import compiled

    places = [(i, j, k) for i in range(m) for j in range(n) for k in range(n)]
    known = {(i, j, k): f"a{i}_{j}_{k}" for i, j, k in places}
    text = HEAD
    if literal:
        known = {(i, j, k): repr(a) for i, j, k, a in entries(literal)[2]}
    else:
        text += "".join(f"    {a} = tl.load(a + {at}).to(tl.float32)\n" for at, a in enumerate(known.values()))
    text += "".join(f"    s{k} = tl.zeros((TP, {'TQ' if is_single else MOST_ROWS}), tl.float32)\n" for k in range(n)) + LOOP
    for j in range(n):
        at, mask = f"column + {j} * QW", f"(c < Q) & ({j} * QW + c % QW < SI)"
        if not is_single:
            at, mask = f"({at})[:, None] + (r * in_channels)[None, :]", f"({mask})[:, None] & (r < rows)[None, :]"
        text += f"        x{j} = tl.load(x + {at}, mask={mask}, other=0.0).to(tl.float32)\n"
    text += "".join(f"        w{i} = tl.load(w + {i} * size + at, mask=inside, other=0.0)\n" for i in range(m))
    for k in range(n):
        for i in range(m):
            if terms := " + ".join(f"({known[i, j, k]}) * x{j}" for j in range(n) if (i, j, k) in known):
                text += f"        s{k} {_product(f'w{i}', terms, f's{k}', is_single)}\n"
    text += "".join(_store(k, is_single) for k in range(n))
    return compiled(text, f"thin_{sha256(text.encode()).hexdigest()[:16]}")


def _product(w: str, terms: str, total: str, is_single: bool) -> str:
    """Write adding the product of a component of the weight and a combination of those of x."""
    if is_single:
        return f"+= {w}.to(tl.float32) * ({terms})[None, :]"
    return f"= tl.dot({w}, ({terms}).to({w}.dtype), {total}, input_precision=PRECISION)"


def _store(k: int, is_single: bool) -> str:
    """Write adding the bias to component k of the output, and storing it."""
    place, mask = f"row + {k} * PW", f"(p < P) & ({k} * PW + p % PW < SO)"
    text = f"    t = tl.sum(s{k}, 1)\n" if is_single else f"    t = s{k}\n"
    text += f"    if bias is not None:\n        b = tl.load(bias + {place}, mask={mask}, other=0.0).to(tl.float32)\n"
    text += f"        t += b{'' if is_single else '[:, None]'}\n"
    if not is_single:
        place, mask = f"({place})[:, None] + (r * out_channels)[None, :]", f"({mask})[:, None] & (r < rows)[None, :]"
    return text + f"    tl.store(y + {place}, t.to(y.dtype.element_ty), mask={mask})\n"
