"""Compare tickets of networks over algebras with tickets of smaller real networks at the same number of weights left.

``python -m benchmarks.lottery configs/tickets/NAME.yaml`` runs one ``zoo lottery`` for each network of the file, resumes what
was interrupted, and writes results/tickets/NAME.json and a section of docs/lottery.md.

At every number of weights the opponent is the real network with the best validation figure there; its test figure is
interpolated between its rounds. Intervals are those of `zoo_reports.statistics`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from zoo_reports.frontier import text_of
from zoo_reports.page import Table
from zoo_reports.statistics import Point, contrast, opponents
from zoo_reports.style import colors_of, log_axis

import zoo
from benchmarks import machine
from benchmarks.papers import commit, rooted

RESULTS = Path(__file__).parent / "results" / "tickets"
DASHES = ("-", "--", ":", "-.")

Axis = Literal["left", "total"]
AXES: dict[Axis, str] = {"left": "weights left in the pruned matrices", "total": "weights left in the whole network"}


@dataclass(frozen=True)
class Ticket:
    """A network after some rounds of pruning.

    Attributes:
        point: Its test figures over seeds, and its size on the axis of the comparison.
        validation: Mean validation figure over seeds.
    """

    point: Point
    validation: float


Curves = dict[str, list[Ticket]]
"""The tickets of every network."""


def run(file: Path, runs: Path, root: Path | None) -> None:
    """Run the lotteries of a file and write their rows."""
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    rows = []
    for name, network in config["networks"].items():
        options, folder = config["base"] | network, runs / f"tickets-{file.stem}" / name
        begun = {"resume": str(folder)} if (folder / "lottery.json").exists() else {"run_dir": str(folder)}
        record = zoo.lottery(**options | {"data": rooted(options["data"], root)} | begun)
        for row in record["rows"]:
            summary = json.loads((folder / row["folder"] / "summary.json").read_text(encoding="utf-8"))
            fixed = summary["parameters"]["total"] - row["weights"]  # never pruned: stem, head, norms, biases
            kept = {key: row[key] for key in ("seed", "round", "seconds")}
            figures = {part: row[part][record["metric"]] for part in ("val", "test")}
            rows.append({"network": name, **kept, "left": row["survivors"], "total": row["survivors"] + fixed, **figures})
    facts = {
        "config": config,
        "metric": record["metric"],
        "mode": record["mode"],
        "commit": commit(),
        "machine": machine.info(),
    }
    head = json.dumps(facts, indent=1)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{file.stem}.json").write_text(f'{head[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def curves(results: dict[str, Any], axis: Axis) -> Curves:
    """Return the tickets of every network, largest first."""
    found: Curves = {}
    for name, network in results["config"]["networks"].items():
        rows = [row for row in results["rows"] if row["network"] == name]
        found[name] = []
        for number in sorted({row["round"] for row in rows}):
            same = [row for row in rows if row["round"] == number]
            lr = network.get("optimizer", {}).get("lr", 0.0)
            values, seconds = tuple(row["test"] for row in same), mean(row["seconds"] for row in same)
            size = int(mean(row[axis] for row in same))
            point = Point(f"{name} round {number}", network["compare"], size, size, lr, (), values, seconds)
            found[name].append(Ticket(point, mean(row["val"] for row in same)))
    return found


def opponent(weights: int, real: Curves, lower: bool) -> tuple[str, dict[Point, float]] | None:
    """Return the real network with the best validation figure at a size, and the shares of its rounds; None outside all."""
    candidates = []
    for name, tickets in real.items():
        validation = {ticket.point: ticket.validation for ticket in tickets}
        if shares := opponents(weights, validation):
            candidates.append((sum(share * validation[point] for point, share in shares.items()), name, shares))
    if not candidates:
        return None
    _, name, shares = (min if lower else max)(candidates, key=lambda candidate: candidate[0])
    return name, shares


def comparisons(results: dict[str, Any], axis: Axis) -> list[list[str]]:
    """Write a line for every ticket of an algebra that some real network can be compared with, by network and size."""
    found, lower = curves(results, axis), results["mode"] == "min"
    algebras = {name: network["compare"] for name, network in results["config"]["networks"].items()}
    real = {name: tickets for name, tickets in found.items() if algebras[name] == "real"}
    rows = []
    for name in found.keys() - real.keys():
        for ticket in found[name]:
            point, against = ticket.point, opponent(ticket.point.weights, real, lower)
            if against is None or len(point.values) < 2:
                continue
            other, shares = against
            sign = -1 if lower else 1
            difference = contrast({point: sign} | {rival: -sign * share for rival, share in shares.items()})
            level = sum(share * rival.mean for rival, share in shares.items())
            if difference is not None:
                cells = [f"{point.mean:.4f}", f"{other} {level:.4f}", text_of(difference), difference.verdict]
                rows.append((list(found).index(name), -point.weights, [name, f"{point.weights:,}", *cells]))
    return [cells for _, _, cells in sorted(rows)]


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the test figure against the weights left, on both axes."""
    figure = Figure(figsize=(10, 4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (axis, label) in zip(figure.subplots(1, 2, sharey=True), AXES.items(), strict=True):
        seen: dict[str, int] = {}
        lines = curves(results, axis)
        colors = colors_of(tickets[0].point.algebra for tickets in lines.values())
        for name, tickets in lines.items():
            algebra = tickets[0].point.algebra
            number = seen[algebra] = seen.get(algebra, -1) + 1
            axes.errorbar(
                [ticket.point.weights for ticket in tickets],
                [ticket.point.mean for ticket in tickets],
                yerr=[ticket.point.interval or 0.0 for ticket in tickets],
                color=colors[algebra],
                marker="o",
                linestyle=DASHES[number % len(DASHES)],
                markersize=4,
                linewidth=1.3,
                elinewidth=0.8,
                label=name,
            )
        log_axis(axes, "x")
        axes.set_xlabel(label)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    means = [ticket.point.mean for tickets in lines.values() for ticket in tickets]
    margin = 0.1 * (max(means) - min(means))  # intervals of two seeds would shrink the rest
    figure.axes[0].set_ylim(min(means) - margin, max(means) + margin)
    figure.axes[0].set_ylabel(f"test {results['metric']}")
    figure.axes[1].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def section(name: str, images: Path) -> list[str]:
    """Write the section of a file of results."""
    results = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    draw(results, images / f"tickets_{name}.png")
    where, hours = results["machine"], sum(row["seconds"] for row in results["rows"]) / 3600
    base = results["config"]["base"]
    lines = [
        f"## {name.replace('_', ' ')} at equal weights",
        "",
        f"[configs/tickets/{name}.yaml](../configs/tickets/{name}.yaml): {len(results['rows'])} trainings, {hours:.1f} "
        f"core-hours. All matrices of the body are pruned by magnitude, each parameter by itself, {base['rate']:.0%} of the "
        "remaining weights in each round, rewound to the initialisation. At each number of weights the opponent is the real "
        f"network with the best validation figure there. {where['date']}, torch {where['torch']}, commit "
        f"{machine.short(results['commit'])}.",
        "",
        f"![tickets at equal weights, {name}](images/tickets_{name}.png)",
        "",
    ]
    for axis, label in AXES.items():
        rows = comparisons(results, axis)
        counts = {verdict: sum(row[-1] == verdict for row in rows) for verdict in ("ahead", "behind", "not decided")}
        lines += [f"By {label}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + ".", ""]
        head = ["ticket", "weights", f"test {results['metric']}", "best real network", "difference", "verdict"]
        lines += [*Table("", head, rows).as_markdown(), ""]
    return lines
