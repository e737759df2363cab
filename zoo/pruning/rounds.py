"""The rounds of a lottery ticket."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lightning.pytorch import seed_everything

from zoo.errors import check_rules
from zoo.pruning.callback import LotteryTicket


class Round(NamedTuple):
    """A round that was trained.

    Attributes:
        number: From 0, in which nothing is pruned (unless by snip).
        survivors: Prunable weights that survive in it.
        weights: All prunable weights.
        result: What ``fit_one`` returned.
    """

    number: int
    survivors: int
    weights: int
    result: Any


def lottery(fit_one: Callable[[LotteryTicket], Any], ticket: LotteryTicket, rounds: int, *, seed: int = 0) -> Iterator[Round]:
    """Train and prune a ticket round after round: yields the dense round 0, then so many pruned ones.

    Before each round the seeds of Python, NumPy and torch are set again. Between two rounds the caller may save
    ``ticket.state_dict()``, with which the iteration goes on later in the right round, or stop iterating.

    Args:
        fit_one: Trains one round: builds module, data and a new Trainer with ``callbacks=[ticket]``, fits, and returns whatever
            the caller wants to see, such as metrics.
        ticket: The ticket.
        rounds: How often it is pruned.
        seed: The seed of every round.

    Raises:
        InputError: If ``rounds`` is negative.
    """
    check_rules((isinstance(rounds, int) and rounds >= 0, f"rounds={rounds!r}: use a whole number, 0 or more"))
    while ticket.round <= rounds:
        seed_everything(seed, workers=True, verbose=False)
        result = fit_one(ticket)
        yield Round(ticket.round, *ticket.count(), result)
        if ticket.round == rounds:
            return
        ticket.prune()
