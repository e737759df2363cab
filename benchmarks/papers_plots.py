"""Draw the curves that were kept of the papers' rows: docs/images/mlu_exact_match.png."""

from collections.abc import Iterable
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.papers_rows import Row

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLOURS = ("#1f4e79", "#c55a11", "#548235", "#7f6000", "#7030a0")


def draw_curves(rows: Iterable[Row], name: str, label: str, images: Path | None = None) -> Path | None:
    """Draw one line per row and seed: validation figure against steps, with the row's name at the end of its line.

    Args:
        rows: Rows; those without a curve are passed over.
        name: Of the file, without its ending.
        label: What the figure is.
        images: The folder; by default docs/images.

    Returns:
        The file, or None if no row has a curve.
    """
    kept = {row.name: [run["curve"] for run in row.runs if "curve" in run] for row in rows}
    kept = {row: curves for row, curves in kept.items() if curves}
    if not kept:
        return None
    figure = Figure(figsize=(7.2, 4.0), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for colour, (row, curves) in zip(COLOURS * len(kept), kept.items(), strict=False):
        for number, curve in enumerate(curves):
            steps, values = zip(*curve, strict=True)
            axes.plot(steps, values, color=colour, linewidth=1.6, label=None if number else row.replace("_", " "))
    axes.set_xlabel("steps")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path = (images or IMAGES) / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    return path
