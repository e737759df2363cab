"""Repeat rows of the papers' tables: ``python -m benchmarks.papers configs/papers/*/*.yaml --seeds 3 --root DATA``.

Every row is a file in configs/papers/ that ``zoo fit -c FILE`` runs too; comments in it say what was published (``# published:
accuracy 0.896 (Table 2)``), on which other test sets its model is measured (``# also: sva(attractors=1)``), that it is also
tested with a beam (``# beam: 4``), and which validation figure is kept step by step (``# curve: exact_match``). With
``--root`` a data set is read from the folder of its name there, instead of the Hub. Writes results/papers/PAPER/ROW.json,
seed by seed, and docs/papers.md; a seed that is there already is not run again.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

import zoo
from benchmarks import machine, papers_plots, papers_table
from zoo.registry import Spec

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "papers"
GENERATED = ("mlu",)
"""Data that are made and not read."""
KEPT = ("seed", "parameters", "metrics", "epochs", "data_sha256")


def read(config: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options of a row and what its comments say, by keyword."""
    text = config.read_text(encoding="utf-8")
    return yaml.safe_load(text), dict(re.findall(r"^# (published|also|note|beam|curve): (.*)$", text, re.MULTILINE))


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
    found = [subprocess.run(line, cwd=HERE.parent, capture_output=True, text=True, check=False) for line in asked]
    if any(one.returncode for one in found):
        return None
    return found[0].stdout.strip() + ("-changed" if found[1].stdout else "")


def chosen(run: Path) -> list[dict[str, Any]]:
    """Say what validation chose in a run, or in each of its folds: the epoch from 1, the step, and the figure that told."""
    import torch

    rows = []
    for path in sorted(run.glob("checkpoints/best.ckpt")) or sorted(run.glob("fold-*/checkpoints/best.ckpt")):
        saved = torch.load(path, map_location="cpu", weights_only=True)
        best = next(state for state in saved["callbacks"].values() if state.get("monitor"))
        figure = round(float(best["best_model_score"]), 6)
        rows.append({"epoch": saved["epoch"] + 1, "step": saved["global_step"], best["monitor"]: figure})
    return rows


def measure(options: dict[str, Any], said: dict[str, str], seed: int, root: Path | None, keep: Path | None) -> dict[str, Any]:
    """Train one row with one seed and measure its model as its comments say; ``keep`` is where its run stays, if it does."""
    from zoo.inference import evaluate

    also = [spec.strip() for spec in said.get("also", "").split(";") if spec.strip()]
    with tempfile.TemporaryDirectory() as temporary:
        folder = temporary if keep is None else str(keep)
        trainer = {**options.get("trainer", {}), "enable_progress_bar": False}
        trainer |= {} if "curve" in said else {"logger": False}
        data = rooted(options["data"], root)
        summary = zoo.fit(**{**options, "data": data, "seed": seed, "trainer": trainer, "run_dir": f"{folder}/seed{seed}"})
        row = {key: summary[key] for key in KEPT}
        if "folds" in summary:
            row |= {"folds": summary["folds"], "std": summary["std"]}
        run = f"{folder}/seed{seed}"
        row |= {"chosen": chosen(Path(run)), "versions": summary["versions"]}
        if also:
            row["also"] = {spec: evaluate(run, "test", rooted(spec, root)) for spec in also}
        if "beam" in said:
            row["beam"] = {"beam": int(said["beam"])} | evaluate(run, "test", data, decoding={"beam": int(said["beam"])})
        if "curve" in said:
            row["curve"] = curve(Path(run), said["curve"])
    return row


def run(config: Path, seeds: range, root: Path | None, keep: Path | None) -> None:
    """Run the seeds of a row that are missing, and write its file after each."""
    options, said = read(config)
    out = RESULTS / config.parent.name / f"{config.stem}.json"
    stored: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"config": options, "rows": []}
    if stored["config"] != options:
        stored = {"config": options, "rows": []}
    for seed in seeds:
        if any(row["seed"] == seed for row in stored["rows"]):
            continue
        code, began = commit(), time.monotonic()
        row = measure(options, said, seed, root, keep and keep / config.stem)
        stored["rows"].append(row | {"commit": code, "machine": machine.info()})
        stored["rows"].sort(key=lambda row: row["seed"])
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        shown = ", ".join(f"{name} {value:.4f}" for name, value in row["metrics"].items())
        print(f"{config.parent.name}/{config.stem} seed {seed}: {shown} in {time.monotonic() - began:.0f} s", flush=True)


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
    papers_plots.draw_curves(papers_table.rows_of("quaternion_nlp"), "mlu_exact_match", "exact match, validation")


if __name__ == "__main__":
    main()
