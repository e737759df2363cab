"""Write docs/frontier.md and its pictures from the stored results: ``python -m benchmarks.studies.frontier``."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from zoo_experiments.frontier import next_runs
from zoo_reports.frontier import (
    BestNetwork,
    Frontier,
    best_networks,
    draw,
    draw_costs,
    mean_difference,
    network_table,
    opponents,
    sentences,
    text_of,
)
from zoo_reports.page import Table, pictures
from zoo_reports.statistics import Difference, compare

from benchmarks import machine
from benchmarks.machine import IMAGES, ROOT, short
from benchmarks.studies import frontier_rates, scale_page

CONFIGS = ROOT / "configs" / "frontier"
RESULTS = machine.RESULTS / "frontier"
PAGE = ROOT / "docs" / "frontier.md"
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
"""Order of the first sections; the others follow sorted by name."""
RATES = ("shakespeare", "shakespeare_mup")
"""Frontiers without and with scaled learning rates."""
SEARCHES = {"cifar10": ("cifar10_rates", "cifar10_check"), "multi30k": ("multi30k_rates", "multi30k_check")}
"""Frontiers whose learning rates were searched in shorter runs: the results of these, and of a check in runs of full length."""
SHORTER = {"shakespeare_4000": "shakespeare"}
"""Frontiers, and those of the same task with fewer training steps."""
PARTS = {RATES[1], "conv4_cifar10_rates", *(name for names in SEARCHES.values() for name in names)}
"""Frontiers without a section of their own."""
CONTROLS = ("hamilton", "linear_map")
"""Frontiers that check the method; they are not tasks."""
RANDOM_PRODUCTS = "phm(n=4, learned=false)"
"""A control with random fixed products; it is not counted as an algebra."""
TEMPLATE = Path(__file__).parent / "frontier_template.md"


@dataclass(frozen=True)
class Measured(Frontier):
    """A frontier with stored results.

    Attributes:
        comment: Description from the configuration.
        stored: Content of the file of results.
    """

    comment: str
    stored: dict[str, Any]


def measured(name: str) -> Measured:
    """Read the configuration and results of a frontier."""
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines()[1:] if line.startswith("# "))
    config, rows = yaml.safe_load(text), stored["rows"]
    return Measured(name, config, rows, best_networks(rows), stored.get("costs", {}), comment, stored)


def read() -> list[Measured]:
    """Read all measured frontiers that have a section, in page order."""
    names = {path.stem for path in RESULTS.glob("*.json")} - PARTS
    return [measured(name) for name in (*(name for name in ORDER if name in names), *sorted(names - {*ORDER}))]


def equal_step_time(frontier: Frontier, algebra: str) -> Difference | None:
    """Compare an algebra with real networks whose training step takes as long, or the slowest real one if none does."""
    if not frontier.costs:
        return None
    times = {point: round(1000 * frontier.costs[point.net]["step_ms"]) for point in frontier.points}
    real = [replace(point, weights=times[point]) for point in frontier.real]
    slowest = max(point.weights for point in real)
    pairs = [(point, opponents(min(times[point], slowest), real)) for point in frontier.algebras[algebra]]
    return mean_difference([(point, others) for point, others in pairs if others is not None], frontier.lower)


def from_controls(frontier: Frontier) -> list[str]:
    """Compare the quaternions with the other products that have as many components, if there is one with random products."""
    nets = {point.net: point for point in frontier.points}
    alike = [frontier.algebras.get(name, []) for name in ("clifford(p=1, q=1)", RANDOM_PRODUCTS)]
    texts = []
    for other in (point for points in alike for point in points):
        one = nets[f"quaternion-{other.net.rpartition('-')[2]}"]
        if difference := compare(one, other, lower=frontier.lower):
            texts.append(f"**{one.net} against {other.net}**: {difference.verdict}, {text_of(difference)} {frontier.metric}.")
    return texts


def longer_training(frontier: Frontier, shorter: Frontier | None) -> list[str]:
    """Compare the differences at equal weights with those of shorter training, for the networks and real networks of both."""
    if shorter is None:
        return []
    names = {point.net for point in frontier.points}
    before = replace(shorter, points=[point for point in shorter.points if point.net in names])
    texts = []
    for algebra in frontier.algebras:
        now, then = frontier.equal_weights(algebra), before.equal_weights(algebra)
        if now and then:
            times = f"{text_of(then)} with {steps(shorter)} steps, {text_of(now)} with {steps(frontier)}"
            texts.append(f"**{algebra}, the same networks**: {times}.")
    return texts


def steps(frontier: Frontier) -> str:
    """Return the number of training steps."""
    return f"{frontier.config['base']['trainer']['max_steps']:,}"


def section(frontier: Measured, images: Path, shorter: Frontier | None = None) -> list[str]:
    """Write the section of a task; ``shorter`` is the same task with fewer training steps."""
    where, stored = frontier.stored["machine"], frontier.stored
    picture = f"frontier_{frontier.name}"
    (images / f"{picture}.png").write_bytes(pictures(picture, lambda: draw(frontier))[f"{picture}.png"])
    costs = [f"![costs of {frontier.name}](images/{picture}_costs.png)", ""] if frontier.costs else []
    if frontier.costs:
        (images / f"{picture}_costs.png").write_bytes(pictures(picture, lambda: draw_costs(frontier))[f"{picture}.png"])
    hours = sum(row["seconds"] for row in stored["rows"]) / 3600
    commits = ", ".join(sorted({short(row.get("commit", stored["commit"])) for row in stored["rows"]}))
    processors = " and ".join(sorted({row.get("processor", where["processor"]) for row in stored["rows"]}))
    return [
        f"## {frontier.name.replace('_', ' ')}",
        "",
        frontier.comment,
        "",
        f"![{frontier.name}](images/frontier_{frontier.name}.png)",
        "",
        *(f"- {text}" for text in [*sentences(frontier), *from_controls(frontier), *longer_training(frontier, shorter)]),
        "",
        *network_table(frontier).as_markdown(),
        "",
        *searches([name for name in SEARCHES.get(frontier.name, ()) if (RESULTS / f"{name}.json").exists()]),
        *costs,
        f"{len(stored['rows'])} runs, {hours:.1f} core-hours. Measured {where['date']} on one thread of {processors}, "
        f"shared with other work (seconds are approximate); torch {where['torch']}, commit {commits}.",
        "",
    ]


def searches(names: Iterable[str]) -> list[str]:
    """Tabulate the validation loss by learning rate, the best in bold; both searches select by the loss."""
    found = [(measured(name).config["base"]["trainer"]["max_epochs"], row) for name in names for row in measured(name).rows]
    rates, rows = sorted({row["lr"] for _, row in found}), []
    for net, epochs in dict.fromkeys((row["net"], epochs) for epochs, row in found):
        values = {row["lr"]: row["validation"] for length, row in found if (row["net"], length) == (net, epochs)}
        best = min(values, key=lambda rate: values[rate])
        texts = {rate: f"**{value:.4f}**" if rate == best else f"{value:.4f}" for rate, value in values.items()}
        rows.append([net, str(epochs), *(texts.get(rate, "-") for rate in rates)])
    head = ["validation loss by learning rate", "epochs", *(f"{rate:g}" for rate in rates)]
    return [*Table("", head, rows).as_markdown(), ""] if rows else []


def answers(frontiers: Iterable[Measured]) -> list[str]:
    """Tabulate the differences at equal weights, step time and width for each task and algebra."""
    rows = []
    for frontier in frontiers:
        for algebra in frontier.algebras:
            weights, time = frontier.equal_weights(algebra), equal_step_time(frontier, algebra)
            cells = [text_of(one) if one else "-" for one in (weights, time, frontier.equal_width(algebra))]
            verdict, name = weights.verdict if weights else "-", frontier.name.replace("_", " ")
            rows.append([name, algebra, seeds(frontier.algebras[algebra]), frontier.metric, cells[0], verdict, *cells[1:]])
    head = ["task", "algebra", "seeds", "metric", "at equal weights", "verdict", "same step time or less", "at equal width"]
    return [*Table("", head, rows).as_markdown(), ""]


def seeds(points: Iterable[BestNetwork]) -> str:
    """Format the number or range of seeds of the compared networks of an algebra."""
    counts = sorted({len(point.values) for point in points} - {1})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "1"


def not_run() -> list[str]:
    """List configurations without results and networks with missing seeds, and the commands that run them."""
    lines = []
    for path in sorted(CONFIGS.glob("*.yaml")):
        command = f"`python -m benchmarks.studies.frontier configs/frontier/{path.name} --root DATA`"
        axes, results = yaml.safe_load(path.read_text(encoding="utf-8"))["axes"], RESULTS / path.name.replace(".yaml", ".json")
        if not results.exists():
            lines.append(f"- {path.stem.replace('_', ' ')}: {command}")
            continue
        rows = json.loads(results.read_text(encoding="utf-8"))["rows"]
        due = {net for net, _, _ in next_runs(list(axes["net"]), axes.get("optimizer.lr", ()), axes["seed"], rows, set())}
        missing = [net for net in axes["net"] if net in due]
        if missing:
            lines.append(f"- {path.stem.replace('_', ' ')}, some runs of {', '.join(missing)}: {command}")
    return lines


def searched_only() -> list[str]:
    """Tabulate the learning rates of frontiers that are not measured yet."""
    lines = []
    for frontier, names in SEARCHES.items():
        found = [name for name in names if (RESULTS / f"{name}.json").exists()]
        if found and not (RESULTS / f"{frontier}.json").exists():
            lines += ["", f"The learning rates of {frontier} are already searched:", "", *searches(found)]
    return lines


def write(page: Path = PAGE, images: Path = IMAGES) -> None:
    """Write the page and its pictures."""
    frontiers = read()
    rates = [measured(name) for name in RATES if (RESULTS / f"{name}.json").exists()]
    by_name = {frontier.name: frontier for frontier in frontiers}
    shorter = {longer: by_name.get(name) for longer, name in SHORTER.items()}
    lines = [line for frontier in frontiers for line in section(frontier, images, shorter.get(frontier.name))]
    if len(rates) == len(RATES):
        lines += frontier_rates.section(images, *((rate.config, rate.rows) for rate in rates))
    lines += scale_page.section(images)
    lines += ["## Not run", "", *missing, *searched_only()] if (missing := not_run()) else []
    tasks, checks = ([one for one in frontiers if (one.name in CONTROLS) is kind] for kind in (False, True))
    parts = {"answers": "\n".join(answers(tasks)), "checks": "\n".join(answers(checks))}
    parts["sections"] = "\n".join(lines).rstrip()
    page.write_text(TEMPLATE.read_text(encoding="utf-8").format_map(parts), encoding="utf-8")
