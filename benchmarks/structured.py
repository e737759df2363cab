"""Measure structured pruning of the vision transformer on digits: ``python -m benchmarks.structured [FOLDER]``.

The default ``vit`` (dim 64, depth 4) is trained as its recipe says, pruned at ratio 0.5, and fine-tuned for 20 epochs at the
learning rate it was trained with; three seeds. The smaller network is also trained from new weights, for the epochs of
fine-tuning and for all epochs together. Forward passes of the networks before and after alternate on one thread, in processor
time, which other work on the machine changes little. What FOLDER holds from an earlier call is not trained again. Writes
results/structured.json.
"""

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import torch

import zoo
from benchmarks import machine
from zoo.training.options import Prune
from zoo.training.prune import prune

RESULTS = Path(__file__).parent / "results" / "structured.json"
ALGEBRAS, SEEDS, RATIO, EPOCHS = ("real", "quaternion"), (0, 1, 2), 0.5, 20
BATCHES, REPEATS = (1, 64), 200
QUIET: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False}


def accuracies(algebra: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train, prune and fine-tune once; return the spec and the test accuracies in percent."""
    run = folder / f"{algebra}-{seed}"
    options: dict[str, Any] = {"algebra": algebra, "data": "digits", "seed": seed}
    fresh = kept(run / "fit.json", lambda: zoo.fit(backbone="vit", run_dir=str(run / "fit"), trainer=QUIET, **options))
    result = kept(run / "pruned.json", lambda: prune(fresh["run_dir"], Prune(ratio=RATIO, epochs=EPOCHS, trainer=QUIET)))
    stages = {name: 100 * result[name]["metrics"]["accuracy"] for name in ("before", "after", "tuned")}
    for epochs in (EPOCHS, EPOCHS + fresh["epochs"]):
        own: dict[str, Any] = {"run_dir": str(run / f"new-{epochs}"), "trainer": QUIET | {"max_epochs": epochs}}
        made = kept(run / f"new-{epochs}.json", lambda own=own: zoo.fit(backbone=result["backbone"], **options, **own))
        stages[f"new_{epochs}"] = 100 * made["metrics"]["accuracy"]
    return {"spec": result["backbone"], "parameters": result["parameters"], **stages}


def kept(file: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a file of an earlier call holds, else make it and write the file."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            made = make()
        file.write_text(json.dumps(made), encoding="utf-8")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def forward(run: Path, batch: int) -> dict[str, float]:
    """Return the median milliseconds of a forward pass before and after, alternating."""
    nets = [zoo.load(path).net for path in (run / "fit", run / f"fit/pruned-{RATIO}")]
    images = torch.randn(batch, 1, 8, 8)
    times: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode():
        for _ in range(REPEATS):
            for net, own in zip(nets, times, strict=True):
                start = time.process_time()
                net(images)
                own.append(1000 * (time.process_time() - start))
    before, after = (median(own[20:]) for own in times)
    return {"batch": batch, "before_ms": round(before, 3), "after_ms": round(after, 3), "ratio": round(after / before, 3)}


def measure(algebra: str, folder: Path) -> dict[str, Any]:
    """Return the row of one algebra: means over the seeds, and the times of seed 0."""
    runs = [accuracies(algebra, seed, folder) for seed in SEEDS]
    row = {"algebra": algebra, "pruned": runs[0]["spec"], "parameters": runs[0]["parameters"]}
    for name in list(runs[0])[2:]:
        row[name] = {"mean": round(mean(run[name] for run in runs), 2), "each": [round(run[name], 2) for run in runs]}
    return row | {"forward": [forward(folder / f"{algebra}-{SEEDS[0]}", batch) for batch in BATCHES]}


def main() -> None:
    """Measure and write the result."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    with TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        rows = [measure(algebra, folder) for algebra in ALGEBRAS]
    shape = f"vit on digits, ratio {RATIO}, {EPOCHS} epochs of fine-tuning, test accuracy in percent, seeds {SEEDS}"
    RESULTS.write_text(json.dumps({"machine": machine.info(), "shape": shape, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
