"""Repeat rows of the papers' tables: ``python -m benchmarks.papers configs/papers/phm/sva.yaml --seeds 3 --root DATA``.

Every table is a sweep in configs/papers/ that ``zoo sweep FILE`` runs too, and its comments say of all rows, of those that
match a pattern, or of the one below:

    # note: AdamW (the paper: Adam).        what differs from the paper, a line for each difference
    # note [*_cnn_*]: Without word2vec.     the same of some rows
    # published: accuracy 0.896 (Table 2)   what was printed for it
    # claim: curves only (Figure 5)         what the paper says, where it prints no figure to compare
    # significant [*_order]: Table 2: over each other row     the leads that a table calls significant; only they are judged
    # also: sva(attractors=1)               other test sets to measure its model on, with ; between them
    # beam: 4                               test it with a beam too
    # curve: exact_match                    the validation figure to keep step by step
    # setting: ten folds                    tells its rows apart from others on the same data, which have a table of their own

With ``--root`` a data set is read from the folder of its name there, instead of the Hub. Writes results/papers/PAPER/ROW.json,
seed by seed, and docs/papers.md; a seed that is there already is not run again, and one that was cut off goes on.
"""

import argparse
import csv
import json
import subprocess
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

import zoo
from benchmarks import machine, papers_plots, papers_rows, papers_table
from benchmarks.papers_rows import Row
from zoo.errors import InputError, Interrupted
from zoo.registry import Spec
from zoo.training.sweep_jobs import sweep
from zoo.training.sweep_options import Sweep

GENERATED = ("mlu", "digits", "hamilton", "linear_map")
"""Data that are made and not read."""
KEPT = ("parameters", "metrics", "epochs", "data_sha256", "folds", "std")


def rooted(spec: str, root: Path | None) -> str:
    """Point a data spec at the folder of its name in ``root``, or one that begins so, as in snli_devtest."""
    parsed = Spec.parse(spec)
    if root is None or parsed.name in GENERATED:
        return spec
    named = [root / parsed.name, root / f"tiny{parsed.name}"]
    folders = [path for path in (*named, *sorted(root.glob(f"{parsed.name}_*"))) if path.is_dir()]
    return str(Spec(parsed.name, {**parsed.options, "path": str(folders[0])})) if folders else spec


def curve(folder: Path, metric: str) -> list[tuple[int, float]]:
    """Read a validation figure of a run, step by step, from its log."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get(f"val_{metric}")]
    return [(int(row["step"]) + 1, round(float(row[f"val_{metric}"]), 6)) for row in rows]


def commit() -> str | None:
    """Return the last commit that changed the package, marked if the package is not as committed; None outside of git."""
    asked = ("git", "log", "-1", "--format=%H", "--", "zoo"), ("git", "status", "--porcelain", "--", "zoo")
    found = [subprocess.run(line, cwd=papers_rows.ROOT, capture_output=True, text=True, check=False) for line in asked]
    if any(one.returncode for one in found):
        return None
    return found[0].stdout.strip() + ("-changed" if found[1].stdout else "")


def chosen(run: Path) -> list[dict[str, Any]]:
    """Say what validation chose in a run, or in each of its folds: the epoch from 1, the step, and the figure that told."""
    from zoo.training.resume import newest

    found = [newest(folder)[1]["zoo_state"]["best"] for folder in sorted(run.glob("fold-*")) or [run]]
    return [{"epoch": best["epoch"], "step": best["step"], best["monitor"]: round(best["score"], 6)} for best in found]


def tested(run: Path, data: str, metrics: dict[str, Any]) -> int:
    """Count the answers that the test figures are means over: rows of all folds, or questions where answers are ranked."""
    from zoo.training.options import Fit
    from zoo.training.resolve import load_data, resolve

    configs = sorted(run.glob("model/config.json")) or sorted(run.glob("fold-*/model/config.json"))
    infos = [json.loads(path.read_text(encoding="utf-8")) for path in configs]
    if "map" not in metrics:
        return sum(info["info"]["sizes"]["test"] for info in infos)
    module = load_data(resolve(Fit(backbone=infos[0]["backbone"], algebra=infos[0]["algebra"], data=data)))
    module.setup("test")
    right = {int(one) for _, labels, questions in module.test_dataloader() for one in questions[labels == 1]}
    return len(right)


def figures(row: Row, run: Path, summary: dict[str, Any], root: Path | None) -> dict[str, Any]:
    """Return what is kept of a run, and measure its model as the comments of its row say."""
    said, data = row.extra, rooted(row.config["data"], root)
    found = {key: summary[key] for key in KEPT if key in summary}
    found |= {"tested": tested(run, data, summary["metrics"]), "chosen": chosen(run), "versions": summary["versions"]}
    if also := [spec.strip() for spec in said.get("also", "").split(";") if spec.strip()]:
        found["also"] = {spec: zoo.load(run, device="auto").evaluate(rooted(spec, root)) for spec in also}
    if "beam" in said:
        beam = int(said["beam"])
        found["beam"] = {"beam": beam} | zoo.load(run, device="auto").evaluate(data, beam=beam)
    if "curve" in said:
        found["curve"] = curve(run, said["curve"])
    return found


def keep(row: Row, seed: int, run: Path, root: Path | None) -> None:
    """Write what a finished run came to into the file of its row."""
    found = {"seed": seed} | figures(row, run, json.loads((run / "summary.json").read_text(encoding="utf-8")), root)
    out = papers_rows.RESULTS / row.paper / f"{row.name}.json"
    stored = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"config": None, "rows": []}
    before = [one for one in stored["rows"] if stored["config"] == row.config and one["seed"] != seed]
    rows = sorted([*before, found | {"commit": commit(), "machine": machine.info()}], key=lambda one: one["seed"])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"config": row.config, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def run(file: Path, options: argparse.Namespace) -> list[str]:
    """Run the rows and seeds of a sweep that are missing, write the file of each row as they end; return those that failed."""
    rows = {row.name: row for row in papers_rows.read(file) if fnmatchcase(row.name, options.only)}
    missing = {
        f"{row.name}-seed{seed}": (row, seed)
        for row in rows.values()
        for seed in range(options.seeds)
        if seed not in [one["seed"] for one in row.runs]
    }
    if not missing:
        return []
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    values["axes"]["seed"] = list(range(max(3, options.seeds)))
    for part in (values["base"], *values["axes"]["row"].values()):
        if "data" in part:
            part["data"] = rooted(part["data"], options.root)
    folder = options.runs / file.parent.name / file.stem

    def finished(one: Mapping[str, Any]) -> None:
        keep(*missing.pop(one["name"]), folder / one["folder"], options.root)

    wanted = Sweep(run_dir=str(folder), only=",".join(missing), jobs=options.jobs)
    for one in sweep(values, str(file), wanted, finished=finished)["rows"]:
        if one["name"] in missing:  # it had ended when this was cut off
            finished(one)
    return list(missing)


def main(argv: list[str] | None = None) -> None:
    """Parse the flags, run, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweeps", nargs="*", type=Path, help="files of rows to run; none to only write the table")
    parser.add_argument("--only", default="*", help="rows that match this pattern")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--root", type=Path, help="folder with the data sets, each in a folder of its name")
    parser.add_argument("--runs", type=Path, default=Path("runs/papers"), help="folder of the runs, which go on there")
    options = parser.parse_args(argv)
    for file in options.sweeps:
        if not file.is_file():
            parser.error(f"there is no file {file}")
    failed: list[str] = []
    said = ""
    try:
        for file in options.sweeps:
            failed += run(file, options)
    except (InputError, Interrupted) as stop:
        said = f"{stop}; "
    papers_table.write()
    rows = [row for row in papers_rows.read_all() if row.paper == "quaternion_nlp"]
    papers_plots.draw_curves(rows, "mlu_exact_match", "exact match, validation")
    said += f"failed: {', '.join(failed)}" if failed else ""
    if said:
        raise SystemExit(f"benchmarks.papers: {said.removesuffix('; ')}")


if __name__ == "__main__":
    main()
