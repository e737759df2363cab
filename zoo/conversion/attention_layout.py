"""Infer how modules of torch, timm and Hugging Face split the channels of a matrix into attention heads or gated branches.

The layout of a matrix is the number of vectors side by side on its input axis and on its output axis. It follows from the names
of the matrices in an attention module, or from the class of the module that owns the matrix; otherwise it is unknown and the
matrix stays real. The backbones of the zoo pass their layouts to `zoo.convert` instead.
"""

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from torch import nn

from zoo.conversion.torch_layers import channels, gates, is_matrix

Blocks = tuple[int, int]
Rule = Callable[[Any, str, int, int], Blocks | None]
"""Maps the owner of a matrix, its name there, and its input and output channels to the blocks; None if they are unknown."""

NUM_HEADS = ("num_heads", "heads", "n_heads", "n_head", "nhead", "num_attention_heads")
"""Names of the attribute with the number of attention heads."""
_NUM_KEY_HEADS = ("num_kv_heads", "num_key_value_heads")
_HEAD_SIZES = ("head_dim", "dim_head", "key_dim", "val_dim", "value_dim", "attention_head_size", "key_value_proj_dim")
# Matrices of attention modules by their usual names, and the number of vectors per head that each writes side by side.
_WRITERS = {"kv": 2, "qk": 2, "pwise": 3, "gate": 1}
_WRITERS |= dict.fromkeys(("qkv", "c_attn", "query_key_value", "qkv_proj", "Wqkv"), 3)
_WRITERS |= dict.fromkeys(("q", "q_proj", "q_lin", "wq", "query", "q_attn"), 1)
_WRITERS |= dict.fromkeys(("k", "k_proj", "k_lin", "wk", "key", "v", "v_proj", "v_lin", "wv", "value"), 1)
_VALUES = {"qkv", "kv", "pwise", "v", "v_proj", "v_lin", "wv", "value", "c_attn", "query_key_value", "qkv_proj", "Wqkv"}
_READERS = {"proj", "out_proj", "o_proj", "output", "wo", "Wo", "out_lin", "c_proj", "o", "dense"}
_STRIDED = "sr"  # a strided convolution that shortens keys and values; it reads and writes the residual stream
_GATED = re.compile(r"Gated|Gating|GLU|Glu")


class MatrixLayout(NamedTuple):
    """The role of a matrix of attention, and the vectors on its axes: None for an unknown layout, with a ``reason``."""

    role: str | None = None
    blocks: Blocks | None = (1, 1)
    reason: str | None = None


def matrix_layout(name: str, module: nn.Module, modules: dict[str, nn.Module]) -> MatrixLayout:
    """Infer the layout of a matrix from the nearest attention module or gated unit above it, at most three levels up."""
    if isinstance(module, nn.MultiheadAttention):
        return MatrixLayout("attention", (1, 3 * module.num_heads))
    if isinstance(module, nn.RNNBase):
        return MatrixLayout("recurrent", (1, gates(module)))
    path = name.split(".")
    depth = len(path) - 1
    for level in range(depth, max(-1, depth - 3), -1):
        owner, child = modules[".".join(path[:level])], path[level]
        rules_of_classes = _class_rules(owner)
        for role, rules in rules_of_classes:
            if child in rules:
                return _apply(rules[child], owner, child, module, role)
        if is_attention(owner):
            is_read = level > 0 and _reader(modules[".".join(path[: level - 1])], owner) is not None
            return _apply(partial(_blocks_by_name, is_read=is_read), owner, child, module, "attention")
        sibling = next((sibling for sibling in owner.children() if is_attention(sibling)), None)
        if sibling is not None and _reader(owner, sibling) == child:
            return _apply(_blocks_by_name, sibling, child, module, "attention")
        if rules_of_classes:
            return _unknown_layout(owner, child, rules_of_classes[0][0])
        if level >= depth - 1 and any(_GATED.search(kind.__name__) for kind in type(owner).__mro__):
            return MatrixLayout() if _has_separate_branches(owner) else _unknown_layout(owner, child, None)
    return MatrixLayout(None, (1, 2)) if path[-1] == "gate_up_proj" else MatrixLayout()


def is_attention(module: nn.Module) -> bool:
    """Return whether a module has heads and splits channels into them itself, not through a submodule."""
    if _size(module, NUM_HEADS) is None:
        return False
    submodules = (m for m in module.modules() if m is not module and _size(m, NUM_HEADS) is not None)
    return _splits_heads(module) or not any(_splits_heads(m) for m in submodules)


def vectors_written(owner: nn.Module, child: str) -> int:
    """Count the queries, keys and values of a head that a child of an attention module writes; 0 for other children."""
    if child == "in_proj" and isinstance(owner, nn.MultiheadAttention):
        return 3
    return _WRITERS.get(child, 0) if child not in ("gate", "pwise") and num_heads(owner) is not None else 0


def num_heads(module: nn.Module) -> int | None:
    """Return the number of attention heads by the attributes of a module, or None if it has none."""
    return _attribute(module, NUM_HEADS)


def _apply(rule: Rule | str, owner: nn.Module, child: str, module: nn.Module, role: str | None) -> MatrixLayout:
    """Return the layout from a rule; a string is the reason why the matrix stays real."""
    if isinstance(rule, str):
        return MatrixLayout(role, None, rule)
    blocks = rule(owner, child, *channels(module))
    # In a sequence of matrices it is unknown which one reads or writes the heads.
    is_sequence = len(list(_matrices(getattr(owner, child, module)))) > 1
    if blocks is None or (blocks != (1, 1) and (is_sequence or getattr(module, "groups", 1) > 1)):
        return _unknown_layout(owner, child, role)
    return MatrixLayout(role, blocks)


def _unknown_layout(owner: nn.Module, child: str, role: str | None) -> MatrixLayout:
    return MatrixLayout(role, None, f"the layout of {type(owner).__name__}.{child} is not known")


def _blocks_by_name(owner: nn.Module, child: str, inp: int, out: int, is_read: bool = False) -> Blocks | None:
    """Return the blocks of a matrix of attention; ``is_read`` if a known matrix outside the module reads the heads."""
    heads = _size(owner, NUM_HEADS) or 1
    if child == _STRIDED:
        return 1, 1
    if child in _READERS:
        blocks = _split(owner, inp, heads, heads)
        return (blocks, 1) if blocks else None
    if child not in _WRITERS or (child in _VALUES and not is_read and _returns_heads(owner)):
        return None
    if "q" not in child and child not in ("gate", "c_attn"):
        heads = _size(owner, _NUM_KEY_HEADS) or heads
    blocks = _split(owner, out, heads, heads * _WRITERS[child])
    return (1, blocks) if blocks else None


def _reader(parent: nn.Module, attention: nn.Module) -> str | None:
    """Return the name of a sibling of an attention module that reads its heads, such as BERT's ``output.dense``."""
    if not _returns_heads(attention):
        return None
    children = dict(parent.named_children())
    readers = [name for name in _READERS & children.keys() if len(list(_matrices(children[name]))) == 1]
    return readers[0] if len(readers) == 1 and sum(map(is_attention, children.values())) == 1 else None


def _split(owner: nn.Module, size: int, heads: int, parts: int) -> int | None:
    """Count the vectors of an axis: by the common divisor of the module's head sizes, or else equal parts."""
    sizes = [value for key in _HEAD_SIZES if (value := _attribute(owner, (key,))) is not None]
    if not sizes:
        return parts if size % parts == 0 else None
    unit = math.gcd(*sizes)
    return size // unit if size % (unit * heads) == 0 else None


def _returns_heads(owner: nn.Module) -> bool:
    """Return whether the output of a module is split into heads, because no matrix mixes them."""
    return all(name in _WRITERS for name, child in owner.named_children() if any(_matrices(child)))


def _splits_heads(module: nn.Module) -> bool:
    is_known = any(role == "attention" for role, _ in _class_rules(module))
    return isinstance(module, nn.MultiheadAttention) or _has_writers(module) or is_known


def _has_writers(module: nn.Module) -> bool:
    names = {name for name, child in module.named_children() if any(_matrices(child))}
    return bool(names & _WRITERS.keys() - {"gate"})


def _matrices(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the submodules that mix channels: matrices except depthwise and grouped convolutions."""
    return (m for m in module.modules() if is_matrix(m) and getattr(m, "groups", 1) == 1)


def _size(module: nn.Module, keys: tuple[str, ...]) -> int | None:
    """Return a size from the attributes of a module or, if it has matrices of attention, of its Hugging Face config."""
    value = _attribute(module, keys)
    return value if value is not None or not _has_writers(module) else _attribute(getattr(module, "config", None), keys)


def _attribute(module: object, keys: tuple[str, ...]) -> int | None:
    values = (getattr(module, key, None) for key in keys)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def _has_separate_branches(unit: nn.Module) -> bool:
    """Return whether each branch of a gated unit has its own matrix, so that no axis is split."""
    sizes = [channels(m) for m in _matrices(unit)]
    for i, (hidden, _) in enumerate(sizes):
        branches = sizes[:i] + sizes[i + 1 :]
        if len(branches) > 1 and len(set(branches)) == 1 and branches[0][1] == hidden:
            return True
    return False


def _writes_vectors(count: int) -> Rule:
    """The output consists of this number of vectors."""
    return lambda owner, child, inp, out: (1, count)


def _writes(size: Callable[[Any], int]) -> Rule:
    """The output consists of vectors of this size."""
    return lambda owner, child, inp, out: None if out % size(owner) else (1, out // size(owner))


def _reads(size: Callable[[Any], int]) -> Rule:
    """The input consists of vectors of this size."""
    return lambda owner, child, inp, out: None if inp % size(owner) else (inp // size(owner), 1)


def _class_rules(module: nn.Module) -> list[tuple[str | None, dict[str, Rule | str]]]:
    """Return the role and the rules of a module's class and its base classes in the table below."""
    return [_CLASS_RULES[kind.__name__] for kind in type(module).__mro__ if kind.__name__ in _CLASS_RULES]


_plain, _halves, _thirds = _writes_vectors(1), _writes_vectors(2), _writes_vectors(3)
_head_size: Callable[[Any], int] = attrgetter("head_dim")
_dim: Callable[[Any], int] = attrgetter("dim")
_key_value = _writes(lambda owner: math.gcd(owner.key_dim, owner.value_dim))  # all heads share one key and one value
_parallel: dict[str, Rule | str] = {"in_proj": _writes(_head_size)}
_parallel |= dict.fromkeys(("out_proj", "attn_out_proj", "mlp_out_proj"), _reads(_head_size))


def _branch_size(owner: Any) -> int:
    """Return the common divisor of the sizes of unequal branches."""
    return math.gcd(*owner.split_indices)


# Role and rules by class name. A matrix without a rule stays real, unless the class is also recognized as attention.
_CLASS_RULES: dict[str, tuple[str | None, dict[str, Rule | str]]] = {
    "ParallelScalingBlock": ("attention", _parallel),
    "DiffParallelScalingBlock": ("attention", _parallel),
    "MultiQueryAttention2d": ("attention", {"key": _key_value, "value": _key_value}),
    "ChannelAttentionV2": ("attention", {"qkv": _writes(_head_size), "proj": _reads(_head_size)}),
    "LiteMLA": ("attention", {"qkv": _writes(_dim), "proj": _reads(_dim)}),
    "SHMA": ("attention", {"q": _plain, "k": _plain, "v_gate": _halves, "proj": _plain}),
    "SHSA": ("attention", {"proj": _plain}),
    "LinearSelfAttention": ("attention", {"out_proj": _plain}),
    "AttentionPoolLatent": (None, {"mlp": _plain}),
    "GluMlp": (None, {"fc1": _halves, "fc2": _plain}),
    "ModernBertMLP": (None, {"Wi": _halves, "Wo": _plain}),
    "GatedMlp": (None, {"fc1": _writes(lambda owner: channels(owner.fc2)[0]), "fc2": _plain}),
    "SpatialGatingUnit": (None, {"proj": "its initialization is an identity, which new weights are not"}),
    "GatedConvBlock": (None, {"fc1": _writes(_branch_size), "fc2": _reads(_branch_size)}),
    "FocalModulation": (None, {"h": _plain, "proj": _plain}),
    "HSMSSD": (None, {"BCdt_proj": _thirds, "hz_proj": _halves, "out_proj": _plain}),
    "SelectiveKernelAttn": (None, {"fc_reduce": _plain, "fc_select": lambda owner, child, inp, out: (1, owner.num_paths)}),
    "SplitAttn": (None, {"fc1": _plain}),
    "BilinearAttnTransform": (None, {"conv1": _plain, "conv2": _plain}),
}
