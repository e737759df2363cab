"""Write docs/frontier.md and its pictures from the measured frontiers: ``python -m benchmarks.frontier``."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks import frontier_rates
from benchmarks.frontier_statistics import Difference, Point, at_equal_weights, at_equal_width, opponents, points
from benchmarks.machine import short

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs" / "frontier"
RESULTS = ROOT / "benchmarks" / "results" / "frontier"
PAGE = ROOT / "docs" / "frontier.md"
IMAGES = ROOT / "docs" / "images"
ORDER = (
    "shakespeare",
    "shakespeare_4000",
    "hamilton",
    "linear_map",
    "trec_lstm",
    "trec_transformer",
    "sst_lstm",
    "sst_transformer",
)
"""The order of the sections; further files follow by name."""
RATES = "shakespeare"
"""The frontier whose learning rates are shown."""
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
HEAD = """# Quality at equal weights

Is a network over an algebra better than a smaller real network? Each picture shows the test figure against the number of
weights: real networks of several widths and networks over algebras, every network at its own best learning rate. Made by
`python -m benchmarks.frontier` from `benchmarks/results/frontier`; do not edit.

- **Learning rate.** One seed searches a grid with factors of 2, extended until the best rate lies inside the grid. Validation
  chooses the rate and the epoch; the test split is never used to choose.
- **Seeds.** The best rate is repeated with further seeds. The seed of the search is one of them, for every network.
- **Equal weights.** The real networks are interpolated linearly in the logarithm of the number of weights, between the two
  widths around the network's size. Networks outside of the real widths are drawn, but not compared; up to 5 % beyond, they are
  compared with the outermost real network.
- **Intervals** are 95 % intervals by Student's t over seeds; differences use the degrees of freedom of Welch and Satterthwaite.
  They do not contain the error of the test set, which all networks share. They are not corrected for the number of comparisons:
  of twenty equal pairs, about one is called different.
- **Not decided** is not "equal": the interval contains zero, and says how large a difference is still possible.
"""


@dataclass(frozen=True)
class Frontier:
    """One measured task.

    Attributes:
        name: Name of its file in configs/frontier.
        config: Content of that file.
        comment: What the file says of itself.
        stored: Content of its file of results.
        points: Its networks, smallest first.
    """

    name: str
    config: dict[str, Any]
    comment: str
    stored: dict[str, Any]
    points: list[Point]

    @property
    def metric(self) -> str:
        """The test figure."""
        return str(self.stored["rows"][0]["metric"])

    @property
    def lower(self) -> bool:
        """Whether a lower figure is better."""
        return bool(self.stored["rows"][0]["mode"] == "min")

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


def read() -> list[Frontier]:
    """Read all measured frontiers in the order of the page."""
    found = []
    for path in sorted(
        RESULTS.glob("*.json"), key=lambda path: (*([ORDER.index(path.stem)] if path.stem in ORDER else [99]), path.stem)
    ):
        text, stored = (CONFIGS / f"{path.stem}.yaml").read_text(encoding="utf-8"), json.loads(path.read_text(encoding="utf-8"))
        comment = " ".join(line.removeprefix("# ") for line in text.splitlines()[1:] if line.startswith("# "))
        config = yaml.safe_load(text)
        found.append(Frontier(path.stem, config, comment, stored, points(stored["rows"], int(config["axes"]["seed"][0]))))
    return found


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


def draw(frontier: Frontier, images: Path) -> str:
    """Draw test figures against weights with error bars, a line for each algebra, and return the file's name."""
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
    name = f"frontier_{frontier.name}.png"
    images.mkdir(parents=True, exist_ok=True)
    figure.savefig(images / name, metadata={"Software": None})
    return name


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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write a Markdown table with numbers to the right."""
    return [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}", *(f"| {' | '.join(row)} |" for row in rows), ""]


def given_rate(frontier: Frontier, point: Point) -> str:
    """Return the rate of a network that the configuration gives."""
    options = frontier.config["base"].get("optimizer", {}) | frontier.config["axes"]["net"][point.net].get("optimizer", {})
    return f"{options['lr']:g}"


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


def section(frontier: Frontier, images: Path) -> list[str]:
    """Write the section of a task."""
    where, stored = frontier.stored["machine"], frontier.stored
    tables = ["in word table"] if frontier.points[0].weights != frontier.points[0].total else []
    hours = sum(row["seconds"] for row in stored["rows"]) / 3600
    return [
        f"## {frontier.name.replace('_', ' ')}",
        "",
        frontier.comment,
        "",
        f"![{frontier.name}](images/{draw(frontier, images)})",
        "",
        *(f"- {sentence(frontier, algebra)}" for algebra in frontier.algebras),
        "",
        *table(
            ["network", "weights", *tables, "best rate", f"test {frontier.metric}", "seeds", "seconds a run"],
            network_rows(frontier),
        ),
        f"{len(stored['rows'])} runs, {hours:.1f} core-hours. {where['date']}, one thread of {where['processor']}, shared with "
        f"other work, so seconds are rough; torch {where['torch']}, commit {short(stored['commit'])}.",
        "",
    ]


def answers(frontiers: Iterable[Frontier]) -> list[str]:
    """Write one line for each task and algebra: the differences at equal weights and at equal width."""
    rows = []
    for frontier in frontiers:
        for algebra in frontier.algebras:
            weights, width = frontier.equal_weights(algebra), frontier.equal_width(algebra)
            cells = [text_of(found) if found else "-" for found in (weights, width)]
            rows.append(
                [
                    frontier.name.replace("_", " "),
                    algebra,
                    frontier.metric,
                    cells[0],
                    weights.verdict if weights else "-",
                    cells[1],
                ]
            )
    return table(["task", "algebra", "figure", "at equal weights", "verdict", "at equal width"], rows)


def not_run() -> list[str]:
    """List the configurations without results, and networks whose seeds are missing, with the commands that run them."""
    lines = []
    for path in sorted(CONFIGS.glob("*.yaml")):
        command = f"`python -m benchmarks.frontier configs/frontier/{path.name} --root DATA`"
        axes, results = yaml.safe_load(path.read_text(encoding="utf-8"))["axes"], RESULTS / path.name.replace(".yaml", ".json")
        if not results.exists():
            lines.append(f"- {path.stem.replace('_', ' ')}: not run; {command}.")
            continue
        found = {
            point.net: len(point.values)
            for point in points(json.loads(results.read_text(encoding="utf-8"))["rows"], axes["seed"][0])
        }
        missing = [net for net in axes["net"] if found.get(net, 0) < len(axes["seed"])]
        if missing:
            lines.append(f"- {path.stem.replace('_', ' ')}, some seeds of {', '.join(missing)}; {command}.")
    return lines


def write(page: Path = PAGE, images: Path = IMAGES) -> None:
    """Write the page and its pictures."""
    frontiers = read()
    missing = not_run()
    lines = [
        HEAD,
        "## The answer",
        "",
        "Positive differences favour the algebra, whatever the figure. In brackets, the 95 % interval.",
        "",
        *answers(frontiers),
        *(line for frontier in frontiers for line in section(frontier, images)),
        *(
            line
            for one in frontiers
            if one.name == RATES
            for line in frontier_rates.section(one.config, one.stored["rows"], images)
        ),
        *(["## Not run", "", *missing, ""] if missing else []),
    ]
    page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
