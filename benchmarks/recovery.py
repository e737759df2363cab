"""How soon a projected network comes near its teacher: ``python -m benchmarks.recovery``.

For every seed a real vision transformer is trained on digits, the teacher. The same network over the quaternions is then
trained by the same recipe from new weights and from the teacher's, projected, each with the labels alone and with the teacher's
probabilities beside them. Counted are the epochs until the accuracy in validation is within a point of the teacher's. The test
split is read once, by the epoch that validation chose. Writes results/recovery.json and the tables in docs/converting.md.

``--algebra octonion`` measures another algebra, ``--experiment shakespeare`` a small GPT on tiny Shakespeare, without the arms
that learn from probabilities, each into a file of its own; what is counted are then validations.

The runs are kept in ``--runs``: one that has ended is read and not repeated, one that was cut off is done again from its start.
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
from benchmarks.papers import rooted
from zoo.training.convert import convert
from zoo.training.options import Convert

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "recovery.json"
PAGE = ROOT / "docs" / "converting.md"
BEGIN, END = "<!-- table: benchmarks/results/recovery.json -->", "<!-- end of table -->"


class Experiment(NamedTuple):
    """Options of `zoo.fit`, the figure of validation, and how near to the teacher's best counts; ``less`` if less is better."""

    options: dict[str, Any]
    figure: str
    within: float
    less: bool = False


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
        less=True,
    ),
}
"""The second is the recipe of configs/papers/fraction/shakespeare_cpu.yaml."""
ARMS = {
    "new weights": (False, False),
    "new weights, teacher": (False, True),
    "projected": (True, False),
    "projected, teacher": (True, True),
}
"""Whether the weights are projected, and whether there is a teacher."""


def curve(run: Path, figure: str) -> list[float]:
    """Return a figure of validation after each validation of a run."""
    with open(run / "metrics.csv", encoding="utf-8", newline="") as file:
        return [float(row[f"val_{figure}"]) for row in csv.DictReader(file) if row.get(f"val_{figure}")]


def first(values: list[float], least: float) -> int | None:
    """Return the first epoch, counted from 1, with at least this accuracy; None if there is none.

    >>> first([0.1, 0.9, 0.8], 0.85), first([0.1], 0.5)
    (2, None)
    """
    return next((epoch for epoch, value in enumerate(values, 1) if value >= least - 1e-9), None)


def fit(run: Path, **options: Any) -> dict[str, Any]:
    """Train, or read the summary of a run of this backbone that has ended."""
    config = run / "config.yaml"
    ended = (run / "summary.json").exists() and config.exists()
    if not ended or yaml.safe_load(config.read_text(encoding="utf-8")).get("backbone") != options.get("backbone"):
        shutil.rmtree(run, ignore_errors=True)
        zoo.fit(run_dir=str(run), **options)
    found: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return found


def project(teacher: Path, algebra: str, start: Path) -> dict[str, Any]:
    """Project the teacher, and return the errors."""
    shutil.rmtree(start, ignore_errors=True)
    found: dict[str, Any] = convert(Convert(source=str(teacher), algebra=algebra, to=str(start)))["error"]
    return found


def measure(runs: Path, seeds: int, algebra: str, experiment: Experiment) -> dict[str, Any]:
    """Train the teacher and every arm with every seed."""
    rows, teachers = [], []
    options, figure, within, less = experiment
    sign = -1 if less else 1
    arms = {arm: how for arm, how in ARMS.items() if not (less and how[1])}  # a language model learns from no teacher here
    for seed in range(seeds):
        common = options | {"seed": seed}
        teacher, start = runs / f"{seed}-teacher", runs / f"{seed}-start"
        summary = fit(teacher, algebra="real", **common)
        best = max(sign * value for value in curve(teacher, figure))
        one = {"seed": seed, "validation": sign * best, "test": summary["metrics"][figure]}
        teachers.append(one | {"projection": project(teacher, algebra, start)})
        for number, (arm, (projected, taught)) in enumerate(arms.items()):
            own = {"init_from": str(start)} if projected else {}
            own |= {"teacher": str(teacher)} if taught else {}
            summary = fit(runs / f"{seed}-{number}", algebra=algebra, **common, **own)
            values = curve(runs / f"{seed}-{number}", figure)
            reached = first([sign * value for value in values], best - within)
            row = {"arm": arm, "seed": seed, "reached": reached, "validation": values}
            rows.append(row | {"test": summary["metrics"][figure], "seconds": summary["seconds"]})
            print(f"{arm}, seed {seed}: near the teacher after {reached}, test {rows[-1]['test']:.4f}", flush=True)
    facts = {name: options[name] for name in ("backbone", "data")} | {"algebra": algebra, "epochs": len(values)}
    return {"machine": machine.info(), **facts, "within": within, "teachers": teachers, "rows": rows}


def table(results: dict[str, Any]) -> str:
    """Turn a result into a Markdown table, one line for each arm."""
    epochs, teachers = results["epochs"], results["teachers"]
    experiment = next(one for one in EXPERIMENTS.values() if one.options["data"] == results["data"])
    every = experiment.options["trainer"].get("val_check_interval")
    unit = f"validations, one every {every} steps," if every else "epochs"
    near = f"{experiment.within:g} bits" if experiment.less else f"{100 * experiment.within:g} point"
    figure = experiment.figure.replace("_", " ")
    lines = [
        f"### `{results['algebra']}`, `{results['data']}`",
        "",
        f"| weights at the start | {unit} to within {near} of the teacher (each seed) | test {figure}, mean (each seed) |",
        "|---|---|---|",
    ]
    scores = [one["test"] for one in teachers]
    lines.append(f"| the real teacher | | **{mean(scores):.3f}** ({', '.join(f'{score:.3f}' for score in scores)}) |")
    for arm in arms_of(results):
        rows = [row for row in results["rows"] if row["arm"] == arm]
        reached = ", ".join(f"more than {epochs}" if row["reached"] is None else str(row["reached"]) for row in rows)
        each = ", ".join(f"{row['test']:.3f}" for row in rows)
        lines.append(f"| {arm} | {reached} | **{mean(row['test'] for row in rows):.3f}** ({each}) |")
    where = results["machine"]
    error = mean(one["projection"]["mean"] for one in teachers)
    said = (
        f"`{results['backbone']}`, {len(teachers)} seeds, mean relative error of the projection {error:.3f}; {where['date']}, "
        f"torch {where['torch']}."
    )
    return "\n".join([*lines, "", verdict(results, unit.partition(",")[0], experiment.less), "", said])


def arms_of(results: dict[str, Any]) -> list[str]:
    """Return the arms that were measured."""
    return [arm for arm in ARMS if any(row["arm"] == arm for row in results["rows"])]


def verdict(results: dict[str, Any], unit: str = "epochs", less: bool = False) -> str:
    """Say with how many seeds projected weights came near the teacher in a third of the time of new ones, and were better."""
    reached = {(row["arm"], row["seed"]): row["reached"] or math.inf for row in results["rows"]}
    test = {(row["arm"], row["seed"]): -row["test"] if less else row["test"] for row in results["rows"]}
    seeds = [one["seed"] for one in results["teachers"]]
    said = []
    for arm in arms_of(results):
        if ARMS[arm][0]:
            new = next(name for name, how in ARMS.items() if how == (False, ARMS[arm][1]))
            fast = sum(reached[arm, seed] <= reached[new, seed] / 3 < math.inf for seed in seeds)
            sooner = sum(reached[arm, seed] < reached[new, seed] for seed in seeds)
            better = sum(test[arm, seed] > test[new, seed] for seed in seeds)
            said.append(
                f"`{arm}` was sooner than `{new}` with {sooner} of {len(seeds)} seeds, in at most a third of the {unit} with "
                f"{fast}, and better in the test with {better}"
            )
    return f"{'; '.join(said)}."


def update() -> None:
    """Put the tables of all results between their marks in the page."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.parent.glob("recovery*.json"))]
    tables = "\n\n".join(table(results) for results in found)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{tables}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Parse the flags, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", choices=EXPERIMENTS, default="digits")
    parser.add_argument("--algebra", default="quaternion")
    parser.add_argument("--backbone", help="in place of that of the experiment, where the algebra does not divide its heads")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="in place of those of the experiment")
    parser.add_argument("--batches", type=int, help="steps of an epoch, for a trial; the result is then not comparable")
    parser.add_argument("--root", type=Path, help="folder with the data sets, each in a folder of its name")
    parser.add_argument("--runs", type=Path, help="where the runs are kept; by default in runs/")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    name = "recovery" + "".join(
        f"_{value}" for value in (options.experiment, options.algebra) if value not in ("digits", "quaternion")
    )
    options.out = options.out or RESULTS.with_name(f"{name}.json")
    chosen = EXPERIMENTS[options.experiment]
    trainer = chosen.options["trainer"] | {"enable_progress_bar": False}
    trainer |= {"max_epochs": options.epochs} if options.epochs else {}
    if options.batches:
        trainer = {key: value for key, value in trainer.items() if key != "val_check_interval"}
        trainer |= {"limit_train_batches": options.batches}
    own = chosen.options | ({"backbone": options.backbone} if options.backbone else {})
    own |= {"data": rooted(chosen.options["data"], options.root), "trainer": trainer}
    results = measure(options.runs or Path("runs", name), options.seeds, options.algebra, chosen._replace(options=own))
    results["data"] = chosen.options["data"]
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    update()


if __name__ == "__main__":
    main()
