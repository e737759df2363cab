"""Pruning schedules: the fraction of the surviving weights to prune in each round."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from zoo import registry
from zoo.errors import check_rules

PruningSchedule = Callable[[int], float]
"""Maps the number of a round, from 0, to the fraction of the survivors to prune, in [0, 1)."""
_MAX_ROUNDS = 1000


@dataclass(frozen=True)
class ConstantRate:
    """Prune the same fraction in every round (Frankle and Carbin 2019).

    Args:
        rate: The fraction, in (0, 1).
    """

    rate: float

    def __post_init__(self) -> None:
        """Check the rate."""
        is_rate = isinstance(self.rate, float) and 0 < self.rate < 1
        check_rules((is_rate, f"rate={self.rate!r}: the fraction to prune must be in (0, 1), such as 0.4"))

    def __call__(self, round: int) -> float:
        """Return the rate."""
        return self.rate


@dataclass(frozen=True)
class CubicSparsity:
    """Raise the sparsity to ``final``: s(t) = final (1 - (1 - t / rounds)^3) after t rounds (Zhu and Gupta 2017, Eq. 1).

    Args:
        final: Final sparsity, in (0, 1).
        rounds: Number of rounds to reach it; later rounds prune nothing.

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
        """Return the fraction of the survivors to prune, from s(round) to s(round + 1)."""
        before, after = (self.final * (1 - (1 - min(t / self.rounds, 1.0)) ** 3) for t in (round, round + 1))
        return 1 - (1 - after) / (1 - before)


def pruning_schedule(rate: float | str | PruningSchedule) -> PruningSchedule:
    """Return the schedule for a constant rate, a spec of the entry-point group ``zoo.schedules``, or a callable."""
    if isinstance(rate, str):
        schedule: PruningSchedule = registry.create("zoo.schedules", rate)
        return schedule
    return rate if callable(rate) else ConstantRate(rate)


def rounds_until(share: float, rate: float | str | PruningSchedule) -> int:
    """Return the number of rounds after which at most this fraction of the weights survives, without rounding.

    Raises:
        InputError: If the fraction is not in (0, 1), or not reached within 1,000 rounds.

    Example:
        >>> rounds_until(0.01, 0.4), rounds_until(0.1, CubicSparsity(0.9, rounds=3))
        (10, 3)
    """
    schedule = pruning_schedule(rate)
    check_rules((isinstance(share, float) and 0 < share < 1, f"until={share!r}: the fraction of weights must be in (0, 1)"))
    survivors, rounds = Fraction(1), 0
    while survivors > Fraction(str(share)) + Fraction(1, 10**12):
        check_rules((rounds < _MAX_ROUNDS, f"until={share}: not reached within {_MAX_ROUNDS} rounds of the schedule"))
        survivors *= 1 - Fraction(str(schedule(rounds)))
        rounds += 1
    return rounds
