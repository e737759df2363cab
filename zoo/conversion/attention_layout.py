"""How modules of torch, timm and Hugging Face cut the channels of a matrix: attention into heads, gated units into branches.

The layout of a matrix is how many vectors lie side by side on its input and on its output axis. It is read off the names of the
matrices in an attention module, or looked up by the class of the module that owns the matrix. Where neither says it, the layout
is unknown and the matrix stays real.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from torch import nn

Blocks = tuple[int, int]
Rule = Callable[[Any, str, int, int], Blocks | None]
"""From the owner of a matrix, its name there, and its input and output channels, to the blocks; None if there are none."""

TORCH_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.MultiheadAttention)
_HEADS = ("num_heads", "heads", "n_heads", "n_head", "nhead", "num_attention_heads")
_KEY_HEADS = ("num_kv_heads", "num_key_value_heads")
_HEAD_SIZES = ("head_dim", "dim_head", "key_dim", "val_dim", "value_dim", "attention_head_size", "key_value_proj_dim")
# How many vectors of one head the matrices of an attention module write side by side, by their usual names.
_WRITERS = {"kv": 2, "qk": 2, "pwise": 3, "gate": 1} | dict.fromkeys(
    ("qkv", "c_attn", "query_key_value", "qkv_proj", "Wqkv"), 3
)
_WRITERS |= dict.fromkeys(("q", "q_proj", "q_lin", "wq", "query", "q_attn"), 1)
_WRITERS |= dict.fromkeys(("k", "k_proj", "k_lin", "wk", "key", "v", "v_proj", "v_lin", "wv", "value"), 1)
_VALUES = {"qkv", "kv", "pwise", "v", "v_proj", "v_lin", "wv", "value", "c_attn", "query_key_value", "qkv_proj", "Wqkv"}
_READERS = {"proj", "out_proj", "o_proj", "output", "wo", "Wo", "out_lin", "c_proj", "o", "dense"}
# The strided convolution that shortens keys and values: residual stream in and out.
_PLAIN = {"sr"}
_GATED = re.compile(r"Gated|Gating|GLU|Glu")


class MatrixLayout(NamedTuple):
    """The role of a matrix if it is attention's, and the vectors on its axes if they are known."""

    role: str | None = None
    blocks: Blocks | None = (1, 1)
    reason: str | None = None
    """Why the blocks are None."""


def is_conv1d_of_transformers(module: nn.Module) -> bool:
    """Whether a module is Hugging Face's Conv1D of GPT-2: a linear layer whose weight is [in, out]."""
    weight, outputs = getattr(module, "weight", None), getattr(module, "nf", None)
    named = type(module).__name__ == "Conv1D" and isinstance(weight, nn.Parameter)
    return named and list(weight.shape[1:]) == [outputs]  # type: ignore[union-attr]


def is_matrix(module: nn.Module) -> bool:
    """Whether `zoo.convert` knows a module as a matrix."""
    return isinstance(module, TORCH_LAYERS) or is_conv1d_of_transformers(module)


def channels(module: Any) -> tuple[int, int]:
    """Return the real input and output channels of a matrix."""
    if isinstance(module, nn.MultiheadAttention):
        return module.embed_dim, 3 * module.embed_dim
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return module.in_channels, module.out_channels
    inp, out = module.weight.shape
    return inp, out


def matrix_layout(name: str, module: nn.Module, modules: dict[str, nn.Module]) -> MatrixLayout:
    """Return the layout of a matrix, by the nearest attention module or gated unit above it, at most three levels up."""
    if isinstance(module, nn.MultiheadAttention):
        return MatrixLayout("attention", (1, 3 * module.num_heads))
    parents, path = name.split(".")[:-1], name.split(".")
    for level in range(len(parents), max(-1, len(parents) - 3), -1):
        owner, own = modules[".".join(parents[:level])], path[level]
        above = modules[".".join(parents[: level - 1])] if level else None
        for table, role in ((_ATTENTION, "attention"), (_UNITS, None)):
            rule = _rule(table, owner, own)
            if rule is not None:
                return _known(owner, own, module, role, rule)
        if is_attention(owner):
            return _known(owner, own, module, "attention", partial(_by_name, is_read=bool(_reader(above, owner))))
        heads = _attention_beside(owner, own)
        if heads is not None:
            return _known(heads, own, module, "attention", _by_name)
        if _is_listed(_UNITS, owner) or _is_listed(_ATTENTION, owner):
            return _unknown(owner, own, "attention" if _is_listed(_ATTENTION, owner) else None)
        if level >= len(parents) - 1 and any(_GATED.search(kind) for kind in _class_names(owner)):
            return MatrixLayout() if _has_separate_branches(owner) else _unknown(owner, own, None)
    return MatrixLayout(None, (1, 2)) if path[-1] == "gate_up_proj" else MatrixLayout()


def is_attention(module: nn.Module) -> bool:
    """Whether a module has heads and cuts channels into them itself, instead of leaving that to a module inside it."""
    if _number(module, _HEADS) is None:
        return False
    inside = (m for m in module.modules() if m is not module and _number(m, _HEADS) is not None)
    return _cuts(module) or not any(_cuts(m) for m in inside)


def vectors_written(owner: nn.Module, own: str) -> int:
    """Count the queries, keys and values of a head that a child of an attention module writes; 0 if it is no such matrix."""
    if own == "in_proj" and isinstance(owner, nn.MultiheadAttention):
        return 3
    return _WRITERS.get(own, 0) if own not in ("gate", "pwise") and _own_number(owner, _HEADS) is not None else 0


def _known(owner: Any, own: str, module: nn.Module, role: str | None, rule: Rule | str) -> MatrixLayout:
    if isinstance(rule, str):
        return MatrixLayout(role, None, rule)
    # Which of several matrices in a row reads or writes the heads is nowhere told.
    inside = getattr(owner, own, module)
    alone = len(list(_matrices(inside))) <= 1 or rule(owner, own, *channels(module)) == (1, 1)
    blocks = rule(owner, own, *channels(module)) if alone else None
    grouped = blocks not in (None, (1, 1)) and getattr(module, "groups", 1) > 1
    return _unknown(owner, own, role) if blocks is None or grouped else MatrixLayout(role, blocks)


def _unknown(owner: nn.Module, own: str, role: str | None) -> MatrixLayout:
    return MatrixLayout(role, None, f"the layout of {type(owner).__name__}.{own} is not known")


def _by_name(owner: nn.Module, own: str, inp: int, out: int, is_read: bool = False) -> Blocks | None:
    """Return the blocks of a matrix of an attention module by its name; ``is_read``: by a known matrix outside the module."""
    heads = _number(owner, _HEADS) or 1
    if own in _PLAIN:
        return 1, 1
    if own in _READERS:
        blocks = _cut(owner, inp, heads, heads)
        return (blocks, 1) if blocks else None
    if own not in _WRITERS or (own in _VALUES and not is_read and _hands_out_heads(owner)):
        return None
    if "q" not in own and own not in ("gate", "c_attn"):
        heads = _number(owner, _KEY_HEADS) or heads
    blocks = _cut(owner, out, heads, heads * _WRITERS[own])
    return (1, blocks) if blocks else None


def _reader(above: nn.Module | None, attention: nn.Module) -> str | None:
    """Name the matrix beside an attention module that reads its heads: BERT's ``output.dense`` beside ``self``."""
    if above is None or not _hands_out_heads(attention):
        return None
    children = dict(above.named_children())
    readers = [name for name in _READERS & children.keys() if len(list(_matrices(children[name]))) == 1]
    return readers[0] if len(readers) == 1 and sum(is_attention(child) for child in children.values()) == 1 else None


def _attention_beside(owner: nn.Module, own: str) -> nn.Module | None:
    """Return the attention module beside a matrix if the matrix reads its heads."""
    found = next((child for child in owner.children() if is_attention(child)), None)
    return found if found is not None and _reader(owner, found) == own else None


def _cut(owner: nn.Module, size: int, heads: int, parts: int) -> int | None:
    """Cut an axis into vectors of the size that the module tells (of several, the common divisor), or into equal ones."""
    told = [value for key in _HEAD_SIZES if (value := _own_number(owner, (key,))) is not None]
    unit = math.gcd(*told)
    if not told:
        return parts if size % parts == 0 else None
    return size // unit if size % (unit * heads) == 0 else None


def _hands_out_heads(owner: nn.Module) -> bool:
    """Whether the values leave the module in heads, for a reader who knows nothing of them."""
    return all(name in _WRITERS for name, child in owner.named_children() if any(_matrices(child)))


def _cuts(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention) or _has_writers(module) or _is_listed(_ATTENTION, module)


def _has_writers(module: nn.Module) -> bool:
    names = {name for name, child in module.named_children() if any(_matrices(child))}
    return bool(names & _WRITERS.keys() - {"gate"})


def _matrices(module: nn.Module) -> Iterator[nn.Module]:
    """Yield what mixes channels inside a module; depthwise and grouped convolutions keep them where they are."""
    return (m for m in module.modules() if is_matrix(m) and getattr(m, "groups", 1) == 1)


def _number(module: nn.Module, keys: tuple[str, ...]) -> int | None:
    """Return what a module says of itself, or, if it has matrices of attention, its Hugging Face configuration."""
    own = _own_number(module, keys)
    if own is not None or not _has_writers(module):
        return own
    return _own_number(getattr(module, "config", None), keys)


def _own_number(module: object, keys: tuple[str, ...]) -> int | None:
    values = (getattr(module, key, None) for key in keys)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def _has_separate_branches(unit: nn.Module) -> bool:
    """Whether the branches of a gated unit have a matrix each, so that nothing is cut."""
    sizes = [channels(m) for m in _matrices(unit)]
    for i, (hidden, _) in enumerate(sizes):
        branches = sizes[:i] + sizes[i + 1 :]
        if len(branches) > 1 and len(set(branches)) == 1 and branches[0][1] == hidden:
            return True
    return False


def _class_names(module: nn.Module) -> list[str]:
    """Name the class of a module and those it derives from."""
    return [kind.__name__ for kind in type(module).__mro__]


def _is_listed(table: Mapping[str, object], module: nn.Module) -> bool:
    return any(kind in table for kind in _class_names(module))


def _rule(table: Mapping[str, Mapping[str, Rule | str]], module: nn.Module, own: str) -> Rule | str | None:
    return next((table[kind][own] for kind in _class_names(module) if own in table.get(kind, {})), None)


# What is known of particular classes, by their names and those of their subclasses. A text is the reason why a matrix stays
# real. A matrix of a listed class that has no rule stays real, unless the class is an ordinary attention module otherwise.


def _parts(blocks: int) -> Rule:
    """The output holds so many vectors side by side, whatever its size."""
    return lambda owner, own, inp, out: (1, blocks)


def _writes(size: Callable[[Any], int]) -> Rule:
    """The output is cut into vectors of this size."""
    return lambda owner, own, inp, out: None if out % size(owner) else (1, out // size(owner))


def _reads(size: Callable[[Any], int]) -> Rule:
    """The input is put together of vectors of this size."""
    return lambda owner, own, inp, out: None if inp % size(owner) else (inp // size(owner), 1)


_plain, _halves, _thirds = _parts(1), _parts(2), _parts(3)
_head_size: Callable[[Any], int] = attrgetter("head_dim")


def _key_and_value_size(owner: Any) -> int:
    """What a key and a value share when all heads read the same one."""
    return math.gcd(owner.key_dim, owner.value_dim)


def _branch_size(owner: Any) -> int:
    """The largest vector that unequal branches are made of."""
    return math.gcd(*owner.split_indices)


_SCALED: dict[str, Rule | str] = {"in_proj": _writes(_head_size)}
_SCALED |= dict.fromkeys(("out_proj", "attn_out_proj", "mlp_out_proj"), _reads(_head_size))

_ATTENTION: dict[str, dict[str, Rule | str]] = {
    "ParallelScalingBlock": _SCALED,
    "DiffParallelScalingBlock": _SCALED,
    "MultiQueryAttention2d": {"key": _writes(_key_and_value_size), "value": _writes(_key_and_value_size)},
    "ChannelAttentionV2": {"qkv": _writes(_head_size), "proj": _reads(_head_size)},
    "LiteMLA": {"qkv": _writes(lambda owner: owner.dim), "proj": _reads(lambda owner: owner.dim)},
    "SHMA": {"q": _plain, "k": _plain, "v_gate": _halves, "proj": _plain},
    "SHSA": {"proj": _plain},
    "LinearSelfAttention": {"out_proj": _plain},
}

_UNITS: dict[str, dict[str, Rule | str]] = {
    "AttentionPoolLatent": {"mlp": _plain},
    "GluMlp": {"fc1": _halves, "fc2": _plain},
    "ModernBertMLP": {"Wi": _halves, "Wo": _plain},
    "GatedMlp": {"fc1": _writes(lambda owner: channels(owner.fc2)[0]), "fc2": _plain},
    "SpatialGatingUnit": {"proj": "it starts as an identity, which new weights would not"},
    "GatedConvBlock": {"fc1": _writes(_branch_size), "fc2": _reads(_branch_size)},
    "FocalModulation": {"h": _plain, "proj": _plain},
    "HSMSSD": {"BCdt_proj": _thirds, "hz_proj": _halves, "out_proj": _plain},
    "SelectiveKernelAttn": {"fc_reduce": _plain, "fc_select": lambda owner, own, inp, out: (1, owner.num_paths)},
    "SplitAttn": {"fc1": _plain},
    "BilinearAttnTransform": {"conv1": _plain, "conv2": _plain},
}
