"""Random propositional formulas and their truth tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

NAMES = "abcdef"
MOST = len(NAMES)  # 64 assignments: a truth table fits one machine word


@dataclass(frozen=True)
class Formula:
    """A formula over the variables a, b, c ...

    Attributes:
        text: Its tokens, parted by spaces; `not` binds more tightly than `and` and `or`, which never mix without parentheses.
        truth: Its truth table: bit i is its value if bit v of i is the value of variable v.
        joint: The connective that holds it together, `and` or `or`; none for a literal or a negation.
    """

    text: str
    truth: int
    joint: str = ""


def every(variables: int) -> int:
    """Return the truth table of what is always true.

    >>> bin(every(2))
    '0b1111'
    """
    return (1 << (1 << variables)) - 1


def formula(random: np.random.RandomState, variables: int, leaves: int) -> Formula:
    """Draw a formula.

    Args:
        random: Source of the draws.
        variables: How many variables there are to choose from.
        leaves: How many variables it mentions, with repetition.

    Example:
        >>> formula(np.random.RandomState(3), 4, 4).text
        'not ( ( not b and not d ) or ( b and not b ) )'
    """
    if leaves == 1:
        found = variable(_below(random, variables), variables)
        return _negated(found, variables) if _below(random, 2) else found
    left = 1 + _below(random, leaves - 1)
    parts = [formula(random, variables, count) for count in (left, leaves - left)]
    found = _joined("or" if _below(random, 2) else "and", *parts)
    return found if _below(random, 10) else _negated(found, variables)


@cache
def variable(number: int, variables: int) -> Formula:
    """Return one of so many variables."""
    return Formula(NAMES[number], sum(1 << world for world in range(1 << variables) if world >> number & 1))


def _negated(part: Formula, variables: int) -> Formula:
    return Formula(f"not ( {part.text} )" if part.joint else f"not {part.text}", part.truth ^ every(variables))


def _joined(joint: str, left: Formula, right: Formula) -> Formula:
    text = f" {joint} ".join(part.text if part.joint in ("", joint) else f"( {part.text} )" for part in (left, right))
    return Formula(text, left.truth & right.truth if joint == "and" else left.truth | right.truth, joint)


def _below(random: np.random.RandomState, limit: int) -> int:
    return int(random.random_sample() * limit)  # ten times as fast as `randint`
