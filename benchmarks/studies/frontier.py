"""Measure quality against weights: ``python -m benchmarks.studies.frontier configs/frontier/trec_lstm.yaml --root DATA``.

Each file in configs/frontier/ is run with ``zoo frontier``. Interrupted runs are resumed, and stored results count as finished
runs. Results are written to benchmarks/results/frontier/NAME.json, also at an interruption; docs/frontier.md and the answer in
README.md are generated from all of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

from benchmarks import machine
from benchmarks.studies import frontier_page, readme
from benchmarks.studies.frontier_page import RESULTS
from benchmarks.studies.papers_rows import rooted
from zoo.cli import main as command


def collect(file: Path, folder: Path) -> dict[str, Any]:
    """Return the results of the finished runs of a frontier."""
    path = folder / "frontier.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": [], "costs": {}}
    return {
        "config": yaml.safe_load(file.read_text(encoding="utf-8")),
        "commit": machine.commit(),
        "machine": machine.info() | {"threads": 1},
        "costs": stored["costs"],
        "rows": sorted(stored["rows"], key=lambda row: (row["net"], row["lr"] or 0, row["seed"])),
    }


def restore(path: Path, folder: Path, values: dict[str, Any], with_costs: bool = True) -> None:
    """Write stored results as the frontier.json of a folder."""
    results = json.loads(path.read_text(encoding="utf-8"))
    source = {"commit": results["commit"], "processor": results["machine"]["processor"]}
    rows = [source | row for row in results["rows"]]
    costs = results.get("costs", {}) if with_costs else {}
    machine.write(folder / "frontier.json", {"config": values, "rows": rows, "costs": costs})


def main(argv: list[str] | None = None) -> None:
    """Train the networks of the frontiers, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="files in configs/frontier; without any, only write the page")
    parser.add_argument("--root", type=Path, help="folder that contains a folder for each data set")
    parser.add_argument("--runs", type=Path, default=Path("runs/frontier"), help="folder of the runs")
    parser.add_argument("--costs", action="store_true", help="measure the costs of the networks again")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs")
    options = parser.parse_args(argv)
    for file in options.files:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
        folder, path, config = options.runs / file.stem, RESULTS / f"{file.stem}.json", options.runs / file.name
        values["base"]["data"] = rooted(values["base"]["data"], options.root)
        if path.exists() and (options.costs or not folder.exists()):
            restore(path, folder, values, with_costs=not options.costs)
        options.runs.mkdir(parents=True, exist_ok=True)
        config.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
        code = command(["frontier", str(config), "--run-dir", str(folder), "--jobs", str(options.jobs)])
        if (results := collect(file, folder))["rows"]:
            machine.write_rows(path, results)
        if code > 1:  # not a run that failed
            raise SystemExit(code)
    frontier_page.write()
    readme.update()


if __name__ == "__main__":
    main()
