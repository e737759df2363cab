"""Reproduce the papers' tables: ``python -m benchmarks.studies.papers configs/papers/phm/sva.yaml --seeds 3 --root DATA``.

Each table is a sweep in configs/papers/, which ``zoo sweep FILE`` can also run. Comments in it apply to all rows, to the rows
that match a pattern, or to the row below:

    # note: AdamW (paper: Adam).            difference from the paper
    # note [*_cnn_*]: No word2vec.          the same, for some rows
    # published: accuracy 0.896 (Table 2)   published result
    # claim: curves only (Figure 5)         claim of the paper without a number to compare
    # significant [*_order]: Table 2: over each other row     leads that the table calls significant; only they are tested
    # also: sva(attractors=1)               other test sets for the trained model, separated by ;
    # beam: 4                               also test with beam search
    # curve: exact_match                    validation metric to store for each step
    # setting: ten folds                    separates the row from others on the same data
    # same: phm/sva_real                    the results are those of this row, which has the same options

``--root`` reads data sets from folders instead of the Hub. Results are written to results/papers/PAPER/ROW.json after each
seed; finished seeds are skipped and interrupted ones resumed. Then docs/papers.md and docs/papers/*.md are updated.
"""

import argparse
import csv
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from zoo_experiments.options import Sweep
from zoo_experiments.sweep import sweep

import zoo
from benchmarks import machine
from benchmarks.studies import papers_rows
from benchmarks.studies.papers_rows import Row, rooted
from zoo.errors import InputError, Interrupted

STORED = ("parameters", "metrics", "epochs", "seconds", "data_sha256", "folds", "std")


def read_curve(folder: Path, metric: str) -> list[tuple[int, float]]:
    """Read the steps and values of a validation metric from the log of a run."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get(f"val_{metric}")]
    return [(int(row["step"]) + 1, round(float(row[f"val_{metric}"]), 6)) for row in rows]


def chosen_epochs(run: Path) -> list[dict[str, Any]]:
    """Return the best epoch by validation (starting at 1), its step and its score, for a run or each of its folds."""
    from zoo.training.resume import newest

    states = [newest(folder)[1]["zoo_state"]["best"] for folder in sorted(run.glob("fold-*")) or [run]]
    return [{"epoch": best["epoch"], "step": best["step"], best["monitor"]: round(best["score"], 6)} for best in states]


def tested(run: Path, data: str, metrics: dict[str, Any]) -> int:
    """Count the items that test metrics average over: rows of all folds, or questions in ranking."""
    from zoo.training.options import Fit
    from zoo.training.resolve import load_data, resolve

    configs = sorted(run.glob("model/config.json")) or sorted(run.glob("fold-*/model/config.json"))
    infos = [json.loads(path.read_text(encoding="utf-8")) for path in configs]
    if "map" not in metrics:
        return sum(info["info"]["sizes"]["test"] for info in infos)
    module = load_data(resolve(Fit(backbone=infos[0]["backbone"], algebra=infos[0]["algebra"], data=data)))
    module.setup("test")
    return len({int(question) for _, labels, questions in module.test_dataloader() for question in questions[labels == 1]})


def measure(row: Row, run: Path, summary: dict[str, Any], root: Path | None) -> dict[str, Any]:
    """Return the stored values of a run, including the additional tests in the comments of its row."""
    comments, data = row.extra, rooted(row.config["data"], root)
    values = {key: summary[key] for key in STORED if key in summary}
    values |= {"tested": tested(run, data, summary["metrics"]), "chosen": chosen_epochs(run), "versions": summary["versions"]}
    if also := [spec.strip() for spec in comments.get("also", "").split(";") if spec.strip()]:
        values["also"] = {spec: zoo.load(run, device="auto").evaluate(rooted(spec, root)) for spec in also}
    if "beam" in comments:
        beam = int(comments["beam"])
        values["beam"] = {"beam": beam} | zoo.load(run, device="auto").evaluate(data, beam=beam)
    if "curve" in comments:
        values["curve"] = read_curve(run, comments["curve"])
    return values


def store(row: Row, seed: int, run: Path, root: Path | None) -> None:
    """Add a finished run to the results of its row, replacing the same seed and dropping results of other options."""
    values = {"seed": seed} | measure(row, run, json.loads((run / "summary.json").read_text(encoding="utf-8")), root)
    out = papers_rows.RESULTS / f"{row.stored}.json"
    stored = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"config": None, "rows": []}
    others = [run for run in stored["rows"] if stored["config"] == row.config and run["seed"] != seed]
    rows = sorted([*others, values | {"commit": machine.commit(), "machine": machine.info()}], key=lambda run: run["seed"])
    machine.write(out, {"config": row.config, "rows": rows})


def run(file: Path, options: argparse.Namespace) -> list[str]:
    """Run the missing rows and seeds of a sweep and store each when it finishes; return the names of failed runs."""
    rows = {row.name: row for row in papers_rows.read(file) if fnmatchcase(row.name, options.only)}
    missing = {
        f"{row.name}-seed{seed}": (row, seed)
        for row in rows.values()
        for seed in range(options.seeds)
        if seed not in [run["seed"] for run in row.runs]
    }
    if not missing:
        return []
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    values["axes"]["seed"] = list(range(max(3, options.seeds)))
    for part in (values["base"], *values["axes"]["row"].values()):
        if "data" in part:
            part["data"] = rooted(part["data"], options.root)
    folder = options.runs / file.parent.name / file.stem

    def finished(result: Mapping[str, Any]) -> None:
        store(*missing.pop(result["name"]), folder / result["folder"], options.root)

    selection = Sweep(run_dir=str(folder), only=",".join(missing), jobs=options.jobs)
    for result in sweep(values, str(file), selection, finished=finished)["rows"]:
        if result["name"] in missing:  # finished before an interruption
            finished(result)
    return list(missing)


def write() -> None:
    """Write all pages and pictures."""
    from benchmarks.studies import papers_detail, papers_page

    papers_page.write()
    papers_detail.write()
    rows = [row for row in papers_rows.read_all() if row.paper == "quaternion_nlp"]
    papers_detail.draw_curves(rows, "mlu_exact_match", "exact match, validation")


def main(argv: list[str] | None = None) -> None:
    """Run the selected rows and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", type=Path, help="sweeps to run; without any, only write the pages")
    parser.add_argument("--only", default="*", help="pattern of the rows to run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs")
    parser.add_argument("--root", type=Path, help="folder that contains a folder for each data set")
    parser.add_argument("--runs", type=Path, default=Path("runs/papers"), help="folder of the runs")
    options = parser.parse_args(argv)
    for file in options.sweeps:
        if not file.is_file():
            parser.error(f"file not found: {file}")
    failed: list[str] = []
    errors = []
    try:
        for file in options.sweeps:
            failed += run(file, options)
    except (InputError, Interrupted) as error:
        errors.append(str(error))
    write()
    errors += [f"failed: {', '.join(failed)}"] if failed else []
    if errors:
        raise SystemExit(f"benchmarks.studies.papers: {'; '.join(errors)}")


if __name__ == "__main__":
    main()
