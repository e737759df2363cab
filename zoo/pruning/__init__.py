"""Lottery tickets (masks, pruning schedules and a Lightning callback) and structured pruning."""

from zoo.pruning.callback import (
    ConstantRate,
    CubicSparsity,
    LotteryTicket,
    PruningSchedule,
    Round,
    iterate_rounds,
    rounds_until,
)
from zoo.pruning.masks import Prunable, Pruning, prunable
from zoo.pruning.structured import Cut, prune_structure

__all__ = [
    "ConstantRate",
    "CubicSparsity",
    "Cut",
    "LotteryTicket",
    "Prunable",
    "Pruning",
    "PruningSchedule",
    "Round",
    "iterate_rounds",
    "prunable",
    "prune_structure",
    "rounds_until",
]
