"""Measure the loss at equal weights from 0.1 to 12.8 million weights: ``python -m benchmarks.studies.scale --root DATA``.

Trains GPTs of depth 4 over the reals and over algebras on text by characters, on a GPU if there is one, with one recipe
(`benchmarks.studies.scale_train.Recipe`). Every network is trained at learning rates in steps of a factor of 2 until the rate
with the best mean validation loss lies inside the rates, with three seeds at this rate and its two neighbors, and with five
at the best rate where the comparison with the real network of the same size is not decided on validation data. The two best
networks of a size, and the real one, are then trained with 16 million tokens.

Each finished run is a row of benchmarks/results/scale.json and is not run again on this kind of device. Runs are started in
the order of ``--tokens``, ``--tasks`` and ``--sizes``; within a size the search of rates comes before further seeds.

    --seeds 1       only search the rates
    --variant NAME  one change of the network or the training, on validation data only
    --times         train nothing; measure the time of a step of each stored network alone
    --add FILE      train nothing; add the rows of another file, such as one from another machine
    --report        train nothing; print the results and write docs/frontier.md and README.md
    --dry-run       run the protocol with tiny networks, twice, and compare the results
"""

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks import machine
from benchmarks.studies import readme, scale_page
from benchmarks.studies.scale_plan import (
    ALGEBRA_ONLY,
    ALGEBRAS,
    LONG,
    SHORT,
    SIZES,
    TASKS,
    VARIANTS,
    Network,
    Run,
    next_runs,
    run_of,
)
from benchmarks.studies.scale_train import RECIPE, SMALL, Recipe, prepare, row_of, step_times

RESULTS = scale_page.RESULTS
TOKENS = {4: SHORT, 16: LONG}
"""Training tokens by their millions."""


def read(path: Path, recipe: Recipe) -> dict[str, Any]:
    """Read the results; those of another recipe are an error."""
    values = json.loads(json.dumps(recipe._asdict()))
    if not path.exists():
        return {"recipe": values, "rows": []}
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if stored["recipe"] != values:
        raise SystemExit(f"benchmarks.studies.scale: the rows of {path} have another recipe: choose another --out")
    return stored


def add(path: Path, rows: Iterable[dict[str, Any]], recipe: Recipe) -> None:
    """Add rows to the results, atomically; they replace those of the same run on the same kind of device."""
    stored = read(path, recipe)
    by_run = {(row["kind"], run_of(row)): row for row in [*stored["rows"], *rows]}
    machine.write_rows(path, stored | {"rows": [by_run[key] for key in sorted(by_run)]})


def expected_seconds(run: Run, rows: Iterable[dict[str, Any]]) -> float:
    """Return the longest time of a finished run of the same network; 0 without one."""
    return max((row["seconds"] for row in rows if run_of(row).network == run.network), default=0.0)


def measure(networks: Sequence[Network], options: argparse.Namespace, recipe: Recipe, device: str) -> None:
    """Run what is due in parallel processes until nothing is, or until no run would end in time."""
    end, failed = time.monotonic() + 60 * options.minutes, set[Run]()
    running: dict[Future[dict[str, Any]], Run] = {}
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        while True:
            rows = [row for row in read(options.out, recipe)["rows"] if row["kind"] == device]
            due = next_runs(networks, rows, options.seeds)
            due = [run for run in due if run not in failed and run not in running.values()]
            due = [run for run in due if time.monotonic() + expected_seconds(run, rows) < end]
            for run in due[: options.jobs - len(running)]:
                running[pool.submit(row_of, run, options.root, recipe, device, options.threads)] = run
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                run = running.pop(future)
                row = finished(run, future)
                add(options.out, row, recipe)
                failed |= set() if row else {run}


def finished(run: Run, future: Future[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print the result of a run and return its row; none if it failed, for example because memory was short."""
    name = f"{' '.join(map(str, run.network))}, rate {run.rate:g}, seed {run.seed}"
    try:
        row = future.result()
    except (RuntimeError, OSError) as error:
        print(f"{name}: failed: {error}", flush=True)
        return []
    result = row["diverged"] or f"validation {row['validation']:.4f}"
    print(f"{name}: {result}, {row['seconds']:.0f} s", flush=True)
    return [row]


def measure_times(options: argparse.Namespace, recipe: Recipe, device: str) -> None:
    """Measure the networks of stored rows without a time, all algebras of a size in turns and nothing else beside them."""
    prepare(options.threads)
    end = time.monotonic() + 60 * options.minutes
    rows = [row for row in read(options.out, recipe)["rows"] if row["kind"] == device and row["step_ms"] is None]
    for size, variant in dict.fromkeys((row["size"], row["variant"]) for row in rows):
        if time.monotonic() > end:
            return
        those = [row for row in rows if (row["size"], row["variant"]) == (size, variant)]
        networks = {row["algebra"]: run_of(row).network for row in those}
        times = dict(
            zip(networks, step_times(list(networks.values()), options.root, recipe, device, options.rounds), strict=True)
        )
        print(f"{size:g} million weights, {variant}: {times} ms", flush=True)
        add(options.out, [row | {"step_ms": times[row["algebra"]]} for row in those], recipe)


def dry_run(options: argparse.Namespace, device: str) -> None:
    """Run the whole protocol with tiny networks, twice, and check that it repeats exactly."""
    tokens = 4 * SMALL.batch * SMALL.length
    networks = [Network(options.tasks[0], algebra, 0.01, tokens) for algebra in options.algebras]
    losses = []
    with TemporaryDirectory() as folder:
        for number in range(2):
            options.out, options.minutes = Path(folder, f"{number}.json"), 5.0
            measure(networks, options, SMALL, device)
            rows = read(options.out, SMALL)["rows"]
            losses.append([(row["validation"], row["test"]) for row in rows])
        measure_times(options, SMALL, device)
    if losses[0] != losses[1] or not losses[0]:
        raise SystemExit(f"benchmarks.studies.scale: the losses of {len(losses[0])} runs are not repeatable on {device}")
    print(f"{len(losses[0])} runs, twice with the same losses on {device}")


def plan(options: argparse.Namespace) -> list[Network]:
    """Return the networks, the most important first, without those that a variant does not change."""
    algebras = [name for name in options.algebras if name != "real" or options.variant not in ALGEBRA_ONLY]
    return [
        Network(task, algebra, size, TOKENS[millions], options.variant)
        for millions, task, size, algebra in product(options.tokens, options.tasks, options.sizes, algebras)
    ]


def main(argv: list[str] | None = None) -> None:
    """Train what is due and store it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder that contains a folder for each data set")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--algebras", nargs="+", choices=ALGEBRAS, default=ALGEBRAS)
    parser.add_argument("--sizes", nargs="+", type=float, choices=SIZES, default=SIZES, help="millions of weights")
    parser.add_argument(
        "--tokens", nargs="+", type=int, choices=TOKENS, default=list(TOKENS), help="millions of training tokens"
    )
    parser.add_argument("--variant", choices=VARIANTS, default="base")
    parser.add_argument("--seeds", type=int, choices=(1, 3, 5), default=5, help="maximum number of seeds at the best rate")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run that would end later")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes that train side by side")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--rounds", type=int, default=10, help="measured steps of each network with --times")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--add", nargs="+", type=Path, metavar="FILE", help="only add the rows of other files of results")
    parser.add_argument("--times", action="store_true", help="only measure the time of a step")
    parser.add_argument("--dry-run", action="store_true", help="run the protocol with tiny networks; store nothing")
    parser.add_argument("--report", action="store_true", help="print the results and write the page")
    options = parser.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.dry_run:
        dry_run(options, device)
    elif options.add:
        add(options.out, [row for path in options.add for row in read(path, RECIPE)["rows"]], RECIPE)
    elif options.times:
        measure_times(options, RECIPE, device)
    elif options.report:
        print(scale_page.text(read(options.out, RECIPE)["rows"]))
        scale_page.write()
        readme.update()
    else:
        measure(plan(options), options, RECIPE, device)


if __name__ == "__main__":
    main()
