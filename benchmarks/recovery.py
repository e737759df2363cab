"""How soon a projected network comes near its teacher: ``python -m benchmarks.recovery``.

For every seed a real vision transformer is trained on digits, the teacher. The same network over the quaternions is then
trained by the same recipe from new weights and from the teacher's, projected, each with the labels alone and with the teacher's
probabilities beside them. Counted are the epochs until the accuracy in validation is within a point of the teacher's. The test
split is read once, by the epoch that validation chose. Writes results/recovery.json and the table in docs/converting.md.

The runs are kept in ``--runs``: one that has ended is read and not repeated, one that was cut off is done again from its start.
"""

import argparse
import csv
import json
import math
import shutil
from pathlib import Path
from statistics import mean
from typing import Any

import zoo
from benchmarks import machine
from zoo.training.convert import convert
from zoo.training.options import Convert

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "recovery.json"
PAGE = ROOT / "docs" / "converting.md"
BEGIN, END = "<!-- table: benchmarks/results/recovery.json -->", "<!-- end of table -->"
BACKBONE, ALGEBRA, WITHIN = "vit(depth=3, dim=48)", "quaternion", 0.01
ARMS = {
    "new weights": (False, False),
    "new weights, teacher": (False, True),
    "projected": (True, False),
    "projected, teacher": (True, True),
}
"""Whether the weights are projected, and whether there is a teacher."""


def curve(run: Path) -> list[float]:
    """Return the accuracy in validation after each epoch of a run."""
    with open(run / "metrics.csv", encoding="utf-8", newline="") as file:
        return [float(row["val_accuracy"]) for row in csv.DictReader(file) if row.get("val_accuracy")]


def first(values: list[float], least: float) -> int | None:
    """Return the first epoch, counted from 1, with at least this accuracy; None if there is none.

    >>> first([0.1, 0.9, 0.8], 0.85), first([0.1], 0.5)
    (2, None)
    """
    return next((epoch for epoch, value in enumerate(values, 1) if value >= least - 1e-9), None)


def fit(run: Path, **options: Any) -> dict[str, Any]:
    """Train, or read the summary of a run that has ended."""
    if not (run / "summary.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        zoo.fit(run_dir=str(run), **options)
    found: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return found


def project(teacher: Path, start: Path) -> dict[str, Any]:
    """Project the teacher, and return the errors."""
    shutil.rmtree(start, ignore_errors=True)
    found: dict[str, Any] = convert(Convert(source=str(teacher), algebra=ALGEBRA, to=str(start)))["error"]
    return found


def measure(runs: Path, seeds: int, trainer: dict[str, Any]) -> dict[str, Any]:
    """Train the teacher and every arm with every seed."""
    rows, teachers = [], []
    for seed in range(seeds):
        common: dict[str, Any] = {"backbone": BACKBONE, "seed": seed, "trainer": trainer}
        teacher, start = runs / f"{seed}-teacher", runs / f"{seed}-start"
        summary = fit(teacher, algebra="real", **common)
        best = max(curve(teacher))
        one = {"seed": seed, "validation": best, "test": summary["metrics"]["accuracy"]}
        teachers.append(one | {"projection": project(teacher, start)})
        for number, (arm, (projected, taught)) in enumerate(ARMS.items()):
            own = {"init_from": str(start)} if projected else {}
            own |= {"teacher": str(teacher)} if taught else {}
            run = runs / f"{seed}-{number}"
            summary = fit(run, algebra=ALGEBRA, **common, **own)
            values = curve(run)
            row = {"arm": arm, "seed": seed, "reached": first(values, best - WITHIN), "validation": values}
            rows.append(row | {"test": summary["metrics"]["accuracy"], "seconds": summary["seconds"]})
            print(f"{arm}, seed {seed}: within a point after {row['reached']}, test {rows[-1]['test']:.4f}", flush=True)
    epochs = trainer.get("max_epochs", summary["epochs"])
    facts = {"backbone": BACKBONE, "algebra": ALGEBRA, "data": "digits", "epochs": epochs, "within": WITHIN}
    return {"machine": machine.info(), **facts, "teachers": teachers, "rows": rows}


def table(results: dict[str, Any]) -> str:
    """Turn a result into a Markdown table, one line for each arm."""
    epochs, teachers = results["epochs"], results["teachers"]
    lines = ["| weights at the start | epochs to within a point of the teacher (each seed) | test accuracy, mean (each seed) |"]
    lines += ["|---|---|---|"]
    scores = [one["test"] for one in teachers]
    lines.append(f"| the real teacher | | **{mean(scores):.3f}** ({', '.join(f'{score:.3f}' for score in scores)}) |")
    for arm in ARMS:
        rows = [row for row in results["rows"] if row["arm"] == arm]
        reached = ", ".join(f"more than {epochs}" if row["reached"] is None else str(row["reached"]) for row in rows)
        each = ", ".join(f"{row['test']:.3f}" for row in rows)
        lines.append(f"| {arm} | {reached} | **{mean(row['test'] for row in rows):.3f}** ({each}) |")
    lines += ["", verdict(results)]
    where = results["machine"]
    error = mean(one["projection"]["mean"] for one in teachers)
    said = (
        f"`{results['backbone']}` over `{results['algebra']}` on `{results['data']}`, {epochs} epochs each with the default "
        f"recipe, {len(teachers)} seeds; within {100 * results['within']:g} point of the teacher's best in validation. "
        f"Mean relative error of the projection {error:.3f}. {where['date']}, torch {where['torch']}. Made by "
        "`python -m benchmarks.recovery`."
    )
    return "\n".join([*lines, "", said])


def verdict(results: dict[str, Any]) -> str:
    """Say with how many seeds projected weights came near the teacher in a third of the epochs that new ones took."""
    reached = {(row["arm"], row["seed"]): row["reached"] or math.inf for row in results["rows"]}
    seeds = [one["seed"] for one in results["teachers"]]
    said = []
    for arm in ("projected", "projected, teacher"):
        fast = sum(reached[arm, seed] <= reached["new weights", seed] / 3 < math.inf for seed in seeds)
        sooner = sum(reached[arm, seed] < reached["new weights", seed] for seed in seeds)
        said.append(f"`{arm}` was sooner with {sooner} of {len(seeds)} seeds, in at most a third of the epochs with {fast}")
    return f"Beside new weights, {'; '.join(said)}."


def update(results: dict[str, Any], page: Path = PAGE) -> None:
    """Put the table between its marks in the page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Parse the flags, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batches", type=int, help="steps of an epoch, for a trial; the result is then not comparable")
    parser.add_argument("--runs", type=Path, default=Path("runs", "recovery"), help="where the runs are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    trainer = {"max_epochs": options.epochs, "enable_progress_bar": False}
    trainer |= {} if options.batches is None else {"limit_train_batches": options.batches}
    results = measure(options.runs, options.seeds, trainer)
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.out == RESULTS:
        update(results)


if __name__ == "__main__":
    main()
