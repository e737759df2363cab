"""Pruning schedules: the share of the surviving weights that each round prunes."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from zoo import registry
from zoo.errors import InputError, check_rules

PruningSchedule = Callable[[int], float]
"""Return the share of the survivors that a round prunes, in [0, 1), from the number of the round, from 0."""
_MOST = 1000


@dataclass(frozen=True)
class ConstantRate:
    """Prune the same share in every round (Frankle and Carbin 2019).

    Args:
        rate: The share, in (0, 1).
    """

    rate: float

    def __post_init__(self) -> None:
        """Check the rate."""
        fine = isinstance(self.rate, float) and 0 < self.rate < 1
        check_rules((fine, f"rate={self.rate!r}: the share that a round prunes must be in (0, 1), such as 0.4"))

    def __call__(self, round: int) -> float:
        """Return the rate."""
        return self.rate


@dataclass(frozen=True)
class CubicSparsity:
    """Raise the sparsity to ``final``: s(t) = final (1 - (1 - t / rounds)^3) after t rounds (Zhu and Gupta 2017, Eq. 1).

    Args:
        final: Final share of pruned weights, in (0, 1).
        rounds: Rounds until then; later rounds prune nothing.

    Example:
        >>> schedule = CubicSparsity(final=0.9, rounds=3)
        >>> [round(schedule(number), 3) for number in range(4)]
        [0.633, 0.636, 0.25, 0.0]
    """

    final: float = 0.95
    rounds: int = 10

    def __post_init__(self) -> None:
        """Check the options."""
        check_rules(
            (0 < self.final < 1, f"final={self.final}: must be in (0, 1)"),
            (self.rounds >= 1, f"rounds={self.rounds}: must be 1 or more"),
        )

    def __call__(self, round: int) -> float:
        """Return the share of the survivors of a round that takes the sparsity from s(round) to s(round + 1)."""
        before, after = (self.final * (1 - (1 - min(t / self.rounds, 1.0)) ** 3) for t in (round, round + 1))
        return 1 - (1 - after) / (1 - before)


def pruning_schedule(rate: float | str | PruningSchedule) -> PruningSchedule:
    """Return the schedule of a constant rate or of a spec of the group ``zoo.schedules``; a callable is returned as it is."""
    if isinstance(rate, str):
        schedule: PruningSchedule = registry.create("zoo.schedules", rate)
        return schedule
    return rate if callable(rate) else ConstantRate(rate)


def rounds_until(share: float, rate: float | str | PruningSchedule) -> int:
    """Return the number of rounds after which at most this share of the weights is left, before rounding.

    Raises:
        InputError: If the share is not in (0, 1), or not reached within 1,000 rounds.

    Example:
        >>> rounds_until(0.01, 0.4), rounds_until(0.1, CubicSparsity(0.9, rounds=3))
        (10, 3)
    """
    schedule = pruning_schedule(rate)
    check_rules((isinstance(share, float) and 0 < share < 1, f"until={share!r}: the share of weights must be in (0, 1)"))
    left, rounds = Fraction(1), 0
    while left > Fraction(str(share)) + Fraction(1, 10**12):
        if rounds == _MOST:
            raise InputError(f"until={share}: the schedule does not reach this share within {_MOST} rounds")
        left *= 1 - Fraction(str(schedule(rounds)))
        rounds += 1
    return rounds
