"""Measure how fast a projected network recovers the quality of its teacher: ``python -m benchmarks.studies.recovery``.

For each seed a real vision transformer (the teacher) is trained on digits. The same network over the quaternions is then
trained with the same recipe from new weights and from the projected weights of the teacher, each with and without distillation
from the teacher. The script counts the epochs until the validation accuracy is within one point of the teacher's. The
checkpoint with the best validation result is tested once. Writes results/recovery.json and the tables in docs/converting.md.

``--algebra octonion`` selects another algebra. ``--experiment shakespeare`` trains a small GPT on tiny Shakespeare without
distillation, and counts validations instead of epochs. Each combination has its own file of results.

Finished runs in ``--runs`` are reused; interrupted runs are restarted.
"""

import argparse
import csv
import json
import math
import shutil
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import yaml

import zoo
from benchmarks import machine
from benchmarks.machine import ROOT, replace_table
from benchmarks.studies.command import result_of
from benchmarks.studies.papers_rows import rooted

RESULTS = machine.RESULTS / "recovery.json"
PAGE = ROOT / "docs" / "converting.md"
BEGIN = "<!-- table: benchmarks/results/recovery.json -->"


class Experiment(NamedTuple):
    """An experiment.

    Attributes:
        options: Options of `zoo.fit`.
        metric: Name of the metric.
        within: Maximum difference from the teacher's best validation result.
        lower: Whether lower is better.
    """

    options: dict[str, Any]
    metric: str
    within: float
    lower: bool = False


EXPERIMENTS = {
    "digits": Experiment(
        {"backbone": "vit(depth=3, dim=48)", "data": "digits", "trainer": {"max_epochs": 30}}, "accuracy", 0.01
    ),
    "shakespeare": Experiment(
        {
            "backbone": "gpt/micro",
            "data": "shakespeare(max_length=64)",
            "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.1, "betas": [0.9, 0.99]},
            "schedule": {"name": "cosine", "warmup": 0.05, "floor": 0.1},
            "batch_size": 12,
            "trainer": {"max_steps": 2000, "val_check_interval": 200, "gradient_clip_val": 1.0},
        },
        "bits_per_character",
        0.05,
        lower=True,
    ),
}
"""The recipe on Shakespeare is that of configs/papers/fraction/shakespeare_cpu.yaml."""
ARMS = {
    "new weights": (False, False),
    "new weights, teacher": (False, True),
    "projected": (True, False),
    "projected, teacher": (True, True),
}
"""Whether the weights are projected, and whether the teacher is distilled."""


def curve(run: Path, metric: str) -> list[float]:
    """Return the validation results of a run."""
    with open(run / "metrics.csv", encoding="utf-8", newline="") as file:
        return [float(row[f"val_{metric}"]) for row in csv.DictReader(file) if row.get(f"val_{metric}")]


def first(values: list[float], least: float) -> int | None:
    """Return the first epoch, starting at 1, with at least a given value; None if there is none.

    >>> first([0.1, 0.9, 0.8], 0.85), first([0.1], 0.5)
    (2, None)
    """
    return next((epoch for epoch, value in enumerate(values, 1) if value >= least - 1e-9), None)


def fit(run: Path, **options: Any) -> dict[str, Any]:
    """Train unless a run with this backbone is finished, and return its summary."""
    config = run / "config.yaml"
    is_finished = (run / "summary.json").exists() and config.exists()
    if not is_finished or yaml.safe_load(config.read_text(encoding="utf-8")).get("backbone") != options.get("backbone"):
        shutil.rmtree(run, ignore_errors=True)
        zoo.fit(run_dir=str(run), **options)
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return summary


def project(teacher: Path, algebra: str, start: Path) -> dict[str, Any]:
    """Project the weights of the teacher and return the errors."""
    shutil.rmtree(start, ignore_errors=True)
    errors: dict[str, Any] = result_of("convert", "--from", str(teacher), "--algebra", algebra, "--to", str(start))["error"]
    return errors


def measure(runs: Path, seeds: int, algebra: str, experiment: Experiment) -> dict[str, Any]:
    """Train the teacher and all arms with each seed."""
    rows, teachers = [], []
    options, metric, within, lower = experiment
    sign = -1 if lower else 1
    arms = {arm: flags for arm, flags in ARMS.items() if not (lower and flags[1])}  # no distillation of language models
    for seed in range(seeds):
        common = options | {"seed": seed}
        teacher, start = runs / f"{seed}-teacher", runs / f"{seed}-start"
        summary = fit(teacher, algebra="real", **common)
        best = max(sign * value for value in curve(teacher, metric))
        results = {"seed": seed, "validation": sign * best, "test": summary["metrics"][metric]}
        teachers.append(results | {"projection": project(teacher, algebra, start)})
        for number, (arm, (projected, taught)) in enumerate(arms.items()):
            start_options = {"init_from": str(start)} if projected else {}
            start_options |= {"teacher": str(teacher)} if taught else {}
            summary = fit(runs / f"{seed}-{number}", algebra=algebra, **common, **start_options)
            values = curve(runs / f"{seed}-{number}", metric)
            reached = first([sign * value for value in values], best - within)
            row = {"arm": arm, "seed": seed, "reached": reached, "validation": values}
            rows.append(row | {"test": summary["metrics"][metric], "seconds": summary["seconds"]})
            print(f"{arm}, seed {seed}: reached the teacher after {reached}, test {rows[-1]['test']:.4f}", flush=True)
    facts = {name: options[name] for name in ("backbone", "data")} | {"algebra": algebra, "epochs": len(values)}
    return {"machine": machine.info(), **facts, "within": within, "teachers": teachers, "rows": rows}


def table(results: dict[str, Any]) -> str:
    """Format results as a Markdown table with one line per arm."""
    epochs, teachers = results["epochs"], results["teachers"]
    experiment = next(e for e in EXPERIMENTS.values() if e.options["data"] == results["data"])
    every = experiment.options["trainer"].get("val_check_interval")
    unit = f"validations (every {every} steps)" if every else "epochs"
    distance = f"{experiment.within:g} bits" if experiment.lower else f"{100 * experiment.within:g} point"
    metric = experiment.metric.replace("_", " ")
    lines = [
        f"### `{results['algebra']}`, `{results['data']}`",
        "",
        f"| initial weights | {unit} until within {distance} of the teacher (each seed) | test {metric}, mean (each seed) |",
        "|---|---|---|",
    ]
    scores = [teacher["test"] for teacher in teachers]
    lines.append(f"| the real teacher | | **{mean(scores):.3f}** ({', '.join(f'{score:.3f}' for score in scores)}) |")
    for arm in arms_of(results):
        rows = [row for row in results["rows"] if row["arm"] == arm]
        reached = ", ".join(f"more than {epochs}" if row["reached"] is None else str(row["reached"]) for row in rows)
        each = ", ".join(f"{row['test']:.3f}" for row in rows)
        lines.append(f"| {arm} | {reached} | **{mean(row['test'] for row in rows):.3f}** ({each}) |")
    where = results["machine"]
    error = mean(teacher["projection"]["mean"] for teacher in teachers)
    details = (
        f"`{results['backbone']}`, {len(teachers)} seeds, mean relative error of the projection {error:.3f}; measured "
        f"{where['date']} with torch {where['torch']}."
    )
    return "\n".join([*lines, "", verdict(results, unit.partition(" ")[0], experiment.lower), "", details])


def arms_of(results: dict[str, Any]) -> list[str]:
    """Return the measured arms."""
    return [arm for arm in ARMS if any(row["arm"] == arm for row in results["rows"])]


def verdict(results: dict[str, Any], unit: str, lower: bool) -> str:
    """Count the seeds with which projected weights are faster and better than new weights."""
    reached = {(row["arm"], row["seed"]): row["reached"] or math.inf for row in results["rows"]}
    test = {(row["arm"], row["seed"]): -row["test"] if lower else row["test"] for row in results["rows"]}
    seeds = [teacher["seed"] for teacher in results["teachers"]]
    sentences = []
    for arm in arms_of(results):
        if ARMS[arm][0]:
            new = next(name for name, flags in ARMS.items() if flags == (False, ARMS[arm][1]))
            fast = sum(reached[arm, seed] <= reached[new, seed] / 3 < math.inf for seed in seeds)
            sooner = sum(reached[arm, seed] < reached[new, seed] for seed in seeds)
            better = sum(test[arm, seed] > test[new, seed] for seed in seeds)
            sentences.append(
                f"`{arm}` needed fewer {unit} than `{new}` with {sooner} of {len(seeds)} seeds, at most a third with {fast}, "
                f"and had a better test result with {better}."
            )
    return " ".join(sentences)


def update() -> None:
    """Update the tables on the page."""
    files = sorted(RESULTS.parent.glob("recovery*.json"))
    tables = "\n\n".join(table(json.loads(path.read_text(encoding="utf-8"))) for path in files)
    PAGE.write_text(replace_table(PAGE.read_text(encoding="utf-8"), BEGIN, tables), encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Train all arms and write the results and the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", choices=EXPERIMENTS, default="digits")
    parser.add_argument("--algebra", default="quaternion")
    parser.add_argument("--backbone", help="another backbone, if the algebra does not divide the heads of the default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--root", type=Path, help="folder that contains a folder for each data set")
    parser.add_argument("--runs", type=Path, help="folder of the runs; by default in runs/")
    options = parser.parse_args(argv)
    name = "recovery" + "".join(
        f"_{value}" for value in (options.experiment, options.algebra) if value not in ("digits", "quaternion")
    )
    chosen = EXPERIMENTS[options.experiment]
    trainer = chosen.options["trainer"] | {"enable_progress_bar": False}
    fit_options = chosen.options | ({"backbone": options.backbone} if options.backbone else {})
    fit_options |= {"data": rooted(chosen.options["data"], options.root), "trainer": trainer}
    results = measure(options.runs or Path("runs", name), options.seeds, options.algebra, chosen._replace(options=fit_options))
    results["data"] = chosen.options["data"]
    machine.write(RESULTS.with_name(f"{name}.json"), results)
    update()


if __name__ == "__main__":
    main()
