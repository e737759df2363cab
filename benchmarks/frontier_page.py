"""Write docs/frontier.md and its pictures from the measured frontiers: ``python -m benchmarks.frontier``."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from zoo_reports.frontier import Frontier, draw, draw_costs, network_table, sentence, text_of
from zoo_reports.page import Table
from zoo_reports.statistics import Point, points
from zoo_reports.style import pictures

from benchmarks import frontier_rates
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
RATES = ("shakespeare", "shakespeare_mup")
"""The frontiers whose learning rates are shown, before and after scaling; the second one has no other section."""
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
class Measured(Frontier):
    """A frontier of this project.

    Attributes:
        comment: What its file says of it.
        stored: Content of its file of results.
    """

    comment: str
    stored: dict[str, Any]


def place(name: str) -> tuple[int, str]:
    """Return the place of a frontier on the page."""
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name


def measured(name: str) -> Measured:
    """Read a measured frontier."""
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines()[1:] if line.startswith("# "))
    config, rows = yaml.safe_load(text), stored["rows"]
    return Measured(name, config, rows, points(rows, int(config["axes"]["seed"][0])), stored.get("costs", {}), comment, stored)


def read() -> list[Measured]:
    """Read all measured frontiers in the order of the page, without the one that shows scaled learning rates."""
    names = {path.stem for path in RESULTS.glob("*.json")} - {RATES[1]}
    return [measured(name) for name in sorted(names, key=place)]


def section(frontier: Measured, images: Path) -> list[str]:
    """Write the section of a task."""
    where, stored = frontier.stored["machine"], frontier.stored
    picture = f"frontier_{frontier.name}"
    (images / f"{picture}.png").write_bytes(pictures(picture, lambda: draw(frontier))[f"{picture}.png"])
    costs = [f"![costs of {frontier.name}](images/{picture}_costs.png)", ""] if frontier.costs else []
    if frontier.costs:
        (images / f"{picture}_costs.png").write_bytes(pictures(picture, lambda: draw_costs(frontier))[f"{picture}.png"])
    hours = sum(row["seconds"] for row in stored["rows"]) / 3600
    commits = ", ".join(sorted({short(row.get("commit", stored["commit"])) for row in stored["rows"]}))
    return [
        f"## {frontier.name.replace('_', ' ')}",
        "",
        frontier.comment,
        "",
        f"![{frontier.name}](images/frontier_{frontier.name}.png)",
        "",
        *(f"- {sentence(frontier, algebra)}" for algebra in frontier.algebras),
        "",
        *network_table(frontier).as_markdown(),
        "",
        *costs,
        f"{len(stored['rows'])} runs, {hours:.1f} core-hours. {where['date']}, one thread of {where['processor']}, shared with "
        f"other work, so seconds are rough; torch {where['torch']}, commit {commits}.",
        "",
    ]


def answers(frontiers: Iterable[Measured]) -> list[str]:
    """Write one line for each task and algebra: the differences at equal weights and at equal width."""
    rows = []
    for frontier in frontiers:
        for algebra in frontier.algebras:
            weights, width = frontier.equal_weights(algebra), frontier.equal_width(algebra)
            cells = [text_of(found) if found else "-" for found in (weights, width)]
            name, told = frontier.name.replace("_", " "), weights.verdict if weights else "-"
            rows.append([name, algebra, seeds(frontier.algebras[algebra]), frontier.metric, cells[0], told, cells[1]])
    head = ["task", "algebra", "seeds", "figure", "at equal weights", "verdict", "at equal width"]
    return [*Table("", head, rows).as_markdown(), ""]


def seeds(points: Iterable[Point]) -> str:
    """Say how many seeds the networks of an algebra have that are compared."""
    counts = sorted({len(point.values) for point in points} - {1})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "1"


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
    rates = [measured(name) for name in RATES if (RESULTS / f"{name}.json").exists()]
    missing = not_run()
    lines = [
        HEAD,
        "## The answer",
        "",
        "Positive differences favour the algebra, whatever the figure. In brackets, the 95 % interval.",
        "",
        *answers(frontiers),
        *(line for frontier in frontiers for line in section(frontier, images)),
        *(frontier_rates.section(images, *((one.config, one.rows) for one in rates)) if len(rates) == 2 else []),
        *(["## Not run", "", *missing, ""] if missing else []),
    ]
    page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
