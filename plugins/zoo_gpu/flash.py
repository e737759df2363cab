r"""Attention with the score ``hermitian`` on a GPU by an online softmax: nothing of size queries times keys is stored.

With z_k = q . K_k the weights are softmax(|z|), see `zoo.nn.scores.attend`. The kernels, written as text for the number n of
components, compute n products for a tile of scores, forward (Dao et al. 2022) and again for the gradients of the keys and
values, and of the queries. Dropout draws the same factors in each of them from a counter.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.kernels import Kernel, Work
from zoo_gpu.assembly import FUSED, input_precision, is_interpreted, is_recent, missing, multiplies, on_device

MOST_BYTES = 1024  # of a key in all components: two tiles of keys fit into the shared memory of a multiprocessor
MOST_CHANNELS = 128  # of a head
INTERPRETED = 16


class Flash(Kernel):
    """Hermitian attention; it multiplies by no weight."""

    name = "flash"

    def can(self, work: Work) -> bool:
        """Return False."""
        return False

    def missing(self) -> str | None:
        """Return why the kernel cannot run on this machine, or None."""
        return missing()

    def hermitian_attention(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, first: int | None, dropout: float, seed: int
    ) -> Tensor | None:
        """Average values, or return None for a dtype, size or device that the kernels do not support."""
        if not supports(q, keys, values):
            return None
        y: Tensor = _Attention.apply(q, keys, values, mask, first, dropout, seed)
        return y


def supports(q: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Return whether the kernels support these tensors."""
    if missing() or not (q.device.type == "cuda" or is_interpreted()) or not is_recent(q.device):
        return False
    is_typed = multiplies(q.dtype) and q.dtype == keys.dtype == values.dtype
    is_small = keys.shape[1] * width(q) * q.element_size() <= MOST_BYTES and width(q) <= MOST_CHANNELS
    return is_typed and is_small and width(values) <= MOST_CHANNELS and 0 not in (q.numel(), keys.numel(), values.numel())


def width(t: Tensor) -> int:
    """Return the channels of a tile: the next power of two, at least 16."""
    return max(16, 1 << (t.shape[-1] - 1).bit_length())


def tile(size: int) -> dict[str, int]:
    """Return the queries and keys of a tile of numbers of so many bytes."""
    return {"BL": 64, "BM": 32, "num_stages": 2} if size == 2 else {"BL": 32, "BM": 16, "num_stages": 1}


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *options: Any) -> Tensor:
        mask = None if mask is None else mask.contiguous().view(torch.uint8)
        y = values.new_empty(*q.shape[:2], values.shape[-1])
        logs = q.new_empty(q.shape[:2], dtype=torch.float32)
        launch(0, q.shape[1], (q, keys, values, mask), options, y, logs)
        ctx.save_for_backward(q, keys, values, mask, y, logs)
        ctx.options = options
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the queries, keys and values."""
        *inputs, y, logs = ctx.saved_tensors
        g, grads = g.contiguous(), [torch.empty_like(t) for t in inputs[:3]]
        mean = (g.float() * y).sum(-1)  # of the gradients of the weights
        launch(1, inputs[1].shape[2], inputs, ctx.options, g, logs, mean, *grads[1:])
        launch(2, inputs[0].shape[1], inputs, ctx.options, g, logs, mean, grads[0])
        return *grads, None, None, None, None


def launch(which: int, size: int, inputs: Any, options: Any, *others: Tensor) -> None:
    """Run a kernel for every tile of an axis of this size and every head."""
    q, keys, values, _ = inputs
    first, dropout, seed = options
    blocks = {"BL": INTERPRETED, "BM": INTERPRETED} if is_interpreted() else tile(q.element_size())
    constants = {"CAUSAL": first is not None, "DROPOUT": dropout > 0, "PRECISION": input_precision()}
    sizes = q.shape[1], keys.shape[2], q.shape[2], values.shape[2], 0 if first is None else first, float(dropout), seed
    grid = (len(q) * -(-size // blocks["BM" if which == 1 else "BL"]),)
    with on_device(q.device):
        _kernels(keys.shape[1])[which][grid](
            *inputs, *others, *sizes, **constants, **blocks, **FUSED, BC=width(q), BE=width(values)
        )


OPTIONS = (
    "L, M, C, E, first, dropout, seed, CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, "
    + ", ".join(f"{name}: tl.constexpr" for name in ("BL", "BM", "BC", "BE"))
)

HEAD = """@triton.jit(do_not_specialize=["seed"])
def {name}(q, keys, v, mask, {others}, {options}):
    c, e, tiles = tl.arange(0, BC), tl.arange(0, BE), tl.cdiv({size}, {tile})
    head, begin = (tl.program_id(0) // tiles).to(tl.int64), (tl.program_id(0) % tiles) * {tile}
    {index} = begin + tl.arange(0, {tile})
"""

# The keys that are visible from a tile of queries, and the first query that sees a tile of keys.
LAST = """    last = M
    if CAUSAL:
        last = tl.maximum(0, tl.minimum(M, first + begin + BL - 1))
"""
START = """    start = 0
    if CAUSAL:
        start = tl.maximum(0, begin - first + 1) // BL * BL
"""

DROPPED = """        if DROPOUT:
            kept = tl.rand(seed + head, row[:, None] * M + col[None, :]) >= dropout
            factors = tl.where(kept, 1.0 / (1.0 - dropout), 0.0)
"""


def _tile(where: str, length: str, size: str, head: str = "head") -> tuple[str, str]:
    """Write the offsets of a tile of rows, [B, channels], and the mask of those that exist."""
    channel = size.lower()
    place = f"({head} * {length} + {where}[:, None]) * {size} + {channel}[None, :]"
    return place, f"({where} < {length})[:, None] & ({channel} < {size})[None, :]"


def _read(name: str, pointer: str, *tile: str, indent: int = 8) -> str:
    place, mask = _tile(*tile)
    return f"{' ' * indent}{name} = tl.load({pointer} + {place}, mask={mask}, other=0.0)\n"


def _write(pointer: str, value: str, *tile: str) -> str:
    place, mask = _tile(*tile)
    return f"    tl.store({pointer} + {place}, ({value}).to({pointer}.dtype.element_ty), mask={mask})\n"


def _read_keys(n: int, indent: int = 8) -> str:
    return "".join(_read(f"k{k}", "keys", "col", "M", "C", f"(head * {n} + {k})", indent=indent) for k in range(n))


def _scores(n: int) -> str:
    """Write the products z, their norm and which of them are visible, [BL, BM]."""
    text = "".join(f"        z{k} = tl.dot(qt, tl.trans(k{k}), input_precision=PRECISION)\n" for k in range(n))
    text += f"        norm, seen = tl.sqrt({' + '.join(f'z{k} * z{k}' for k in range(n))}), (col < M)[None, :]\n"
    text += "        if CAUSAL:\n            seen = seen & (col[None, :] < first + row[:, None])\n"
    text += "        if mask is not None:\n"
    return text + "            seen = seen & (tl.load(mask + head * M + col, mask=col < M, other=0) != 0)[None, :]\n" + DROPPED


def _forward(n: int) -> str:
    text = HEAD.format(name="forward", others="y, logs", options=OPTIONS, size="L", tile="BL", index="row")
    text += _read("qt", "q", "row", "L", "C", indent=4) + LAST
    text += """    top, total = tl.full((BL,), float("-inf"), tl.float32), tl.zeros((BL,), tl.float32)
    sums = tl.zeros((BL, BE), tl.float32)
    for start in range(0, last, BM):
        col = start + tl.arange(0, BM)
"""
    text += _read_keys(n) + _scores(n) + _read("vt", "v", "col", "M", "E")
    return (
        text
        + """        norm = tl.where(seen, norm, float("-inf"))
        new = tl.maximum(top, tl.max(norm, 1))
        base = tl.where(new > float("-inf"), new, 0.0)
        p, scale = tl.exp(norm - base[:, None]), tl.exp(top - base)
        total, top = total * scale + tl.sum(p, 1), new
        if DROPOUT:
            p = p * factors
        sums = sums * scale[:, None] + tl.dot(p.to(vt.dtype), vt, input_precision=PRECISION)
    found = total > 0
    total = tl.where(found, total, 1.0)
    tl.store(logs + head * L + row, tl.where(found, top + tl.log(total), float("inf")), mask=row < L)
"""
        + _write("y", "sums / total[:, None]", "row", "L", "E")
    )


SOFTMAX = """        log = tl.load(logs + head * L + row, mask=row < L, other=float("inf"))
        average = tl.load(mean + head * L + row, mask=row < L, other=0.0)
        p = tl.where(seen, tl.exp(norm - log[:, None]), 0.0)
        gp = tl.dot(gt, tl.trans(vt), input_precision=PRECISION)
        dropped = p
        if DROPOUT:
            dropped, gp = p * factors, gp * factors
        gz = p * (gp - average[:, None]) / tl.maximum(norm, 1e-30)  # the gradient of a norm is zero at zero
"""


def _key_gradients(n: int) -> str:
    text = HEAD.format(name="of_keys", others="g, logs, mean, gk, gv", options=OPTIONS, size="M", tile="BM", index="col")
    text += _read_keys(n, indent=4) + _read("vt", "v", "col", "M", "E", indent=4) + "    sv = tl.zeros((BM, BE), tl.float32)\n"
    text += "".join(f"    s{k} = tl.zeros((BM, BC), tl.float32)\n" for k in range(n)) + START
    text += "    for at in range(start, L, BL):\n        row = at + tl.arange(0, BL)\n"
    text += _read("qt", "q", "row", "L", "C") + _read("gt", "g", "row", "L", "E") + _scores(n) + SOFTMAX
    text += "        sv += tl.dot(tl.trans(dropped.to(gt.dtype)), gt, input_precision=PRECISION)\n"
    product = "tl.dot(tl.trans((gz * z{0}).to(qt.dtype)), qt, input_precision=PRECISION)"
    text += "".join(f"        s{k} += {product.format(k)}\n" for k in range(n)) + _write("gv", "sv", "col", "M", "E")
    return text + "".join(_write("gk", f"s{k}", "col", "M", "C", f"(head * {n} + {k})") for k in range(n))


def _query_gradient(n: int) -> str:
    text = HEAD.format(name="of_queries", others="g, logs, mean, gq", options=OPTIONS, size="L", tile="BL", index="row")
    text += _read("qt", "q", "row", "L", "C", indent=4) + _read("gt", "g", "row", "L", "E", indent=4) + LAST
    text += (
        "    s = tl.zeros((BL, BC), tl.float32)\n    for start in range(0, last, BM):\n        col = start + tl.arange(0, BM)\n"
    )
    text += _read_keys(n) + _read("vt", "v", "col", "M", "E") + _scores(n) + SOFTMAX
    text += "".join(f"        s += tl.dot((gz * z{k}).to(qt.dtype), k{k}, input_precision=PRECISION)\n" for k in range(n))
    return text + _write("gq", "s", "row", "L", "C")


@lru_cache(32)
def _kernels(n: int) -> tuple[Any, Any, Any]:
    """Return the kernels of the result, of the gradients of keys and values, and of the gradient of the queries."""
    from zoo_gpu.source import compiled

    return tuple(
        compiled(write(n), f"flash_{n}_{which}") for which, write in enumerate((_forward, _key_gradients, _query_gradient))
    )
