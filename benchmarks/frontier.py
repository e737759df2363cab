"""Measure frontiers of quality against weights: ``python -m benchmarks.frontier configs/frontier/trec_lstm.yaml --root DATA``.

A file in configs/frontier/ is a grid of networks (axis ``net``), learning rates and seeds; ``zoo sweep FILE`` runs all of it.
This module runs the part that a comparison needs:

1. every network at every rate of the file with the first seed;
2. further rates, by factors of 2, while the best rate of a network lies at the edge of its grid;
3. the other seeds at the best rate of each network.

The best rate is the one with the best validation figure; the test split is never used to choose. Interrupted work resumes.
Results go to benchmarks/results/frontier/NAME.json, and docs/frontier.md is written from all of them.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks import machine
from benchmarks.frontier_statistics import best_rate
from benchmarks.papers import commit, rooted

RESULTS = Path(__file__).parent / "results" / "frontier"
RATE = "optimizer.lr"
EXTENSIONS = 5
"""How many rates beyond the file's grid a search may add on one side."""

Row = Mapping[str, Any]
Run = tuple[str, float | None, int]


def next_runs(nets: list[str], rates: list[float], seeds: list[int], rows: list[Row], failed: set[Run]) -> list[Run]:
    """Return the runs that are due, as (network, rate, seed): of the first step that is not complete.

    Args:
        nets: Names of the networks.
        rates: The grid of the file; empty if each network has one rate of its own.
        seeds: Seeds of the file; the first of them searches the rates.
        rows: Finished runs.
        failed: Runs that cannot finish, such as those whose loss is not finite; they count as the worst of all.
    """
    done = {(row["net"], row["lr"], row["seed"]) for row in rows} | failed
    first, *others = seeds
    if not rates:
        return [(net, None, seed) for seed in seeds for net in nets if (net, None, seed) not in done]
    if grid := [run for net in nets for rate in rates if (run := (net, rate, first)) not in done]:
        return grid
    best = {net: best_rate(row for row in rows if (row["net"], row["seed"]) == (net, first)) for net in nets}
    beyond = []
    for net, rate in best.items():
        tried = [
            tried_rate for tried_net, tried_rate, seed in done if tried_net == net and seed == first and tried_rate is not None
        ]
        if rate is None or len(tried) >= len(rates) + EXTENSIONS:
            continue
        if rate in (min(tried), max(tried)):
            beyond.append((net, rate / 2 if rate == min(tried) else rate * 2, first))
    if beyond:
        return beyond
    for seed in others:
        if due := [(net, rate, seed) for net, rate in best.items() if rate and (net, rate, seed) not in done]:
            return due
    return []


def finished(folder: Path) -> list[dict[str, Any]]:
    """Read the finished runs of a sweep's folder."""
    path = folder / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [summary(json.loads(line)) for line in lines]


def summary(run: Row) -> dict[str, Any]:
    """Keep what a frontier needs of a run."""
    rate, validation = run["axes"].get(RATE), run["validation"]
    metric = validation["metric"] if validation["metric"] in run["metrics"] else next(iter(run["metrics"]))
    return {
        "net": run["axes"]["net"],
        "algebra": run["options"]["algebra"],
        "lr": None if rate is None else float(rate),
        "seed": int(run["axes"]["seed"]),
        "weights": run["parameters"]["total"],
        "embedding": run["parameters"].get("embedding", 0),
        "validation": validation["value"],
        "mode": validation["mode"],
        "metric": metric,
        "test": run["metrics"][metric],
        "seconds": run["seconds"],
    }


def run(file: Path, folder: Path, root: Path | None, jobs: int) -> None:
    """Train what is missing of a frontier."""
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    values["base"]["data"] = rooted(values["base"]["data"], root)
    axes, failed = values["axes"], set[Run]()
    rates, seeds = [float(rate) for rate in axes.get(RATE, [])], [int(seed) for seed in axes["seed"]]
    while due := next_runs(list(axes["net"]), rates, seeds, finished(folder), failed):
        known = {row["lr"] for row in finished(folder)} | {rate for _, rate, _ in due} | set(rates)
        grid = axes | ({RATE: sorted(known)} if rates else {})
        folder.parent.mkdir(parents=True, exist_ok=True)
        wanted = folder.with_suffix(".yaml")
        wanted.write_text(yaml.safe_dump(values | {"axes": grid}, sort_keys=False), encoding="utf-8")
        names = ["-".join([net, *([f"lr{rate}"] if rate else []), f"seed{seed}"]) for net, rate, seed in due]
        line = [sys.executable, "-m", "zoo", "sweep", str(wanted), "--run_dir", str(folder), "--jobs", str(jobs)]
        code = subprocess.run([*line, "--only", ",".join(names)], check=False).returncode
        if code not in (0, 1):  # 1: some run has failed
            raise SystemExit(code)
        done = {(row["net"], row["lr"], row["seed"]) for row in finished(folder)}
        failed |= set(due) - done


def collect(file: Path, folder: Path, made: str | None) -> None:
    """Write the finished runs of a frontier to its file of results."""
    rows = sorted(finished(folder), key=lambda row: (row["net"], row["lr"] or 0, row["seed"]))
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    head = json.dumps({"config": config, "commit": made or commit(), "machine": machine.info() | {"threads": 1}}, indent=1)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{file.stem}.json").write_text(f'{head[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Parse the flags, train, write results and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="files of configs/frontier; none to only write the page")
    parser.add_argument("--root", type=Path, help="folder with the data sets, each in a folder of its name")
    parser.add_argument("--runs", type=Path, default=Path("runs/frontier"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--collect", action="store_true", help="train nothing; store the runs that have finished")
    parser.add_argument("--train", action="store_true", help="train only; store nothing")
    parser.add_argument("--commit", help="commit of the package that has run, if it is not this one")
    options = parser.parse_args(argv)
    for file in options.files:
        folder = options.runs / file.stem
        if not options.collect:
            run(file, folder, options.root, options.jobs)
        if not options.train:
            collect(file, folder, options.commit)
    if not options.train:
        from benchmarks import frontier_page

        frontier_page.write()


if __name__ == "__main__":
    main()
