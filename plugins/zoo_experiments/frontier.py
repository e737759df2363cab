"""Frontiers of quality against weights: train networks at their best learning rates, with several seeds.

The file is that of a sweep with an axis ``net`` of labels, an axis ``seed``, and an axis ``optimizer.lr`` unless the networks
set their own rates. Instead of the whole grid, three steps are trained:

1. every network at every rate with the first seed;
2. further rates, by factors of 2, while the best rate of a network lies at the edge of its rates;
3. the other seeds at the best rate of each network.

The best rate has the best validation metric; the test split never chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.atomic import write_json
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError
from zoo.training.folder import RUNS, file_name
from zoo_experiments.costs import costs
from zoo_experiments.options import Sweep
from zoo_experiments.results import ROWS, read_rows
from zoo_experiments.sweep import sweep

RATE = "optimizer.lr"
EXTENSIONS = 5
"""Maximum number of rates that a search adds to those of the file, per network."""

Row = Mapping[str, Any]
Run = tuple[str, float | None, int]
"""Network, learning rate and seed."""


def frontier(
    values: Mapping[str, Any], file: str, options: Sweep | None = None, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Train the missing runs of a frontier and write frontier.json, which the report ``frontier`` reads.

    The costs of its networks are measured once, see `zoo_experiments.costs.costs`.

    Args:
        values: The content of the file.
        file: Its name.
        options: Options of `sweep`; ``only`` is not supported.
        say: Prints a line of progress.

    Returns:
        ``run_dir``, the ``rows`` of `summarize`, and ``failed``, the names of failed runs.

    Raises:
        InputError: If the file has other axes or no real network, or as `sweep` does.
        Interrupted: As `sweep` does.
    """
    check(values, file)
    axes, options = values["axes"], options or Sweep()
    folder = Path(options.run_dir).expanduser() if options.run_dir else RUNS / f"frontier-{file_name(Path(file).stem)}"
    rates, seeds = [float(rate) for rate in axes.get(RATE, ())], [int(seed) for seed in axes["seed"]]
    failed = set[Run]()
    while due := next_runs(list(axes["net"]), rates, seeds, read(folder), failed):
        known = {row["lr"] for row in read(folder)} | {rate for _, rate, _ in due} | set(rates)
        grid = dict(axes) | ({RATE: sorted(rate for rate in known if rate)} if rates else {})
        wanted = replace(options, run_dir=str(folder), only=",".join(name(run) for run in due))
        sweep({**values, "axes": grid}, file, wanted, say=say)
        failed |= set(due) - {(row["net"], row["lr"], row["seed"]) for row in read(folder)}
    rows, path = read(folder), folder / "frontier.json"
    measured = read_json(path).get("costs", {}) if path.exists() else {}
    if set(measured) != set(axes["net"]):
        say(f"measuring the costs of {len(axes['net'])} networks")
        measured = costs(values, file)
    write_json(path, {"config": values, "rows": rows, "costs": measured})
    return {"run_dir": str(folder), "rows": rows, "failed": sorted(name(run) for run in failed)}


def check(values: Mapping[str, Any], file: str) -> None:
    """Raise `InputError` if a sweep is not a frontier."""
    axes = values.get("axes") or {}
    nets = axes.get("net")
    if not isinstance(nets, Mapping) or not set(axes) <= {"net", RATE, "seed"} or "seed" not in axes:
        raise InputError(f"'{file}': a frontier has the axes net (with labels), {RATE} and seed", code="missing")
    algebra = (values.get("base") or {}).get("algebra")
    if all((options or {}).get("algebra", algebra) != "real" for options in nets.values()):
        raise InputError(f"'{file}': no network of the axis net has algebra: real to compare with", code="missing")


def name(run: Run) -> str:
    """Return the name of a run in its sweep."""
    net, rate, seed = run
    return "-".join([net, *([f"lr{rate}"] if rate else []), f"seed{seed}"])


def read(folder: Path) -> list[dict[str, Any]]:
    """Read the finished runs of a folder."""
    path = folder / ROWS
    return [summarize(row) for row in read_rows(path)] if path.exists() else []


def summarize(row: Row) -> dict[str, Any]:
    """Return what a frontier needs from the row of a run."""
    rate, validation = row["axes"].get(RATE), row["validation"]
    metric = validation["metric"] if validation["metric"] in row["metrics"] else next(iter(row["metrics"]))
    return {
        "net": row["axes"]["net"],
        "algebra": row["options"]["algebra"],
        "lr": None if rate is None else float(rate),
        "seed": int(row["axes"]["seed"]),
        "weights": row["parameters"]["total"],
        "embedding": row["parameters"].get("embedding", 0),
        "validation": validation["value"],
        "mode": validation["mode"],
        "metric": metric,
        "test": row["metrics"][metric],
        "seconds": row["seconds"],
    }


def next_runs(
    nets: Sequence[str], rates: Sequence[float], seeds: Sequence[int], rows: Sequence[Row], failed: set[Run]
) -> list[Run]:
    """Return the missing runs of the first incomplete step.

    Args:
        nets: Names of the networks.
        rates: The rates of the file; empty if the networks set their own rates.
        seeds: Seeds of the file; the first one searches the rates.
        rows: Finished runs.
        failed: Runs that cannot finish, for example because they diverge; they count as the worst.
    """
    done = {(row["net"], row["lr"], row["seed"]) for row in rows} | failed
    first, *others = seeds
    grid: list[Run] = [(net, rate, first) for net in nets for rate in rates]
    if not rates:
        grid = [(net, None, seed) for seed in seeds for net in nets]
    if due := [run for run in grid if run not in done]:
        return due
    best = {net: best_rate(row for row in rows if (row["net"], row["seed"]) == (net, first)) for net in nets}
    if not rates:
        return []
    beyond: list[Run] = []
    for net, rate in best.items():
        tried = [lr for other, lr, seed in done if (other, seed) == (net, first) and lr is not None]
        if rate is not None and rate in (min(tried), max(tried)) and len(tried) < len(rates) + EXTENSIONS:
            beyond.append((net, rate / 2 if rate == min(tried) else rate * 2, first))
    if beyond:
        return beyond
    for seed in others:
        repeated: list[Run] = [(net, rate, seed) for net, rate in best.items() if rate]
        if due := [run for run in repeated if run not in done]:
            return due
    return []


def best_rate(rows: Iterable[Row]) -> float | None:
    """Return the learning rate with the best validation metric among the runs of one network and seed; None without runs."""
    runs = [row for row in rows if row["validation"] is not None]
    sign = -1 if runs and runs[0]["mode"] == "max" else 1
    return min(runs, key=lambda row: sign * row["validation"])["lr"] if runs else None
