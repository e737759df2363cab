"""Measure frontiers of quality against weights: ``python -m benchmarks.frontier configs/frontier/trec_lstm.yaml --root DATA``.

Every file in configs/frontier/ is one of ``zoo frontier``. Interrupted work resumes, and stored results count
as finished runs. Results go to benchmarks/results/frontier/NAME.json, and docs/frontier.md is written from all of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml
from zoo_experiments.frontier import RESULT, costs, frontier, read
from zoo_experiments.options import Sweep

from benchmarks import frontier_page, machine
from benchmarks.papers import commit, rooted
from zoo.atomic import write_json

RESULTS = Path(__file__).parent / "results" / "frontier"


def collect(file: Path, folder: Path, version: str | None = None) -> None:
    """Write the finished runs of a frontier to its file of results, with the commit that has run."""
    rows = sorted(read(folder), key=lambda row: (row["net"], row["lr"] or 0, row["seed"]))
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    measured = json.loads((folder / RESULT).read_text(encoding="utf-8")).get("costs", {})
    head = {"config": config, "commit": version or commit(), "machine": machine.info() | {"threads": 1}}
    store(file.stem, head | {"costs": measured, "rows": rows})


def restore(file: Path, folder: Path, values: dict[str, Any]) -> None:
    """Let stored rows count as finished runs, in a folder that has none."""
    stored = RESULTS / file.name.replace(".yaml", ".json")
    if stored.exists() and not folder.exists():
        results = json.loads(stored.read_text(encoding="utf-8"))
        rows = [{"commit": results["commit"]} | row for row in results["rows"]]
        folder.mkdir(parents=True)
        write_json(folder / RESULT, {"config": values, "rows": rows, "costs": results["costs"]})


def store(name: str, results: dict[str, Any]) -> None:
    """Write a file of results, one line for each run."""
    head = json.dumps({key: value for key, value in results.items() if key != "rows"}, indent=1)
    lines = ",\n  ".join(json.dumps(row) for row in results["rows"])
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(f'{head[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Parse the flags, train, write results and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="files of configs/frontier; none to only write the page")
    parser.add_argument("--root", type=Path, help="folder with the data sets, each in a folder of its name")
    parser.add_argument("--runs", type=Path, default=Path("runs/frontier"), help="folder of the runs")
    parser.add_argument("--costs", action="store_true", help="measure the costs of stored networks again, and train nothing")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    options = parser.parse_args(argv)
    for file in options.files:
        values, folder = yaml.safe_load(file.read_text(encoding="utf-8")), options.runs / file.stem
        values["base"]["data"] = rooted(values["base"]["data"], options.root)
        if options.costs:
            stored = json.loads((RESULTS / f"{file.stem}.json").read_text(encoding="utf-8"))
            store(file.stem, stored | {"costs": costs(values, str(file))})
            continue
        restore(file, folder, values)
        frontier(values, str(file), Sweep(run_dir=str(folder), jobs=options.jobs))
        collect(file, folder)
    frontier_page.write()


if __name__ == "__main__":
    main()
