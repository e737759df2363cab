"""What a frontier says: the networks, one sentence for each algebra, and the picture of quality against weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from zoo_experiments.frontier_statistics import Difference, Point, at_equal_weights, at_equal_width, opponents

COLOURS = {
    "real": "#222222",
    "complex": "#7f6000",
    "quaternion": "#1f4e79",
    "octonion": "#c55a11",
    "phm-2": "#9bbb59",
    "phm-4": "#548235",
    "phm-5": "#00b0a0",
    "phm-8": "#7030a0",
    "phm-10": "#c000c0",
    "phm-16": "#808080",
}
MARKERS = {"real": "o", "complex": "v", "quaternion": "s", "octonion": "D", "phm-2": "<", "phm-4": "^", "phm-8": ">"}
UNITS = {"loss": "nats", "mse": "mean squared error"}


@dataclass(frozen=True)
class Frontier:
    """One measured task.

    Attributes:
        name: Name of its file.
        config: Content of that file.
        rows: Its finished runs, see `zoo_experiments.frontier.summarize`.
        points: Its networks, smallest first.
    """

    name: str
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    points: list[Point]

    @property
    def metric(self) -> str:
        """The test figure."""
        return str(self.rows[0]["metric"])

    @property
    def lower(self) -> bool:
        """Whether a lower figure is better."""
        return bool(self.rows[0]["mode"] == "min")

    @property
    def real(self) -> list[Point]:
        """The real networks."""
        return [point for point in self.points if point.algebra == "real"]

    @property
    def algebras(self) -> dict[str, list[Point]]:
        """The other networks by algebra, in the order of the configuration."""
        names = dict.fromkeys(net["algebra"] for net in self.config["axes"]["net"].values())
        found = {name: [point for point in self.points if point.algebra == name] for name in names if name != "real"}
        return {name: nets for name, nets in found.items() if nets}

    def twins(self, nets: Iterable[Point]) -> list[tuple[Point, Point]]:
        """Pair networks with the real networks of the same backbone."""
        backbones = {name: net["backbone"] for name, net in self.config["axes"]["net"].items()}
        real = {backbones[point.net]: point for point in self.real}
        return [(point, real[backbones[point.net]]) for point in nets if backbones[point.net] in real]

    def equal_weights(self, algebra: str) -> Difference | None:
        """Compare an algebra with real networks of the same number of weights."""
        return at_equal_weights(self.algebras[algebra], self.real, self.lower)

    def equal_width(self, algebra: str) -> Difference | None:
        """Compare an algebra with real networks of the same widths."""
        return at_equal_width(self.twins(self.algebras[algebra]), self.lower)


def sentence(frontier: Frontier, algebra: str) -> str:
    """Say whether an algebra is ahead of, behind, or not told apart from real networks of the same number of weights."""
    inside = [point for point in frontier.algebras[algebra] if opponents(point.weights, frontier.real)]
    names = ", ".join(point.net for point in inside if len(point.values) > 1)
    found = frontier.equal_weights(algebra)
    if found is None:
        reason = "one seed" if inside else "no real networks around its sizes"
        return f"**{algebra}**: not compared at equal weights, {reason}."
    return f"**{algebra}**: {found.verdict} at equal weights, {text_of(found)} {frontier.metric} ({names})."


def text_of(found: Difference) -> str:
    """Write a difference with its interval."""
    digits = 4 if max(abs(found.low), abs(found.high)) < 0.1 else 3
    return f"{found.estimate:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"


def draw(frontier: Frontier, path: Path) -> None:
    """Draw test figures against weights with error bars, a line for each algebra."""
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for algebra, nets in {"real": frontier.real, **frontier.algebras}.items():
        axes.errorbar(
            [point.weights for point in nets],
            [point.mean for point in nets],
            yerr=[point.interval or 0.0 for point in nets],
            color=COLOURS.get(algebra, "#7030a0"),
            marker=MARKERS.get(algebra, "x"),
            linewidth=2.2 if algebra == "real" else 1.3,
            markersize=5,
            capsize=3,
            elinewidth=1,
            label=algebra,
        )
    axes.set_xscale("log")
    style(axes, frontier)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def style(axes: Axes, frontier: Frontier) -> None:
    """Label the axes and set a quiet grid."""
    axes.set_xlabel(f"weights{' outside of word tables' if frontier.points[0].weights != frontier.points[0].total else ''}")
    unit = f", {UNITS[frontier.metric]}" if frontier.metric in UNITS else ""
    axes.set_ylabel(f"test {frontier.metric}{unit} ({'lower' if frontier.lower else 'higher'} is better)")
    sizes = sorted(point.weights for point in frontier.points)
    ticks = [size for size in (m * 10**e for e in range(1, 9) for m in (1, 2, 5)) if sizes[0] * 0.9 <= size <= sizes[-1] * 1.1]
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if max(point.mean for point in frontier.points) > 50 * min(point.mean for point in frontier.points) > 0:
        axes.set_yscale("log")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def given_rate(frontier: Frontier, point: Point) -> str:
    """Return the rate of a network that the configuration gives."""
    options = frontier.config["base"].get("optimizer", {}) | frontier.config["axes"]["net"][point.net].get("optimizer", {})
    return f"{options['lr']:g}" if "lr" in options else "default"


def network_rows(frontier: Frontier) -> list[list[str]]:
    """Write a line for each network."""
    rows = []
    for point in frontier.points:
        half = "" if point.interval is None else f" ± {point.interval:.4f}"
        tried = f"{point.lr:g} of {point.rates[0]:g} to {point.rates[-1]:g}" if point.rates else given_rate(frontier, point)
        edge = " (edge)" if point.rates and len(point.rates) > 1 and point.lr in (point.rates[0], point.rates[-1]) else ""
        share = [] if point.weights == point.total else [f"{1 - point.weights / point.total:.0%}"]
        rows.append(
            [
                point.net,
                f"{point.weights:,}",
                *share,
                tried + edge,
                f"{point.mean:.4f}{half}",
                str(len(point.values)),
                f"{point.seconds:.0f}",
            ]
        )
    return rows
