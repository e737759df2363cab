"""Measure structured pruning of the vision transformer on digits: ``python -m benchmarks.structured [FOLDER]``.

The default ``vit`` (dim 64, depth 4) is trained as its recipe says, pruned at ratio 0.5, and fine-tuned for 20 epochs at the
learning rate it was trained with; three seeds. Forward passes of the networks before and after alternate on one thread, in
processor time, which other work on the machine changes little. Runs go to FOLDER, by default a temporary one; those that are
there already are used again. Writes results/structured.json.
"""

import contextlib
import json
import logging
import os
import sys
import time
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
    found = run / "pruned.json"
    if not found.exists():
        with contextlib.redirect_stdout(open(os.devnull, "w", encoding="utf-8")):
            zoo.fit(backbone="vit", algebra=algebra, data="digits", seed=seed, run_dir=str(run), trainer=QUIET)
            result = prune(run, Prune(ratio=RATIO, epochs=EPOCHS, trainer=QUIET))
        found.write_text(json.dumps(result), encoding="utf-8")
    result = json.loads(found.read_text(encoding="utf-8"))
    stages = {name: 100 * result[name]["metrics"]["accuracy"] for name in ("before", "after", "tuned")}
    return {"spec": result["backbone"], "parameters": result["parameters"], **stages}


def forward(run: Path, batch: int) -> dict[str, float]:
    """Return the median milliseconds of a forward pass before and after, alternating."""
    nets = [zoo.load(path).net for path in (run, run / f"pruned-{RATIO}")]
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
    for name in ("before", "after", "tuned"):
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
