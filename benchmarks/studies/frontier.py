"""Measure quality against weights: ``python -m benchmarks.studies.frontier configs/frontier/trec_lstm.yaml --root DATA``.

Each file in configs/frontier/ can also be run with ``zoo frontier``. Interrupted runs are resumed, and stored results count as
finished runs. Results are written to benchmarks/results/frontier/NAME.json, also at an interruption; docs/frontier.md
and the answer in README.md are generated from all of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml
from zoo_experiments.frontier import RESULT, costs, frontier, read_runs
from zoo_experiments.options import Experiment
from zoo_experiments.sweep import ROWS

from benchmarks import machine
from benchmarks.studies import frontier_page, readme
from benchmarks.studies.frontier_page import RESULTS
from benchmarks.studies.papers_rows import rooted
from zoo.atomic import write_json
from zoo.errors import Interrupted


def collect(file: Path, folder: Path) -> dict[str, Any]:
    """Return the results of the finished runs of a frontier."""
    stored = json.loads((folder / RESULT).read_text(encoding="utf-8")) if (folder / RESULT).exists() else {}
    return {
        "config": yaml.safe_load(file.read_text(encoding="utf-8")),
        "commit": machine.commit(),
        "machine": machine.info() | {"threads": 1},
        "costs": stored.get("costs", {}),
        "rows": sorted(read_runs(folder), key=lambda row: (row["net"], row["lr"] or 0, row["seed"])),
    }


def restore(path: Path, folder: Path, values: dict[str, Any]) -> None:
    """Create the folder of a frontier from stored results, unless it exists."""
    if path.exists() and not folder.exists():
        results = json.loads(path.read_text(encoding="utf-8"))
        source = {"commit": results["commit"], "processor": results["machine"]["processor"]}
        rows = [source | row for row in results["rows"]]
        folder.mkdir(parents=True)
        write_json(folder / RESULT, {"config": values, "rows": rows, "costs": results.get("costs", {})})
        (folder / ROWS).touch()  # without it, a sweep refuses a folder that is not empty


def main(argv: list[str] | None = None) -> None:
    """Train the networks of the frontiers, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="files in configs/frontier; without any, only write the page")
    parser.add_argument("--root", type=Path, help="folder that contains a folder for each data set")
    parser.add_argument("--runs", type=Path, default=Path("runs/frontier"), help="folder of the runs")
    parser.add_argument("--costs", action="store_true", help="only measure the costs of the stored networks again")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs")
    options = parser.parse_args(argv)
    for file in options.files:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
        folder, path = options.runs / file.stem, RESULTS / f"{file.stem}.json"
        values["base"]["data"] = rooted(values["base"]["data"], options.root)
        if options.costs:
            results = json.loads(path.read_text(encoding="utf-8")) | {"costs": costs(values, str(file))}
            machine.write_rows(path, results)
            continue
        restore(path, folder, values)
        try:
            frontier(values, str(file), Experiment(run_dir=str(folder), jobs=options.jobs))
        except Interrupted as stop:
            raise SystemExit(f"benchmarks.studies.frontier: {stop}") from stop
        finally:
            if (results := collect(file, folder))["rows"]:
                machine.write_rows(path, results)
    frontier_page.write()
    readme.update()


if __name__ == "__main__":
    main()
