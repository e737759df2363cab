"""Measure the overhead of the lottery ticket callback in a training step: ``python -m benchmarks.speed.pruning``.

Trains the default vision transformer (dim 64) with 40 % of its weights pruned on one thread, and disables the hooks of the
callback in every other step. Measures processor time, which depends little on the load. Writes results/pruning.json.
"""

import logging
import time
from statistics import median
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch.utils.data import DataLoader, TensorDataset

import zoo
from benchmarks import machine
from zoo.pruning import LotteryTicket
from zoo.tasks import Classification

RESULTS = machine.RESULTS / "pruning.json"
STEPS, BATCHES, ALGEBRAS = 400, (32, 64), ("real", "quaternion")


class Alternating(LotteryTicket):
    """A lottery ticket whose hooks are disabled in every other step."""

    step = 0

    def on_before_optimizer_step(self, *args: Any) -> None:
        """Mask gradients in odd steps."""
        if self.step % 2:
            super().on_before_optimizer_step(*args)

    def _mask_weights(self, *args: Any) -> None:
        if self.step % 2:
            super()._mask_weights(*args)


class Clock(Callback):
    """Measure the time of each step."""

    def __init__(self, ticket: Alternating) -> None:
        self.ticket, self.start = ticket, 0.0
        self.times: tuple[list[float], list[float]] = ([], [])

    def on_train_batch_end(self, *args: Any) -> None:
        """Record the time of this step, including hooks and data loading."""
        now = time.process_time()
        self.times[self.ticket.step % 2].append(1000 * (now - self.start))
        self.start, self.ticket.step = now, self.ticket.step + 1


def measure(algebra: str, batch: int) -> dict[str, Any]:
    """Return the median times of a step without and with masks."""
    images = torch.randn(8 * batch, 1, 8, 8)
    loader = DataLoader(TensorDataset(images, torch.arange(len(images)) % 10), batch_size=batch)
    ticket = Alternating(0.4)
    clock = Clock(ticket)
    for callbacks, steps in (([ticket], 2), ([ticket, clock], STEPS)):
        torch.manual_seed(0)
        task = Classification(zoo.backbone("vit", algebra, in_channels=1, image_size=8, num_classes=10), num_classes=10)
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        Trainer(max_steps=steps, accelerator="cpu", callbacks=list(callbacks), **quiet).fit(task, loader)
        if not ticket.round:
            ticket.prune()
    without, masked = (median(times[10:]) for times in clock.times)
    row = {"algebra": algebra, "batch": batch, "without_ms": round(without, 3), "with_ms": round(masked, 3)}
    return row | {"ratio": round(masked / without, 4)}


def main() -> None:
    """Measure and write the results."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    rows = [measure(algebra, batch) for algebra in ALGEBRAS for batch in BATCHES]
    shape = f"vit (dim 64, depth 4) on images of 8 x 8, 40 % pruned, {STEPS} steps, every other one with the masks"
    machine.write(RESULTS, {"machine": machine.info(), "shape": shape, "rows": rows})
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
