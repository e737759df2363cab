"""Measure what exact resume costs: ``python -m benchmarks.checkpointing``.

Training steps of the default vision transformer on digits, in one process: every other step goes without the callback that
notes signals, time and position. Beside it the writing of a checkpoint, ours and Lightning's in turn, and the share of a
training that writing one every ten minutes takes. Writes results/checkpointing.json.
"""

import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lightning.pytorch import Callback
from lightning.pytorch.plugins.io import TorchCheckpointIO

import zoo
from benchmarks import machine
from zoo.training.checkpoint_io import AtomicCheckpointIO
from zoo.training.checkpoints import Checkpoints

RESULTS = Path(__file__).parent / "results" / "checkpointing.json"
STEPS, WRITES, MILLIONS = 1200, 8, (1, 10)


class Alternate(Callback):
    """Time every step, and let every other one go without the hooks of `Checkpoints`."""

    def __init__(self) -> None:
        self.times: dict[bool, list[float]] = {True: [], False: []}
        self._start, self._step, self.seconds = 0.0, 0, 0.0
        hooks = {name: getattr(Checkpoints, name) for name in ("on_train_batch_start", "on_train_batch_end")}
        for name, hook in hooks.items():
            setattr(Checkpoints, name, self._every_other(hook))

    def _every_other(self, hook: Any) -> Any:
        def call(keeper: Checkpoints, *args: Any) -> None:
            if self._step % 2:
                start = time.perf_counter()
                hook(keeper, *args)
                self.seconds += time.perf_counter() - start

        return call

    def on_train_batch_end(self, *args: Any) -> None:
        """Note how long the step took that ends here, its hooks and its data included."""
        now = time.perf_counter()
        self.times[bool(self._step % 2)].append(1000 * (now - self._start))
        self._start, self._step = now, self._step + 1


def steps(folder: Path) -> dict[str, Any]:
    """Return the medians of a step with and without the callback, and the mean of its hooks alone, which no noise hides."""
    alternate = Alternate()
    trainer = {"max_steps": STEPS, "limit_val_batches": 0, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}
    zoo.fit(backbone="vit", algebra="quaternion", run_dir=str(folder / "run"), trainer=trainer | {"callbacks": [alternate]})
    found = {kind: median(times[100:]) for kind, times in alternate.times.items()}
    hooks = 1000 * alternate.seconds / len(alternate.times[True])
    times = {"with_ms": found[True], "without_ms": found[False], "hooks_alone_ms": hooks}
    ratios = {"ratio": found[True] / found[False], "hooks_share": hooks / found[False]}
    return {name: round(value, 5) for name, value in (times | ratios).items()}


def writes(folder: Path, millions: int) -> dict[str, Any]:
    """Return the seconds that a checkpoint of so many parameters takes (AdamW: three numbers each), ours and Lightning's."""
    state = {"state_dict": {f"{name}": torch.randn(millions * 10**6) for name in ("w", "m", "v")}}
    times: dict[str, list[float]] = {"ours": [], "lightning": []}
    for _ in range(WRITES):
        for name, writer in (("ours", AtomicCheckpointIO()), ("lightning", TorchCheckpointIO())):
            start = time.perf_counter()
            writer.save_checkpoint(state, folder / f"{name}.ckpt")
            times[name].append(time.perf_counter() - start)
    ours, theirs = (median(times[name]) for name in ("ours", "lightning"))
    sizes = {"parameters": millions * 10**6, "megabytes": 12 * millions}
    return sizes | {"ours_s": round(ours, 3), "lightning_s": round(theirs, 3), "share_every_10m": round(ours / 600, 6)}


def main() -> None:
    """Measure both and write the result."""
    with tempfile.TemporaryDirectory() as folder:
        rows = {"step": steps(Path(folder)), "write": [writes(Path(folder), millions) for millions in MILLIONS]}
    shape = f"vit on digits over the quaternions, batch 32, {STEPS} training steps, every other one with the callback"
    RESULTS.write_text(json.dumps({"machine": machine.info(), "shape": shape, **rows}, indent=1) + "\n", encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
