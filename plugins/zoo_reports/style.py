"""How arms, percents and rounds look, in pictures and on the page alike."""

import math
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from zoo_reports.rows import REAL, Arm

GREY = "#4d4d4d"
PALETTE = ("#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#7a5195", "#0072b2")
"""Colours that people of any colour vision can tell apart (Okabe and Ito 2008, but for yellow, and a purple)."""
MARKERS = ("o", "s", "^", "D", "v", "P")
MOST_TICKS = 16
DASHES = {None: "-", "random": "--", "reinit": ":"}
"""The line style of each control."""


class Style(NamedTuple):
    """How an arm is drawn: colour by algebra, dashes by control, marker by algebra, run and control."""

    color: str
    dash: str
    marker: str


def styles(arms: Sequence[Arm]) -> dict[str, Style]:
    """Return the style of each arm by its label; an algebra has the same colour in all reports, unless two want one.

    The reals are grey. Any other algebra asks for the colour that its name gives, and takes the next free one.
    """
    algebras = list(dict.fromkeys(arm.algebra for arm in arms))
    colors = {REAL: GREY}
    for algebra in sorted(set(algebras) - {REAL}):
        wanted = int(sha256(algebra.encode()).hexdigest(), 16) % len(PALETTE)
        order = [PALETTE[(wanted + step) % len(PALETTE)] for step in range(len(PALETTE))]
        colors[algebra] = next((color for color in order if color not in colors.values()), order[0])
    seen: dict[tuple[str, str | None], int] = {}
    found = {}
    for arm in arms:
        again = seen[arm.algebra, arm.control] = seen.get((arm.algebra, arm.control), -1) + 1
        step = list(DASHES).index(arm.control) if arm.control in DASHES else len(DASHES)  # one point shows no dashes
        marker = MARKERS[(algebras.index(arm.algebra) + again + step) % len(MARKERS)]
        found[arm.label] = Style(colors[arm.algebra], DASHES.get(arm.control, "-."), marker)
    return found


def log_ticks(low: float, high: float) -> list[float]:
    """Return the ticks 1, 2, 5 times powers of ten within a range, and one beyond it at each end; of a long one powers alone.

    >>> log_ticks(1.5, 100)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    """
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks = [float(f"{factor}e{power}") for power in powers for factor in (1, 2, 5)]
    first = max(i for i, tick in enumerate(ticks) if tick <= low * (1 + 1e-9))
    last = min(i for i, tick in enumerate(ticks) if tick >= high * (1 - 1e-9))
    found = ticks[first : last + 1]
    if len(found) <= MOST_TICKS:
        return found
    tens = [tick for tick in found if math.log10(tick).is_integer()]
    return tens[:: -(-len(tens) // MOST_TICKS)]


def percent_text(percent: float) -> str:
    """Write a percent of weights with three digits.

    >>> percent_text(100), percent_text(5.184), percent_text(0.60466)
    ('100 %', '5.18 %', '0.605 %')
    """
    return f"{percent:.3g} %"


def chosen(rounds: Sequence[int], most: int = 5) -> list[int]:
    """Choose rounds for a row of panels: the first, the last, and some between.

    >>> chosen(range(11))
    [0, 2, 5, 8, 10]
    """
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[round(step * (len(rounds) - 1) / (most - 1))] for step in range(most)]


def axis_title(metric: str, split: str) -> str:
    """Name the axis of the metric."""
    return f"{metric.replace('_', ' ')}, {'validation' if split == 'val' else split} split"


PERCENT_TITLE = "weights left, percent of the real network's prunable weights"
