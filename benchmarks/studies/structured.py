"""Measure structured pruning of the vision transformer on digits: ``python -m benchmarks.studies.structured [FOLDER]``.

The default ``vit`` (dim 64, depth 4) is trained with its recipe, pruned at ratio 0.5, and fine-tuned for 20 epochs at the same
learning rate, with three seeds. The smaller network is also trained from scratch, for the epochs of fine-tuning and for all
epochs together. Forward passes before and after pruning alternate on one thread and are measured in processor time, which
depends little on the load. Finished runs in FOLDER are reused. Writes results/structured.json.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import torch

import zoo
from benchmarks import machine
from benchmarks.studies.command import result_of

RESULTS = machine.RESULTS / "structured.json"
ALGEBRAS, SEEDS, RATIO, EPOCHS = ("real", "quaternion"), (0, 1, 2), 0.5, 20
BATCHES, REPEATS = (1, 64), 200
QUIET: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False}
PRUNE = ("--ratio", str(RATIO), "--epochs", str(EPOCHS), "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false")


def accuracies(algebra: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train, prune and fine-tune once; return the spec and the test accuracies in percent."""
    run = folder / f"{algebra}-{seed}"
    options: dict[str, Any] = {"algebra": algebra, "data": "digits", "seed": seed, "verbose": False}
    fitted = cached(run / "fit.json", lambda: zoo.fit(backbone="vit", run_dir=str(run / "fit"), trainer=QUIET, **options))
    result = cached(run / "pruned.json", lambda: result_of("prune", fitted["run_dir"], *PRUNE))
    stages = {name: 100 * result[name]["metrics"]["accuracy"] for name in ("before", "after", "tuned")}
    for epochs in (EPOCHS, EPOCHS + fitted["epochs"]):
        options |= {"run_dir": str(run / f"new-{epochs}"), "trainer": QUIET | {"max_epochs": epochs}}
        scratch = cached(run / f"new-{epochs}.json", partial(zoo.fit, backbone=result["backbone"], **options))
        stages[f"new_{epochs}"] = 100 * scratch["metrics"]["accuracy"]
    return {"spec": result["backbone"], "parameters": result["parameters"], **stages}


def cached(file: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read a result from a file, or compute it and write the file."""
    if not file.exists():
        machine.write(file, compute())
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result


def forward(run: Path, batch: int) -> dict[str, float]:
    """Return the median milliseconds of a forward pass before and after pruning."""
    nets = [zoo.load(path).net for path in (run / "fit", run / f"fit/pruned-{RATIO}")]
    images = torch.randn(batch, 1, 8, 8)
    times: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode():
        for _ in range(REPEATS):
            for net, values in zip(nets, times, strict=True):
                start = time.process_time()
                net(images)
                values.append(1000 * (time.process_time() - start))
    before, after = (median(values[20:]) for values in times)
    return {"batch": batch, "before_ms": round(before, 3), "after_ms": round(after, 3), "ratio": round(after / before, 3)}


def measure(algebra: str, folder: Path) -> dict[str, Any]:
    """Return the results of an algebra: accuracies over seeds, and forward times of the first seed."""
    runs = [accuracies(algebra, seed, folder) for seed in SEEDS]
    row = {"algebra": algebra, "pruned": runs[0]["spec"], "parameters": runs[0]["parameters"]}
    for name in list(runs[0])[2:]:
        row[name] = {"mean": round(mean(run[name] for run in runs), 2), "each": [round(run[name], 2) for run in runs]}
    return row | {"forward": [forward(folder / f"{algebra}-{SEEDS[0]}", batch) for batch in BATCHES]}


def main() -> None:
    """Measure and write the results."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    with TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        rows = [measure(algebra, folder) for algebra in ALGEBRAS]
    shape = f"vit on digits, ratio {RATIO}, {EPOCHS} epochs of fine-tuning, test accuracy in percent, seeds {SEEDS}"
    machine.write(RESULTS, {"machine": machine.info(), "shape": shape, "rows": rows})
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
