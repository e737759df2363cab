"""Repeat rows of the papers' tables: ``python -m benchmarks.papers configs/papers/*/*.yaml --seeds 3 --root DATA``.

Every row is a file in configs/papers/ that ``zoo fit -c FILE`` runs too, and its comments say:

    # published: accuracy 0.896 (Table 2)   what was printed for it
    # claim: curves only (Figure 5)         what the paper says, where it prints no figure to compare
    # note: AdamW (the paper: Adam).        what differs from the paper, a line for each difference
    # also: sva(attractors=1)               other test sets to measure its model on, with ; between them
    # beam: 4                               test it with a beam too
    # curve: exact_match                    the validation figure to keep step by step

With ``--root`` a data set is read from the folder of its name there, instead of the Hub. Writes results/papers/PAPER/ROW.json,
seed by seed, and docs/papers.md; a seed that is there already is not run again.
"""

import argparse
import csv
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import zoo
from benchmarks import machine, papers_plots, papers_rows, papers_table
from benchmarks.papers_rows import Row
from zoo.registry import Spec

GENERATED = ("mlu",)
"""Data that are made and not read."""
KEPT = ("seed", "parameters", "metrics", "epochs", "data_sha256")


def rooted(spec: str, root: Path | None) -> str:
    """Point a data spec at the folder of its name in ``root``, or one that begins so, as in snli_devtest."""
    parsed = Spec.parse(spec)
    if root is None or parsed.name in GENERATED:
        return spec
    named = [root / parsed.name, root / f"tiny{parsed.name}"]
    folders = [path for path in (*named, *sorted(root.glob(f"{parsed.name}_*"))) if path.is_dir()]
    return str(Spec(parsed.name, {**parsed.options, "path": os.path.relpath(folders[0])})) if folders else spec


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


def measure(row: Row, seed: int, root: Path | None, keep: Path | None) -> dict[str, Any]:
    """Train one row with one seed and measure its model as its comments say; ``keep`` is where its run stays, if it does."""
    options, said = row.config, row.extra
    also = [spec.strip() for spec in said.get("also", "").split(";") if spec.strip()]
    with tempfile.TemporaryDirectory() as temporary:
        run = (keep or Path(temporary)) / f"seed{seed}"
        trainer = {**options.get("trainer", {}), "enable_progress_bar": False}
        trainer |= {} if "curve" in said else {"logger": False}
        data = rooted(options["data"], root)
        summary = zoo.fit(**{**options, "data": data, "seed": seed, "trainer": trainer, "run_dir": str(run)})
        found = {key: summary[key] for key in KEPT}
        if "folds" in summary:
            found |= {"folds": summary["folds"], "std": summary["std"]}
        found |= {"tested": tested(run, data, summary["metrics"]), "chosen": chosen(run), "versions": summary["versions"]}
        if also:
            found["also"] = {spec: zoo.load(run, device="auto").evaluate(rooted(spec, root)) for spec in also}
        if "beam" in said:
            beam = int(said["beam"])
            found["beam"] = {"beam": beam} | zoo.load(run, device="auto").evaluate(data, beam=beam)
        if "curve" in said:
            found["curve"] = curve(run, said["curve"])
    return found


def run(config: Path, seeds: range, root: Path | None, keep: Path | None) -> None:
    """Run the seeds of a row that are missing, and write its file after each."""
    row = papers_rows.read(config)
    out, runs = papers_rows.RESULTS / row.paper / f"{row.name}.json", list(row.runs)
    for seed in seeds:
        if any(one["seed"] == seed for one in runs):
            continue
        code, began = commit(), time.monotonic()
        found = measure(row, seed, root, keep and keep / row.name)
        runs = sorted([*runs, found | {"commit": code, "machine": machine.info()}], key=lambda one: one["seed"])
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"config": row.config, "rows": runs}, indent=1) + "\n", encoding="utf-8")
        shown = ", ".join(f"{name} {value:.4f}" for name, value in found["metrics"].items())
        print(f"{row.paper}/{row.name} seed {seed}: {shown} in {time.monotonic() - began:.0f} s", flush=True)


def main(argv: list[str] | None = None) -> None:
    """Parse the flags, run, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", type=Path, help="rows to run; none to only write the table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--root", type=Path, help="folder with the data sets, each in a folder of its name")
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    options = parser.parse_args(argv)
    for config in options.configs:
        run(config, range(options.seeds), options.root, options.keep)
    papers_table.write()
    rows = [row for row in papers_rows.read_all() if row.paper == "quaternion_nlp"]
    papers_plots.draw_curves(rows, "mlu_exact_match", "exact match, validation")


if __name__ == "__main__":
    main()
