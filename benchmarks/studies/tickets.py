"""Compare tickets of networks over algebras with tickets of smaller real networks at the same number of remaining weights.

``python -m benchmarks.studies.lottery configs/tickets/NAME.yaml`` runs or resumes ``zoo lottery`` for each network of the file,
and writes results/tickets/NAME.json and a section of docs/lottery.md.

For each ticket the opponent is the real network with the best validation result at the same number of weights; its test result
is interpolated between rounds. Intervals are computed by `zoo_reports.statistics`.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import mul
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import yaml
from matplotlib.figure import Figure
from zoo_reports.frontier import BestNetwork, opponents, text_of
from zoo_reports.page import Table, colors_of, log_axis, plain_axes
from zoo_reports.statistics import compare

import zoo
from benchmarks import machine
from benchmarks.studies.papers_rows import rooted

RESULTS = machine.RESULTS / "tickets"
FRONTIERS = machine.RESULTS / "frontier"
DASHES = ("-", "--", ":", "-.")

Axis = Literal["left", "total"]
AXES: dict[Axis, str] = {"left": "remaining weights in the pruned matrices", "total": "remaining weights in the whole network"}


@dataclass(frozen=True)
class Ticket:
    """A network after a round of pruning.

    Attributes:
        point: Test results over seeds, and size on the axis of the comparison.
        validation: Mean validation result over seeds.
    """

    point: BestNetwork
    validation: float


Curves = dict[str, list[Ticket]]
"""Tickets by network."""


def run(file: Path, runs: Path, root: Path | None) -> None:
    """Run or resume the lotteries of a file and write the results after each; complete results are not run again."""
    config, path = yaml.safe_load(file.read_text(encoding="utf-8")), RESULTS / f"{file.stem}.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    rows = {name: finished_rows(stored, name, config["base"] | network) for name, network in config["networks"].items()}
    for name in [name for name in rows if not rows[name]]:
        options, folder = config["base"] | config["networks"][name], runs / f"tickets-{file.stem}" / name
        start = {"resume": str(folder)} if (folder / "lottery.json").exists() else {"run_dir": str(folder)}
        record = zoo.lottery(**options | {"data": rooted(options["data"], root)} | start)
        rows[name] = [{"network": name} | read_round(folder, row, record["metric"]) for row in record["rows"]]
        measured = {name: network for name, network in config["networks"].items() if rows[name]}
        results = stored | {"config": config | {"networks": measured}, "metric": record["metric"], "mode": record["mode"]}
        results |= {"commit": machine.commit(), "machine": machine.info()}
        machine.write_rows(path, results | {"rows": [row for name in measured for row in rows[name]]})


def read_round(folder: Path, row: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the stored values of a round of a lottery."""
    summary = json.loads((folder / row["folder"] / "summary.json").read_text(encoding="utf-8"))
    fixed = summary["parameters"]["total"] - row["weights"]  # never pruned: stem, head, norms, biases
    sizes = {"left": row["survivors"], "total": row["survivors"] + fixed}
    return (
        {key: row[key] for key in ("seed", "round", "seconds")} | sizes | {part: row[part][metric] for part in ("val", "test")}
    )


def finished_rows(stored: Mapping[str, Any], name: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the stored rows of a network if they are complete and have these options, else an empty list."""
    rows = [row for row in stored["rows"] if row["network"] == name]
    if len(rows) != options["seeds"] * (options["rounds"] + 1):
        return []
    same = stored["config"]["base"] | stored["config"]["networks"][name] == options
    return [{"commit": stored["commit"]} | row for row in rows] if same else []


def curves(results: dict[str, Any], axis: Axis) -> Curves:
    """Return the tickets of each network, largest first."""
    tickets: Curves = {}
    for name, network in results["config"]["networks"].items():
        rows = [row for row in results["rows"] if row["network"] == name]
        tickets[name] = []
        for number in sorted({row["round"] for row in rows}):
            same = sorted((row for row in rows if row["round"] == number), key=lambda row: row["seed"])
            lr = network.get("optimizer", {}).get("lr", 0.0)
            size, values = int(mean(row[axis] for row in same)), tuple(row["test"] for row in same)
            facts = {"net": f"{name} round {number}", "algebra": network["compare"], "weights": size, "total": size}
            point = BestNetwork(values, **facts, lr=lr, seconds=mean(row["seconds"] for row in same))
            tickets[name].append(Ticket(point, mean(row["val"] for row in same)))
    return tickets


def opponent(weights: int, real: Curves, lower: bool) -> tuple[str, dict[BestNetwork, float]] | None:
    """Return the real network with the best validation result at a size and the shares of its rounds; None if none is close."""
    candidates = []
    for name, tickets in real.items():
        validation = {ticket.point: ticket.validation for ticket in tickets}
        if shares := opponents(weights, validation):
            candidates.append((sum(share * validation[point] for point, share in shares.items()), name, shares))
    if not candidates:
        return None
    _, name, shares = (min if lower else max)(candidates, key=lambda candidate: candidate[0])
    return name, shares


def interpolated(shares: Mapping[BestNetwork, float]) -> BestNetwork:
    """Interpolate between rounds of one network for each seed: its rounds are not independent of one another."""
    values = zip(*(point.values for point in shares), strict=True)
    return replace(next(iter(shares)), values=tuple(sum(map(mul, shares.values(), seed)) for seed in values))


def comparisons(results: dict[str, Any], axis: Axis) -> list[list[str]]:
    """Tabulate the comparisons of all tickets that have a real opponent, sorted by network and size."""
    by_network, lower = curves(results, axis), results["mode"] == "min"
    algebras = {name: network["compare"] for name, network in results["config"]["networks"].items()}
    real = {name: tickets for name, tickets in by_network.items() if algebras[name] == "real"}
    rows = []
    for name in by_network.keys() - real.keys():
        for ticket in by_network[name]:
            point, against = ticket.point, opponent(ticket.point.weights, real, lower)
            if against is None or len(point.values) < 2:
                continue
            other, shares = against
            rival = interpolated(shares)
            difference = compare(point, rival, lower=lower)
            if difference is not None:
                cells = [f"{point.mean:.4f}", f"{other} {rival.mean:.4f}", text_of(difference), difference.verdict]
                rows.append((list(by_network).index(name), -point.weights, [name, f"{point.weights:,}", *cells]))
    return [cells for _, _, cells in sorted(rows)]


def draw(results: dict[str, Any], path: Path) -> None:
    """Plot the test metric against the remaining weights, in the pruned matrices and in the whole network."""
    figure = Figure(figsize=(10, 4), dpi=130, layout="constrained")
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
        plain_axes(axes)
    means = [ticket.point.mean for tickets in lines.values() for ticket in tickets]
    margin = 0.1 * (max(means) - min(means))  # not scaled to the intervals, which are wide for two seeds
    figure.axes[0].set_ylim(min(means) - margin, max(means) + margin)
    figure.axes[0].set_ylabel(f"test {results['metric']}")
    figure.axes[1].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def section(name: str, images: Path) -> list[str]:
    """Write the section of a file of results, and its picture."""
    results = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    draw(results, images / f"tickets_{name}.png")
    where, hours = results["machine"], sum(row["seconds"] for row in results["rows"]) / 3600
    base, file = results["config"]["base"], Path("configs/tickets") / f"{name}.yaml"
    config = yaml.safe_load((machine.ROOT / file).read_text(encoding="utf-8"))
    due = [net for net, options in config["networks"].items() if not finished_rows(results, net, config["base"] | options)]
    changed = f" **Not run** with the learning rate and seeds of the file: {', '.join(due)}." if due else ""
    lines = [
        f"## {name.replace('_', ' ')} at equal weights",
        "",
        f"[{file}](../{file}): {len(results['rows'])} training runs, {hours:.1f} "
        f"core-hours. Each round prunes {base['rate']:.0%} of the remaining weights by magnitude in all matrices of the body, "
        "each parameter separately, and rewinds to the initialization. Each ticket is compared with the real network that has "
        f"the best validation result at its number of weights. Measured {where['date']}, torch {where['torch']}, commit "
        f"{machine.short(results['commit'])}.{results.get('note', '')}{changed}",
        "",
        f"![tickets at equal weights, {name}](images/tickets_{name}.png)",
        "",
    ]
    lines += [*networks(results, config["rates"]).as_markdown(), ""]
    for axis, label in AXES.items():
        rows = comparisons(results, axis)
        lines += [f"By {label}:", ""]
        head = ["ticket", "weights", f"test {results['metric']}", "baseline", "difference", "verdict"]
        lines += [*Table("", head, rows).as_markdown(), ""]
    return lines


def answers() -> list[str]:
    """Count the verdicts of all comparisons of each experiment."""
    rows, verdicts = [], ("ahead", "behind", "not decided")
    for file in sorted(RESULTS.glob("*.json")):
        results = json.loads(file.read_text(encoding="utf-8"))
        for axis, label in AXES.items():
            counts = Counter(row[-1] for row in comparisons(results, axis))
            rows.append([file.stem.replace("_", " "), label, *(str(counts[verdict]) for verdict in verdicts)])
    return [*Table("", ["experiment", "equal number of", *verdicts], rows).as_markdown(), ""]


def networks(results: dict[str, Any], frontier: str) -> Table:
    """Tabulate the networks of a file of results, with the learning rates that a frontier tried for them."""
    tried = json.loads((FRONTIERS / f"{frontier}.json").read_text(encoding="utf-8"))["rows"]
    rows = []
    for name, network in results["config"]["networks"].items():
        options = results["config"]["base"] | network
        rates = [row["lr"] for row in tried if row["net"] == name]
        rate = f"{options['optimizer']['lr']:g} of {min(rates):g} to {max(rates):g}"
        own = [row for row in results["rows"] if row["network"] == name]
        sizes = [f"{max(row[axis] for row in own):,}" for axis in AXES]
        rows.append([name, *sizes, rate, str(options["seeds"]), f"{mean(row['seconds'] for row in own):.0f}"])
    head = ["network", "weights in the pruned matrices", "all weights", "learning rate", "seeds", "seconds a round"]
    return Table("", head, rows)
