"""Lottery tickets (masks, pruning schedules and a Lightning callback) and structured pruning."""

from zoo.pruning.callback import LotteryTicket, Round, lottery
from zoo.pruning.masks import Prunable, Pruning, prunable
from zoo.pruning.schedule import ConstantRate, CubicSparsity, PruningSchedule, rounds_until
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
    "lottery",
    "prunable",
    "prune_structure",
    "rounds_until",
]
