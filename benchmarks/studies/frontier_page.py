"""Write docs/frontier.md and its pictures from the stored results: ``python -m benchmarks.studies.frontier``."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from zoo_experiments.frontier import next_runs
from zoo_reports.frontier import (
    BestNetwork,
    Frontier,
    best_networks,
    draw,
    mean_difference,
    opponents,
    text_of,
)
from zoo_reports.page import Table, pictures
from zoo_reports.statistics import Difference, compare

from benchmarks import machine
from benchmarks.machine import IMAGES, ROOT, short
from benchmarks.studies import frontier_rates

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
"""Order of the first tasks; the others follow sorted by name."""
RATES = ("shakespeare", "shakespeare_mup")
"""Frontiers without and with scaled learning rates."""
SEARCHES = {"cifar10": ("cifar10_rates", "cifar10_check"), "multi30k": ("multi30k_rates", "multi30k_check")}
"""Frontiers whose learning rates were searched in shorter runs: the results of these, and of a check in runs of full length."""
SHORTER = {"shakespeare_4000": "shakespeare"}
"""Frontiers, and those of the same task with fewer training steps."""
PARTS = {RATES[1], "conv4_cifar10_rates", *(name for names in SEARCHES.values() for name in names)}
"""Frontiers that are not tasks of their own."""
CONTROLS = ("hamilton", "linear_map")
"""Frontiers that check the method; they are not tasks."""
RANDOM_PRODUCTS = "phm(n=4, learned=false)"
"""A control with random fixed products; it is not counted as an algebra."""
COSTS = ("bytes", "multiply_adds", "step_ms", "inference_ms")
"""The costs of a network: of its weights file, of an inference per example, of a training step, of the inference of a batch."""
TEMPLATE = Path(__file__).parent / "frontier_template.md"


@dataclass(frozen=True)
class Measured(Frontier):
    """A frontier with stored results.

    Attributes:
        stored: Content of the file of results.
    """

    stored: dict[str, Any]


def measured(name: str) -> Measured:
    """Read the configuration and results of a frontier."""
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    config, rows = yaml.safe_load(text), stored["rows"]
    return Measured(name, config, rows, best_networks(rows), stored.get("costs", {}), stored)


def read() -> list[Measured]:
    """Read all measured tasks, in page order."""
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
            texts.append(f"{one.net} against {other.net} {text_of(difference)}")
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
            texts.append(
                f"{algebra} {then.estimate:+.3f} with {steps(shorter)} steps, {now.estimate:+.3f} with {steps(frontier)}"
            )
    return texts


def steps(frontier: Frontier) -> str:
    """Return the number of training steps."""
    return f"{frontier.config['base']['trainer']['max_steps']:,}"


def tables(frontiers: Iterable[Measured]) -> dict[str, Table]:
    """Return the tables that are too long for the page, by the names of their CSV files."""
    searched = [name for names in SEARCHES.values() for name in names if (RESULTS / f"{name}.json").exists()]
    return {
        "differences.csv": differences(frontiers),
        "networks.csv": networks(frontiers),
        "rates.csv": searches(searched),
    }


def networks(frontiers: Iterable[Measured]) -> Table:
    """Tabulate the networks of all frontiers, and where they were measured."""
    head = ["frontier", "network", "algebra", "weights", "word embeddings", "learning rate", "lowest rate", "highest rate"]
    head += ["metric", "test", "95 % interval", "seeds", "seconds a run", *COSTS, "processor", "date", "commit"]
    rows = []
    for frontier in frontiers:
        where = frontier.stored["machine"]
        for point in frontier.points:
            own = [row for row in frontier.rows if row["net"] == point.net]
            processors = " and ".join(sorted({row.get("processor", where["processor"]) for row in own}))
            commits = " ".join(sorted({short(row.get("commit", frontier.stored["commit"])) for row in own}))
            rates = [f"{rate:g}" for rate in (point.lr, *point.rates[:1], *point.rates[-1:]) if rate]
            cells = [frontier.name, point.net, point.algebra, str(point.weights), str(point.total - point.weights)]
            cells += [*rates, *[""] * (3 - len(rates)), frontier.metric, f"{point.mean:.4f}"]
            cells += ["" if point.interval is None else f"{point.interval:.4f}", str(len(point.values)), f"{point.seconds:.0f}"]
            cells += [f"{frontier.costs[point.net][cost]:.10g}" if frontier.costs else "" for cost in COSTS]
            rows.append([*cells, processors, where["date"], commits])
    return Table("", head, rows)


def searches(names: Iterable[str]) -> Table:
    """Tabulate the validation loss by learning rate of frontiers whose rates were searched in shorter runs."""
    rows = []
    for name in names:
        epochs = measured(name).config["base"]["trainer"]["max_epochs"]
        rows += [[name, row["net"], str(epochs), f"{row['lr']:g}", f"{row['validation']:.4f}"] for row in measured(name).rows]
    return Table("", ["frontier", "network", "epochs", "learning rate", "validation loss"], rows)


def answers(frontiers: Iterable[Measured]) -> list[str]:
    """Tabulate the differences at equal weights, significant ones in bold, with one line for each task."""
    algebras = ["complex", "quaternion", "phm-4", "octonion"]
    rows = []
    for frontier in frontiers:
        found = {algebra: frontier.equal_weights(algebra) for algebra in algebras if algebra in frontier.algebras}
        name = f"[{frontier.name.replace('_', ' ')}](images/frontier_{frontier.name}.png)"
        size = frontier.size_effect.verdict if frontier.size_effect else ""
        rows.append([name, size, *(cell(found.get(algebra)) for algebra in algebras)])
    return Table("", ["task", "more real weights", *algebras], rows).as_markdown()


def cell(difference: Difference | None) -> str:
    """Format a difference, in bold if its interval excludes zero."""
    text = f"{difference.estimate:+.3f}" if difference else ""
    return f"**{text}**" if difference and difference.verdict != "not decided" else text


def differences(frontiers: Iterable[Measured]) -> Table:
    """Tabulate the differences at equal weights, step time and width for each task and algebra."""
    kinds = ("equal weights", "same step time or less", "equal width")
    head = ["frontier", "algebra", "seeds", "metric", "verdict"]
    head += [f"{kind}{end}" for kind in kinds for end in ("", ", low", ", high")]
    rows = []
    for frontier in frontiers:
        for algebra in frontier.algebras:
            found = [frontier.equal_weights(algebra), equal_step_time(frontier, algebra), frontier.equal_width(algebra)]
            verdict = found[0].verdict if found[0] else ""
            cells = [frontier.name, algebra, seeds(frontier.algebras[algebra]), frontier.metric, verdict]
            for one in found:
                cells += [f"{value:+.4f}" for value in (one.estimate, one.low, one.high)] if one else [""] * 3
            rows.append(cells)
    return Table("", head, rows)


def seeds(points: Iterable[BestNetwork]) -> str:
    """Format the number or range of seeds of the compared networks of an algebra."""
    counts = sorted({len(point.values) for point in points} - {1})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "1"


def not_run() -> list[str]:
    """List the configurations without results, and those of which networks or seeds are missing."""
    names = []
    for path in sorted(CONFIGS.glob("*.yaml")):
        axes, results = yaml.safe_load(path.read_text(encoding="utf-8"))["axes"], RESULTS / path.name.replace(".yaml", ".json")
        rows = json.loads(results.read_text(encoding="utf-8"))["rows"] if results.exists() else []
        due = {net for net, _, _ in next_runs(list(axes["net"]), axes.get("optimizer.lr", ()), axes["seed"], rows, set())}
        if due:
            some = f" ({', '.join(net for net in axes['net'] if net in due)})" if rows else ""
            names.append(f"{path.stem}{some}")
    return names


def controls(frontiers: Iterable[Measured]) -> list[str]:
    """Compare quaternions with other products of as many components, and longer with shorter training."""
    by_name = {frontier.name: frontier for frontier in frontiers}
    lines = []
    for name, frontier in by_name.items():
        texts = [*from_controls(frontier), *longer_training(frontier, by_name.get(SHORTER.get(name, "")))]
        lines += [f"- {name.replace('_', ' ')}: {'; '.join(texts)}."] if texts else []
    return lines


def checks(frontiers: Iterable[Measured]) -> str:
    """Count the algebras that are ahead in each check of the method."""
    texts = []
    for frontier in frontiers:
        found = [difference for name in frontier.algebras if (difference := frontier.equal_weights(name))]
        wins = sum(difference.verdict == "ahead" for difference in found)
        texts.append(f"{wins} of {len(found)} algebras are ahead on {frontier.name.replace('_', ' ')}")
    return ", ".join(texts)


def write(page: Path = PAGE, images: Path = IMAGES, folder: Path = RESULTS) -> None:
    """Write the page, its pictures and the CSV files of its tables."""
    frontiers = read()
    tasks = [one for one in frontiers if one.name not in CONTROLS]
    for frontier in tasks:
        picture = f"frontier_{frontier.name}"
        (images / f"{picture}.png").write_bytes(pictures(picture, partial(draw, frontier))[f"{picture}.png"])
    for name, table in tables(frontiers).items():
        (folder / name).write_text(table.as_csv(), encoding="utf-8")
    runs = [row for frontier in frontiers for row in frontier.rows]
    dates = sorted({frontier.stored["machine"]["date"] for frontier in frontiers})
    parts = {
        "answers": "\n".join(answers(tasks)),
        "checks": checks(one for one in frontiers if one.name in CONTROLS),
        "rates": rates_text(images),
    }
    parts |= {"controls": "\n".join(controls(tasks)), "not_run": ", ".join(not_run()) or "none"}
    parts |= {"runs": f"{len(runs):,}", "hours": f"{sum(row['seconds'] for row in runs) / 3600:.0f}"}
    parts |= {"dates": f"{dates[0]} to {dates[-1]}", "counts": counts(tasks)}
    page.write_text(TEMPLATE.read_text(encoding="utf-8").format_map(parts), encoding="utf-8")


def rates_text(images: Path) -> str:
    """Compare learning rates without and with scaling, if both are measured; draw their curves."""
    rates = [measured(name) for name in RATES if (RESULTS / f"{name}.json").exists()]
    if len(rates) < len(RATES):
        return ""
    return frontier_rates.sentences(images, *((rate.config, rate.rows) for rate in rates))


def counts(tasks: Iterable[Measured]) -> str:
    """Count the verdicts at equal weights, separately for tasks where more weights help a real network and for others."""
    groups: dict[bool, list[Measured]] = {True: [], False: []}
    for task in tasks:
        groups[depends_on_size(task)].append(task)
    texts = []
    for is_sized, those in groups.items():
        found = [task.equal_weights(name) for task in those for name in task.algebras if name != RANDOM_PRODUCTS]
        verdicts = Counter(difference.verdict for difference in found if difference)
        where = "Where more weights help a real network" if is_sized else "Where more weights do not significantly help"
        texts.append(
            f"{where} ({len(those)} tasks), algebras are ahead in {verdicts['ahead']}, behind in {verdicts['behind']} and not "
            f"decided in {verdicts['not decided']} of {verdicts.total()} comparisons."
        )
    return " ".join(texts)


def depends_on_size(frontier: Measured) -> bool:
    """Check that the largest real network of a frontier is better than the smallest."""
    return frontier.size_effect is not None and frontier.size_effect.verdict == "ahead"
