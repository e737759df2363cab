"""What a module with heads does with its matrices, read off their usual names."""

import math
from collections.abc import Iterator, Mapping

from torch import nn

from zoo.conversion.cuts import ATTENTION, Blocks

CONVERTIBLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.MultiheadAttention)

# How many vectors of one head the matrices of an attention module write side by side.
_WRITES = {"qkv": 3, "kv": 2, "qk": 2, "pwise": 3, "gate": 1}
_WRITES |= dict.fromkeys(("q", "k", "v", "q_proj", "k_proj", "v_proj", "wq", "wk", "wv", "query", "key", "value"), 1)
_VALUES = {"qkv", "kv", "pwise", "v", "v_proj", "wv", "value"}
_READS = {"proj", "out_proj", "o_proj", "output", "wo"}
# The strided convolution that shortens keys and values: residual stream in and out.
_PLAIN = {"sr"}
_HEADS = ("num_heads", "heads", "n_heads", "n_head", "nhead", "num_attention_heads")
_HEAD_SIZES = ("head_dim", "dim_head", "key_dim", "val_dim", "value_dim", "attention_head_size")


def is_attention(module: nn.Module) -> bool:
    """Whether a module has heads and cuts channels into them itself, instead of leaving that to a module inside it."""
    if _number(module, _HEADS) is None:
        return False
    inside = (m for m in module.modules() if m is not module and _number(m, _HEADS) is not None)
    return _cuts(module) or not any(_cuts(m) for m in inside)


def by_name(owner: nn.Module, own: str, inp: int, out: int) -> Blocks | None:
    """The blocks of a matrix of an attention module, by its name."""
    heads = _number(owner, _HEADS) or 1
    if own in _PLAIN:
        return 1, 1
    if own in _READS:
        blocks = _cut(owner, inp, heads, heads)
        return (blocks, 1) if blocks else None
    if own not in _WRITES or (own in _VALUES and _hands_out_heads(owner)):
        return None
    if "q" not in own and own != "gate":
        heads = _number(owner, ("num_kv_heads",)) or heads
    blocks = _cut(owner, out, heads, heads * _WRITES[own])
    return (1, blocks) if blocks else None


def _cut(owner: nn.Module, size: int, heads: int, parts: int) -> int | None:
    """Cut an axis into vectors of the size that the module tells (of several, the common divisor), or into equal ones."""
    told = [value for key in _HEAD_SIZES if (value := _number(owner, (key,))) is not None]
    unit = math.gcd(*told)
    if not told:
        return parts if size % parts == 0 else None
    return size // unit if size % (unit * heads) == 0 else None


def _hands_out_heads(owner: nn.Module) -> bool:
    """Whether the values leave the module in heads, for a reader who knows nothing of them."""
    return all(name in _WRITES for name, child in owner.named_children() if any(matrices(child)))


def _cuts(module: nn.Module) -> bool:
    names = {name for name, child in module.named_children() if any(matrices(child))}
    return isinstance(module, nn.MultiheadAttention) or bool(names & _WRITES.keys() - {"gate"}) or listed(ATTENTION, module)


def matrices(module: nn.Module) -> Iterator[nn.Module]:
    """Yield what mixes channels inside a module; depthwise and grouped convolutions keep them where they are."""
    return (m for m in module.modules() if isinstance(m, CONVERTIBLE) and getattr(m, "groups", 1) == 1)


def _number(module: nn.Module, keys: tuple[str, ...]) -> int | None:
    values = (getattr(module, key, None) for key in keys)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def kinds(module: nn.Module) -> list[str]:
    """The names of the class of a module and of those it derives from."""
    return [kind.__name__ for kind in type(module).__mro__]


def listed(table: Mapping[str, object], module: nn.Module) -> bool:
    """Whether a table knows the class of a module."""
    return any(kind in table for kind in kinds(module))
