"""What owns a matrix and cuts its channels into several vectors: attention into heads, gated units into branches."""

import re
from typing import Any, NamedTuple

from torch import nn

from zoo.conversion.cuts import ATTENTION, UNITS, Blocks, Rule
from zoo.conversion.heads import by_name, is_attention, kinds, listed, matrices

_GATED = re.compile(r"Gated|Gating|GLU|Glu")


class Part(NamedTuple):
    """What a matrix is to the module that owns it: its role if it is attention's, its blocks if they are known."""

    role: str | None = None
    blocks: Blocks | None = (1, 1)
    reason: str | None = None
    """Why the blocks are None."""


def part(name: str, module: nn.Module, modules: dict[str, nn.Module]) -> Part:
    """Find what a matrix is to the nearest attention module or gated unit above it, at most three levels up.

    Args:
        name: Where the matrix is.
        module: The matrix.
        modules: All modules of the network by their names.
    """
    parents, path = name.split(".")[:-1], name.split(".")
    for level in range(len(parents), max(-1, len(parents) - 3), -1):
        owner, own = modules[".".join(parents[:level])], path[level]
        for table, role in ((ATTENTION, "attention"), (UNITS, None)):
            rule = _rule(table, owner, own)
            if rule is not None:
                return _known(owner, own, module, role, rule)
        if is_attention(owner):
            return _known(owner, own, module, "attention", by_name)
        if listed(UNITS, owner) or listed(ATTENTION, owner):
            return _unknown(owner, own, "attention" if listed(ATTENTION, owner) else None)
        if level >= len(parents) - 1 and any(_GATED.search(kind) for kind in kinds(owner)):
            return Part() if _is_split(owner) else _unknown(owner, own, None)
    return Part()


def channels(module: nn.Module) -> tuple[int, int]:
    """The real input and output channels of a matrix."""
    if isinstance(module, nn.MultiheadAttention):
        return module.embed_dim, 3 * module.embed_dim
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    assert isinstance(module, nn.Conv1d | nn.Conv2d)
    return module.in_channels, module.out_channels


def _known(owner: nn.Module, own: str, module: nn.Module, role: str | None, rule: Any) -> Part:
    if isinstance(rule, str):
        return Part(role, None, rule)
    # Which of several matrices in a row reads or writes the heads is nowhere told.
    alone = len(list(matrices(getattr(owner, own)))) == 1 or rule(owner, own, *channels(module)) == (1, 1)
    blocks = rule(owner, own, *channels(module)) if alone else None
    grouped = blocks not in (None, (1, 1)) and getattr(module, "groups", 1) > 1
    return _unknown(owner, own, role) if blocks is None or grouped else Part(role, blocks)


def _unknown(owner: nn.Module, own: str, role: str | None) -> Part:
    return Part(role, None, f"the layout of {type(owner).__name__}.{own} is not known")


def _is_split(unit: nn.Module) -> bool:
    """Whether the branches of a gated unit have a matrix each, so that nothing is cut."""
    sizes = [channels(m) for m in matrices(unit)]
    for i, (hidden, _) in enumerate(sizes):
        branches = sizes[:i] + sizes[i + 1 :]
        if len(branches) > 1 and len(set(branches)) == 1 and branches[0][1] == hidden:
            return True
    return False


def _rule(table: dict[str, dict[str, Rule | str]], module: nn.Module, own: str) -> Rule | str | None:
    return next((table[kind][own] for kind in kinds(module) if own in table.get(kind, {})), None)
