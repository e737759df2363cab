"""The style of all pictures: colours, axes, ticks and files, and how percents and metrics are written."""

import io
import math
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any
from warnings import catch_warnings, filterwarnings

from zoo.checkpoint.card import number

REAL = "real"
"""The algebra that all others are compared with."""
GREY = "#4d4d4d"
PALETTE = ("#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#7a5195", "#0072b2")
"""Colours that people of any colour vision can tell apart (Okabe and Ito 2008, with a purple instead of yellow)."""
MOST_TICKS = 16
PERCENT_TITLE = "weights left, percent of the real network's prunable weights"


def colors_of(algebras: Iterable[str]) -> dict[str, str]:
    """Return the colour of each algebra; it has the same colour in all reports, unless two ask for the same one.

    The reals are grey. Any other algebra asks for the colour that its name hashes to, and takes the next free one.
    """
    colors = {REAL: GREY}
    for algebra in sorted(set(algebras) - {REAL}):
        start = int(sha256(algebra.encode()).hexdigest(), 16) % len(PALETTE)
        order = [PALETTE[(start + step) % len(PALETTE)] for step in range(len(PALETTE))]
        colors[algebra] = next((color for color in order if color not in colors.values()), order[0])
    return colors


def pictures(name: str, draw: Callable[[], Any]) -> dict[str, bytes]:
    """Draw a picture and return it as PNG and SVG, the same bytes every time."""
    from matplotlib import rc_context

    files = {}
    with (
        catch_warnings(),
        rc_context({"svg.hashsalt": name, "font.size": 9, "axes.linewidth": 0.6, "axes.edgecolor": "#888888"}),
    ):
        filterwarnings("ignore", "Glyph", UserWarning)  # in the name of a data set, say; the page shows it
        figure = draw()
        for kind, options in (("png", {"dpi": 150, "metadata": {"Software": None}}), ("svg", {"metadata": {"Date": None}})):
            picture = io.BytesIO()
            figure.savefig(picture, format=kind, **options)
            files[f"{name}.{kind}"] = picture.getvalue()
    return files


def plain_axes(axes: Any, grid: str = "both") -> None:
    """Draw a light grid, and no frame at the top and on the right."""
    axes.grid(axis=grid, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def log_axis(axes: Any, which: str, values: Sequence[float]) -> None:
    """Scale the axis ``x`` or ``y`` logarithmically, with ticks around some values; thousands are written as 1k."""
    from matplotlib.ticker import EngFormatter

    ticks = log_ticks(min(values), max(values))
    labels = [EngFormatter(sep="")(tick) if tick >= 1000 else f"{tick:g}" for tick in ticks]
    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_ticks(ticks, labels)
    axis.set_ticks([], minor=True)


def log_ticks(low: float, high: float) -> list[float]:
    """Return the ticks 1, 2, 5 times powers of ten that enclose a range; only powers for a long range.

    >>> log_ticks(1.5, 100)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    """
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks = [float(f"{factor}e{power}") for power in powers for factor in (1, 2, 5)]
    first = max(i for i, tick in enumerate(ticks) if tick <= low * (1 + 1e-9))
    last = min(i for i, tick in enumerate(ticks) if tick >= high * (1 - 1e-9))
    ticks = ticks[first : last + 1]
    if len(ticks) <= MOST_TICKS:
        return ticks
    tens = [tick for tick in ticks if math.log10(tick).is_integer()]
    return tens[:: -(-len(tens) // MOST_TICKS)]


def percent_text(percent: float) -> str:
    """Format a percent of weights with three digits.

    >>> percent_text(100), percent_text(5.184), percent_text(0.60466)
    ('100 %', '5.18 %', '0.605 %')
    """
    return f"{percent:.3g} %"


def plus_minus(mean: float, spread: float | None) -> str:
    """Format a metric with its spread over seeds.

    >>> plus_minus(0.97123, 0.0021), plus_minus(0.5, None), plus_minus(865.826, 47.7612)
    ('0.9712 ± 0.0021', '0.5000', '865.83 ± 47.76')
    """
    text = number(mean) if abs(mean) < 10 else f"{mean:.{2 if abs(mean) < 1000 else 0}f}"
    digits = ".2e" if "e" in text else f".{len(text.partition('.')[2])}f"
    return text if spread is None else f"{text} ± {spread:{digits}}"


def axis_title(metric: str, split: str) -> str:
    """Return the title of a metric's axis."""
    return f"{metric.replace('_', ' ')}, {'validation' if split == 'val' else split} split"
