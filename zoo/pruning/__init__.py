"""Lottery tickets: masks, the callback that trains with them and its rounds, and tickets on disk."""

from zoo.pruning.callback import LotteryTicket
from zoo.pruning.masks import Prunable, Pruning, prunable
from zoo.pruning.rounds import Round, lottery, rounds_until

__all__ = ["LotteryTicket", "Prunable", "Pruning", "Round", "lottery", "prunable", "rounds_until"]
