"""What is known of particular classes, by their names and those of their subclasses: how they cut the channels of a matrix.

A rule takes the module, the name of the matrix in it and its real input and output channels, and returns the vectors that lie
side by side on either axis, or None if they are no whole elements. A text is the reason why the matrix stays real. A matrix
of a listed class that has no rule stays real, unless the class is an ordinary attention module otherwise.
"""

import math
from collections.abc import Callable
from typing import Any

Blocks = tuple[int, int]
Rule = Callable[[Any, str, int, int], Blocks | None]


def plain(owner: Any, own: str, inp: int, out: int) -> Blocks | None:
    """Nothing is cut."""
    return 1, 1


def thirds(owner: Any, own: str, inp: int, out: int) -> Blocks | None:
    """The output is cut into three."""
    return 1, 3


def halves(owner: Any, own: str, inp: int, out: int) -> Blocks | None:
    """The output is cut into two."""
    return 1, 2


def writes(size: Callable[[Any], int]) -> Rule:
    """The output is cut into vectors of this size."""
    return lambda owner, own, inp, out: None if out % size(owner) else (1, out // size(owner))


def reads(size: Callable[[Any], int]) -> Rule:
    """The input is put together of vectors of this size."""
    return lambda owner, own, inp, out: None if inp % size(owner) else (inp // size(owner), 1)


def head(owner: Any) -> int:
    """Channels of a head."""
    return int(owner.head_dim)


def single(owner: Any) -> int:
    """What a key and a value share when all heads read the same one."""
    return math.gcd(owner.key_dim, owner.value_dim)


def branch(owner: Any) -> int:
    """The largest vector that unequal branches are made of."""
    return math.gcd(*owner.split_indices)


def hidden(owner: Any) -> int:
    """What is left of the hidden channels after the gate."""
    down = owner.fc2
    return int(getattr(down, "in_features", None) or down.in_channels)


_SCALED: dict[str, Rule | str] = {"in_proj": writes(head)}
_SCALED |= dict.fromkeys(("out_proj", "attn_out_proj", "mlp_out_proj"), reads(head))

ATTENTION: dict[str, dict[str, Rule | str]] = {
    "ParallelScalingBlock": _SCALED,
    "DiffParallelScalingBlock": _SCALED,
    "MultiQueryAttention2d": {"key": writes(single), "value": writes(single)},
    "ChannelAttentionV2": {"qkv": writes(head), "proj": reads(head)},
    "LiteMLA": {"qkv": writes(lambda owner: owner.dim), "proj": reads(lambda owner: owner.dim)},
    "SHMA": {"q": plain, "k": plain, "v_gate": halves, "proj": plain},
    "SHSA": {"proj": plain},
    "LinearSelfAttention": {"out_proj": plain},
}

UNITS: dict[str, dict[str, Rule | str]] = {
    "AttentionPoolLatent": {"mlp": plain},
    "GluMlp": {"fc1": halves, "fc2": plain},
    "GatedMlp": {"fc1": writes(hidden), "fc2": plain},
    "SpatialGatingUnit": {"proj": "it starts as an identity, which new weights would not"},
    "GatedConvBlock": {"fc1": writes(branch), "fc2": reads(branch)},
    "FocalModulation": {"h": plain, "proj": plain},
    "HSMSSD": {"BCdt_proj": thirds, "hz_proj": halves, "out_proj": plain},
    "SelectiveKernelAttn": {"fc_reduce": plain, "fc_select": lambda owner, own, inp, out: (1, owner.num_paths)},
    "SplitAttn": {"fc1": plain},
    "BilinearAttnTransform": {"conv1": plain, "conv2": plain},
}
