"""Style of all pictures: colours, axes, files, and number formats."""

import io
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any
from warnings import catch_warnings, filterwarnings

from zoo.checkpoint.manifest import number

REAL = "real"
"""The algebra of the baseline."""
GREY = "#4d4d4d"
PALETTE = ("#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#7a5195", "#0072b2")
"""Colours for any colour vision (Okabe and Ito 2008, with purple instead of yellow)."""
MARKERS = "os^DvP<>"


def colors_of(algebras: Iterable[str]) -> dict[str, str]:
    """Return the colour of each algebra: grey for the reals, else by its name, the same in all reports unless already taken."""
    colors = {REAL: GREY}
    for algebra in sorted(set(algebras) - {REAL}):
        start = int(sha256(algebra.encode()).hexdigest(), 16) % len(PALETTE)
        order = PALETTE[start:] + PALETTE[:start]
        colors[algebra] = next((color for color in order if color not in colors.values()), order[0])
    return colors


def pictures(name: str, draw: Callable[[], Any]) -> dict[str, bytes]:
    """Draw a picture and return it as PNG and SVG, the same bytes every time."""
    from matplotlib import rc_context

    style: Any = {"font.size": 9, "axes.linewidth": 0.6, "axes.edgecolor": "#888888", "text.parse_math": False}
    files = {}
    with catch_warnings(), rc_context({"svg.hashsalt": name, **style}):
        filterwarnings("ignore", "Glyph", UserWarning)  # a data set may have a name that the font lacks; the page shows it
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


def log_axis(axes: Any, which: str) -> None:
    """Scale the axis ``x`` or ``y`` logarithmically, with ticks at 1, 2 and 5; thousands are written as 1k."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

    thousands, axis = EngFormatter(sep=""), getattr(axes, f"{which}axis")
    getattr(axes, f"set_{which}scale")("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value) if value >= 1000 else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def percent_text(percent: float) -> str:
    """Format a percentage of weights with three digits.

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
