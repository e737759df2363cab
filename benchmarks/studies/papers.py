"""Reproduce the papers' tables: ``python -m benchmarks.studies.papers configs/papers/phm/sva.yaml --seeds 3 --root DATA``.

Each table is a sweep in configs/papers/, which ``zoo sweep FILE`` runs. Comments in it apply to all rows, to the rows
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

``--root`` reads data sets from folders instead of the Hub. Results are written to results/papers/PAPER/ROW.json when a sweep
ends or is interrupted; finished seeds are skipped and interrupted ones resumed. Then docs/papers.md and docs/papers/*.md are
updated.
"""

import argparse
import csv
import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

import zoo
from benchmarks import machine
from benchmarks.studies import papers_rows
from benchmarks.studies.papers_rows import Row, rooted
from zoo.cli import main as command
from zoo.data import ready
from zoo.registry import create

STORED = ("parameters", "metrics", "epochs", "seconds", "data_sha256", "folds", "std")


def read_curve(folder: Path, metric: str) -> list[tuple[int, float]]:
    """Read the steps and values of a validation metric from the log of a run."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get(f"val_{metric}")]
    return [(int(row["step"]) + 1, round(float(row[f"val_{metric}"]), 6)) for row in rows]


def chosen_epochs(run: Path) -> list[dict[str, Any]]:
    """Return the best epoch by validation (starting at 1), its step and its score, for a run or each of its folds."""
    files = [folder / "summary.json" for folder in sorted(run.glob("fold-*")) or [run]]
    found = [json.loads(file.read_text(encoding="utf-8"))["validation"] for file in files]
    return [{"epoch": best["epoch"], "step": best["step"], f"val_{best['metric']}": best["value"]} for best in found]


def tested(run: Path, data: str, metrics: dict[str, Any]) -> int:
    """Count the items that test metrics average over: rows of all folds, or questions in ranking."""
    configs = sorted(run.glob("model/config.json")) or sorted(run.glob("fold-*/model/config.json"))
    infos = [json.loads(path.read_text(encoding="utf-8")) for path in configs]
    if "map" not in metrics:
        return sum(info["info"]["sizes"]["test"] for info in infos)
    batches = ready(create("zoo.datasets", data)).test_dataloader()
    return len({int(question) for _, labels, questions in batches for question in questions[labels == 1]})


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


def run(file: Path, options: argparse.Namespace) -> tuple[int, list[str]]:
    """Run the missing rows and seeds of a sweep and store them; return the exit code and the names of the missing runs."""
    rows = {row.name: row for row in papers_rows.read(file) if fnmatchcase(row.name, options.only)}
    missing = {
        f"{row.name}-seed{seed}": (row, seed)
        for row in rows.values()
        for seed in range(options.seeds)
        if seed not in [run["seed"] for run in row.runs]
    }
    if not missing:
        return 0, []
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    values["axes"]["seed"] = list(range(max(3, options.seeds)))
    for part in (values["base"], *values["axes"]["row"].values()):
        if "data" in part:
            part["data"] = rooted(part["data"], options.root)
    folder = options.runs / file.parent.name / file.stem
    config = folder.with_suffix(".yaml")
    folder.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    selection = ["--run-dir", str(folder), "--only", ",".join(missing), "--jobs", str(options.jobs)]
    code, finished = command(["sweep", str(config), *selection]), folder / "results.jsonl"
    for line in finished.read_text(encoding="utf-8").splitlines() if finished.exists() else ():
        result = json.loads(line)
        if result["name"] in missing:
            store(*missing.pop(result["name"]), folder / result["folder"], options.root)
    return code, list(missing)


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
    missing: list[str] = []
    for file in options.sweeps:
        code, names = run(file, options)
        missing += names
        if code > 1:  # not a run that failed
            break
    write()
    if missing:
        raise SystemExit(f"benchmarks.studies.papers: not finished: {', '.join(missing)}")


if __name__ == "__main__":
    main()
