"""Repeat rows of the papers' tables: ``python -m benchmarks.papers configs/papers/phm/sva.yaml --seeds 3 --root DATA``.

Each table is a sweep in configs/papers/ that ``zoo sweep FILE`` runs too. Its comments apply to all rows, to rows that match a
pattern, or to the row below:

    # note: AdamW (the paper: Adam).        a difference from the paper
    # note [*_cnn_*]: Without word2vec.     the same for some rows
    # published: accuracy 0.896 (Table 2)   the printed figure
    # claim: curves only (Figure 5)         the paper's claim, where it prints no figure to compare
    # significant [*_order]: Table 2: over each other row     the leads that a table calls significant; only they are judged
    # also: sva(attractors=1)               further test sets for the trained model, separated by ;
    # beam: 4                               test it with beam search too
    # curve: exact_match                    the validation metric to store step by step
    # setting: ten folds                    keeps rows apart from others on the same data

With ``--root`` a data set is read from its folder there, not from the Hub. Writes results/papers/PAPER/ROW.json seed by seed,
docs/papers.md and docs/papers/*.md; finished seeds are not run again, and interrupted ones resume.
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
from zoo_experiments.options import Sweep
from zoo_experiments.sweep import sweep

import zoo
from benchmarks import machine, papers_rows
from benchmarks.papers_rows import Row
from zoo.errors import InputError, Interrupted
from zoo.registry import Spec

GENERATED = ("mlu", "digits", "hamilton", "linear_map")
"""Data sets that are not read from files."""
STORED = ("parameters", "metrics", "epochs", "seconds", "data_sha256", "folds", "std")


def rooted(spec: str, root: Path | None) -> str:
    """Point a data spec at the folder of its name in ``root``, or at one that begins with its name, as in snli_devtest."""
    parsed = Spec.parse(spec)
    if root is None or parsed.name in GENERATED:
        return spec
    candidates = [root / parsed.name, root / f"tiny{parsed.name}"]
    folders = [path for path in (*candidates, *sorted(root.glob(f"{parsed.name}_*"))) if path.is_dir()]
    return str(Spec(parsed.name, {**parsed.options, "path": str(folders[0])})) if folders else spec


def read_curve(folder: Path, metric: str) -> list[tuple[int, float]]:
    """Read a validation metric of a run, step by step, from its log."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get(f"val_{metric}")]
    return [(int(row["step"]) + 1, round(float(row[f"val_{metric}"]), 6)) for row in rows]


def commit() -> str | None:
    """Return the last commit that changed the package, marked if the package has changes; None outside of git."""
    commands = ("git", "log", "-1", "--format=%H", "--", "zoo"), ("git", "status", "--porcelain", "--", "zoo")
    results = [subprocess.run(line, cwd=papers_rows.ROOT, capture_output=True, text=True, check=False) for line in commands]
    if any(result.returncode for result in results):
        return None
    return results[0].stdout.strip() + ("-changed" if results[1].stdout else "")


def chosen_epochs(run: Path) -> list[dict[str, Any]]:
    """Return the epoch (from 1), step and score that validation chose in a run or in each of its folds."""
    from zoo.training.resume import newest

    states = [newest(folder)[1]["zoo_state"]["best"] for folder in sorted(run.glob("fold-*")) or [run]]
    return [{"epoch": best["epoch"], "step": best["step"], best["monitor"]: round(best["score"], 6)} for best in states]


def tested(run: Path, data: str, metrics: dict[str, Any]) -> int:
    """Count the answers that test metrics average over: rows of all folds, or questions where answers are ranked."""
    from zoo.training.options import Fit
    from zoo.training.resolve import load_data, resolve

    configs = sorted(run.glob("model/config.json")) or sorted(run.glob("fold-*/model/config.json"))
    infos = [json.loads(path.read_text(encoding="utf-8")) for path in configs]
    if "map" not in metrics:
        return sum(info["info"]["sizes"]["test"] for info in infos)
    module = load_data(resolve(Fit(backbone=infos[0]["backbone"], algebra=infos[0]["algebra"], data=data)))
    module.setup("test")
    return len({int(one) for _, labels, questions in module.test_dataloader() for one in questions[labels == 1]})


def measure(row: Row, run: Path, summary: dict[str, Any], root: Path | None) -> dict[str, Any]:
    """Return what is stored of a run, and test its model further as the comments of its row say."""
    comments, data = row.extra, rooted(row.config["data"], root)
    found = {key: summary[key] for key in STORED if key in summary}
    found |= {"tested": tested(run, data, summary["metrics"]), "chosen": chosen_epochs(run), "versions": summary["versions"]}
    if also := [spec.strip() for spec in comments.get("also", "").split(";") if spec.strip()]:
        found["also"] = {spec: zoo.load(run, device="auto").evaluate(rooted(spec, root)) for spec in also}
    if "beam" in comments:
        beam = int(comments["beam"])
        found["beam"] = {"beam": beam} | zoo.load(run, device="auto").evaluate(data, beam=beam)
    if "curve" in comments:
        found["curve"] = read_curve(run, comments["curve"])
    return found


def store(row: Row, seed: int, run: Path, root: Path | None) -> None:
    """Write a finished run into the file of its row."""
    found = {"seed": seed} | measure(row, run, json.loads((run / "summary.json").read_text(encoding="utf-8")), root)
    out = papers_rows.RESULTS / row.paper / f"{row.name}.json"
    stored = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"config": None, "rows": []}
    before = [one for one in stored["rows"] if stored["config"] == row.config and one["seed"] != seed]
    rows = sorted([*before, found | {"commit": commit(), "machine": machine.info()}], key=lambda one: one["seed"])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"config": row.config, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def run(file: Path, options: argparse.Namespace) -> list[str]:
    """Run the missing rows and seeds of a sweep, and store each as it ends; return the names of those that failed."""
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

    def finished(result: Mapping[str, Any]) -> None:
        store(*missing.pop(result["name"]), folder / result["folder"], options.root)

    wanted = Sweep(run_dir=str(folder), only=",".join(missing), jobs=options.jobs)
    for result in sweep(values, str(file), wanted, finished=finished)["rows"]:
        if result["name"] in missing:  # it had ended before an interruption
            finished(result)
    return list(missing)


def write() -> None:
    """Write the pages and their pictures."""
    from benchmarks import papers_detail, papers_page

    papers_page.write()
    papers_detail.write()
    rows = [row for row in papers_rows.read_all() if row.paper == "quaternion_nlp"]
    papers_detail.draw_curves(rows, "mlu_exact_match", "exact match, validation")


def main(argv: list[str] | None = None) -> None:
    """Parse the flags, run, write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", type=Path, help="files of rows to run; none to only write the pages")
    parser.add_argument("--only", default="*", help="rows that match this pattern")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--root", type=Path, help="folder with the data sets, each in a folder of its name")
    parser.add_argument("--runs", type=Path, default=Path("runs/papers"), help="folder of the runs, which resume there")
    options = parser.parse_args(argv)
    for file in options.sweeps:
        if not file.is_file():
            parser.error(f"there is no file {file}")
    failed: list[str] = []
    message = ""
    try:
        for file in options.sweeps:
            failed += run(file, options)
    except (InputError, Interrupted) as stop:
        message = f"{stop}; "
    write()
    message += f"failed: {', '.join(failed)}" if failed else ""
    if message:
        raise SystemExit(f"benchmarks.papers: {message.removesuffix('; ')}")


if __name__ == "__main__":
    main()
