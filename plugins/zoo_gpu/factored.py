r"""Train by R products of elements on a GPU: one `torch.bmm` between kernels of Triton that only move bytes.

The factors of a fixed product are part of the code of a kernel; those of a learned one are read. See `zoo.kernels.factored`.
"""

import math
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.algebras import factor_literals
from zoo.kernels import Geometry, Kernel, Operand, Work
from zoo.kernels.base import Prepared, real_cost
from zoo.kernels.factored import Method, factored_linear, mix
from zoo_gpu.assembly import DTYPES, is_interpreted, is_recent, missing, on_device

MOST_TERMS = 256  # coefficients of a factor for which a kernel is compiled: octonions have 240, sedenions 1,952
LANES, INTERPRETED_LANES = 1024, 2**14  # elements of a program
VECTORS = (8, 4, 1)  # elements that are loaded and stored together; 8 are 16 bytes in bfloat16

# Measured on an H100 in bfloat16: with 16,384 rows from 4096 to 4096 channels, R = 8 products in one `torch.bmm` took .416 ms,
# the real product .75 ms.
MULTIPLY = 7.5e14  # operations per second of a product of 8192 x 8192 x 8192
COPY = 3.0e12  # bytes per second, read and written
PRODUCTS = 1.1  # time of R products to R / n^2 of the real product
FEWEST_ROWS = 8192  # in the networks that were faster
GAIN = 0.9  # largest predicted time, relative to the real layer, at which every measured layer was faster


class BatchedProducts(Kernel):
    """R products of elements instead of n^2, in one `torch.bmm`."""

    name = "bmm"
    casts = True
    keeps: ClassVar[bool] = False

    def can(self, work: Work) -> bool:
        """Return whether there are factors for which a kernel is compiled."""
        is_short = 0 < work.rank * work.inp.n <= MOST_TERMS
        return is_short and not work.convolution and work.dtype in DTYPES and (work.device == "cuda" or is_interpreted())

    def cost(self, work: Work) -> float:
        """Predict the time where it was measured to be less than that of the real layer, for any number of rows."""
        # Complex numbers (3 of 4 products), learned products, other dtypes and inference were not measured.
        n, rank = work.inp.n, work.rank
        is_measured = work.training and not work.learned and work.dtype == torch.bfloat16 and 2 * rank <= n * n
        if work.device != "cuda" or not is_measured or work.rows < FEWEST_ROWS or self.keeps:
            return math.inf
        inp, out = work.inp.channels, work.out.channels
        moved = 2 * (3 * inp + 2 * out) * (1 + rank / n) / COPY  # seconds for each row: three times x, twice y
        ratio = PRODUCTS * rank / n**2 + moved * MULTIPLY / (6 * inp * out)
        return ratio * real_cost(work) if ratio <= GAIN else math.inf

    def missing(self) -> str | None:
        """Return why the kernel cannot run on this machine, or None."""
        return missing()

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Prepared, geometry: Geometry | None) -> Tensor:
        """Multiply."""
        of_left, of_right, of_result = (partial(combine, text) for text in factor_literals(weight.algebra) or ("",) * 3)
        method = Method((of_left, of_right, of_result), self.keeps)
        return factored_linear(x, weight.components, weight.factors(), weight.out, weight.inp, bias, None, method)


class KeptProducts(BatchedProducts):
    """The same, saving the combinations of the input and the weight for the backward pass: faster, with more memory."""

    name = "bmm_keep"
    keeps = True


def combine(text: str, x: Tensor, factor: Tensor, y: Tensor, transposed: bool) -> None:
    """Combine components in one launch, see `zoo.kernels.factored.mix`, by a factor with this text, empty if it is learned."""
    if not (x.dtype in DTYPES and y.dtype in DTYPES and is_recent(x.device)):
        mix(x, factor, y, transposed)
        return
    x = x if x.stride(2) == 1 else x.contiguous()
    vectors, width = x.shape[1:]
    sizes = width, *x.stride()[:2], *y.stride()[:2]
    vector = 1 if is_interpreted() else next(v for v in VECTORS if not any(size % v for size in sizes))
    lanes, total = INTERPRETED_LANES if is_interpreted() else LANES, vectors * width
    arguments = (x, y, *(() if text else (factor.detach().contiguous(),)), total, *sizes)
    if total:
        kernel = combination(text or f"{len(factor)} {factor.shape[1]}", not text, transposed)
        with on_device(x.device):
            kernel[(-(-total // lanes),)](*arguments, V=vector, LANES=lanes)


@lru_cache(256)
def combination(text: str, learned: bool, transposed: bool) -> Any:
    """Return the kernel that combines components by a factor, see `zoo.algebras.factor_literals`, or by its transpose."""
    from zoo_gpu.source import compiled, weighted_sum

    words = text.split()
    rank, n, values = int(words[0]), int(words[1]), words[2:]
    rows = [[f"f{r}_{j}" if learned else values[r * n + j] for j in range(n)] for r in range(rank)]
    if transposed:
        rows = [list(column) for column in zip(*rows, strict=True)]
    code = "@triton.jit(do_not_specialize=['E', 'W', 'XJ', 'XV', 'YR', 'YV'])\n"
    code += f"def combine(x, y, {'f, ' * learned}E, W, XJ, XV, YR, YV, V: tl.constexpr, LANES: tl.constexpr):{HEAD}"
    if learned:
        code += "".join(f"    f{r}_{j} = tl.load(f + {r * n + j}).to(tl.float32)\n" for r in range(rank) for j in range(n))
    for j in range(len(rows[0])):
        code += f"    x{j}_ = tl.load(x + a + {j} * XJ, mask=inside, other=0.0).to(tl.float32)\n"
    for r, row in enumerate(rows):
        terms = [(value, f"x{j}_") for j, value in enumerate(row) if value not in ("0.0", "-0.0")]
        value = weighted_sum(terms) or "tl.zeros((LANES,), tl.float32)"
        code += f"    tl.store(y + b + {r} * YR, ({value}).to(y.dtype.element_ty), mask=inside)\n"
    return compiled(code, f"combine_{sha256(code.encode()).hexdigest()[:16]}")


# Triton cannot see that offsets are contiguous in runs of V, nor that V divides E: without the hints it moves single elements.
HEAD = """
    e = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    W, XJ, XV, YR, YV = W.to(tl.int64), XJ.to(tl.int64), XV.to(tl.int64), YR.to(tl.int64), YV.to(tl.int64)
    XJ, YR = tl.multiple_of(XJ, V), tl.multiple_of(YR, V)
    inside = tl.max_constancy(e < E, V)
    vector, column = e // W, e % W
    a = tl.max_contiguous(tl.multiple_of(vector * XV + column, V), V)
    b = tl.max_contiguous(tl.multiple_of(vector * YV + column, V), V)
"""
