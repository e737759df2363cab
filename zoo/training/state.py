"""State that Lightning does not checkpoint: random generators, running sums of an epoch, the position within an epoch.

The last part contains all uses of private names of torch, Lightning and its loggers; a test checks that they exist.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from zoo.data.loader import ResumableLoader
from zoo.errors import InputError


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of the random generators of Python, NumPy, torch and the GPU of this process, if any."""
    name, keys, *rest = np.random.get_state()
    numpy = [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest]
    state = {"python": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state()}
    return state | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the random generators."""
    name, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def gather(value: Any, trainer: Trainer) -> list[Any]:
    """Gather the values of all ranks."""
    if trainer.world_size == 1:
        return [value]
    values: list[Any] = [None] * trainer.world_size
    distributed.all_gather_object(values, value)
    return values


def epoch_sums(trainer: Trainer) -> dict[str, list[Any]]:
    """Return the running sums and counts of the values that training logs per epoch."""
    results = epoch_results(trainer)
    metrics = {name: metric for name, metric in results if metric.is_tensor and metric.meta.on_epoch and not metric.has_reset}
    return {name: [m.value.cpu(), getattr(m, "cumulated_batch_size", torch.tensor(0)).cpu()] for name, m in metrics.items()}


def add_epoch_sums(trainer: Trainer, sums: dict[str, list[Any]]) -> None:
    """Add the sums of the interrupted part of an epoch; call it after the first step, which creates the values."""
    for name, metric in epoch_results(trainer):
        if name in sums:
            value, count = (part.to(metric.value.device) for part in sums[name])
            if metric.meta.is_mean_reduction or metric.meta.is_sum_reduction:
                metric.value = metric.value + value
            else:
                metric.value = metric.meta.reduce_fx(metric.value, value)
            if metric.meta.is_mean_reduction:
                metric.cumulated_batch_size = metric.cumulated_batch_size + count


def accumulating(trainer: Trainer, batches: int) -> bool:
    """Return whether gradients are partially accumulated after this many batches of an epoch; its last batch is a step."""
    return batches % trainer.accumulate_grad_batches != 0 and batches != trainer.num_training_batches


def gradients(trainer: Trainer, module: LightningModule, batches: int) -> dict[str, Any]:
    """Return partially accumulated gradients by parameter name."""
    if not accumulating(trainer, batches):
        return {}
    return {name: weight.grad.cpu() for name, weight in module.named_parameters() if weight.grad is not None}


def restore_gradients(module: LightningModule, gradients: dict[str, Any]) -> None:
    """Restore partially accumulated gradients."""
    for name, weight in module.named_parameters():
        if name in gradients:
            weight.grad = gradients[name].to(weight)


def set_position(checkpoint: dict[str, Any], trainer: Trainer, position: tuple[int, int], *, begun: bool) -> None:
    """Edit the progress in a checkpoint so that Lightning resumes between two steps, and repeats or skips nothing.

    The position is the number of completed epochs and of completed batches of the next one; `begun` tells whether that epoch
    has started.
    """
    epoch, batches = position
    loops = checkpoint["loops"]["fit_loop"]
    done = {"processed": epoch, "completed": epoch}
    counts = {"ready": epoch + 1, "started": epoch + begun, **done}
    loops["epoch_progress"] = {"total": dict(counts), "current": dict(counts)}
    total = trainer.fit_loop.epoch_loop.batch_progress.total.completed
    # `started` is off by one, so that Lightning detects neither the end of a batch nor of an epoch. On resume it then counts a
    # step for its loggers, except during gradient accumulation.
    loops["epoch_loop.batch_progress"] = {
        "total": {"ready": total, "started": total - 1, "processed": total, "completed": total},
        "current": dict.fromkeys(("ready", "started", "processed", "completed"), batches),
        "is_last_batch": False,
    }
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] = logged_steps(trainer) - (not accumulating(trainer, batches))
    validated = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.completed
    loops["epoch_loop.val_loop.batch_progress"] = {
        "total": dict.fromkeys(("ready", "started", "processed", "completed"), validated),
        "current": dict.fromkeys(("ready", "started", "processed", "completed"), 0),
        "is_last_batch": False,
    }


def set_loader(trainer: Trainer, position: Sequence[int], *, world_size_changed: bool = False) -> None:
    """Set the position of the training loader; Lightning would do so before it has loaded the checkpoint."""
    loader = trainer.train_dataloader
    if world_size_changed and position[1] and getattr(loader, "batch_size", None) is None:
        raise InputError("batches of texts of similar length depend on the number of processes: resume with the same number")
    if isinstance(loader, ResumableLoader):
        loader.load_state_dict({"epoch": position[0], "batches": position[1]})
    elif position[1] and trainer.is_global_zero:
        text = (
            "the data module has a custom dataloader: the order of the rest of this epoch may differ from an uninterrupted run"
        )
        print(text, flush=True)  # noqa: T201


# --- private names of torch and Lightning ---


def epoch_results(trainer: Trainer) -> Iterator[tuple[str, Any]]:
    """Yield the values that training has logged for the current epoch, with their running sums."""
    yield from trainer.fit_loop.epoch_loop._results.items()


def logged_steps(trainer: Trainer) -> int:
    """Return the step number that loggers use next."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def set_counters(trainer: Trainer, epochs: int, steps: int) -> None:
    """Set the epoch and step that loggers use for the test of a run that an earlier process has trained."""
    trainer.fit_loop.epoch_progress.current.completed = epochs
    trainer.fit_loop.epoch_loop._batches_that_stepped = steps


def begin_epoch(trainer: Trainer) -> None:
    """Restart a custom dataloader, so that it draws from the restored random generators."""
    if not isinstance(trainer.train_dataloader, ResumableLoader):
        iter(trainer.fit_loop._data_fetcher)  # type: ignore[arg-type]


def disable_sigterm(trainer: Trainer) -> None:
    """Disable Lightning's SIGTERM handler, whose collective calls can hang and which exits with code 0."""
    connector: Any = trainer._signal_connector
    connector._sigterm_notifier_fn = lambda signum, frame: None


def set_timeout(strategy: Strategy, seconds: float) -> None:
    """Set the timeout of collective calls, also for a strategy that is given by name."""
    strategy._timeout = timedelta(seconds=seconds)  # type: ignore[attr-defined]


def starts_scripts(strategy: Strategy) -> bool:
    """Return whether a strategy starts processes by running the same command again."""
    return isinstance(strategy.launcher, _SubprocessScriptLauncher)


def broadcast_buffers(network: DistributedDataParallel) -> None:
    """Broadcast buffers from rank 0."""
    network._sync_buffers()


def move_wandb(logger: WandbLogger, folder: Path) -> None:
    """Set the folder that Weights & Biases writes to."""
    logger._save_dir = logger._wandb_init["dir"] = str(folder)
