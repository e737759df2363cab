"""What Lightning leaves out of a checkpoint: random numbers, sums of an epoch, a position between two steps.

The last part has all uses of private names of torch, Lightning and its loggers; a test fails when one of them is gone.
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
    """Return the state of the generators of Python, NumPy, torch and, if the process has one, its GPU."""
    name, keys, *rest = np.random.get_state()
    numpy = [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest]
    state = {"python": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state()}
    return state | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put the generators back."""
    name, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def gathered(value: Any, trainer: Trainer) -> list[Any]:
    """Return the values of all processes, by rank."""
    if trainer.world_size == 1:
        return [value]
    states: list[Any] = [None] * trainer.world_size
    distributed.all_gather_object(states, value)
    return states


def epoch_sums(trainer: Trainer) -> dict[str, list[Any]]:
    """Return what Lightning has summed up so far of the values that training logs for an epoch."""
    results = epoch_results(trainer)
    metrics = {name: metric for name, metric in results if metric.is_tensor and metric.meta.on_epoch and not metric.has_reset}
    return {name: [m.value.cpu(), getattr(m, "cumulated_batch_size", torch.tensor(0)).cpu()] for name, m in metrics.items()}


def add_epoch_sums(trainer: Trainer, sums: dict[str, list[Any]]) -> None:
    """Add sums of the same epoch from before, after its first step of this process: the values exist from then on."""
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
    """Return whether gradients wait for more batches after so many of an epoch; its last batch is always a step."""
    return batches % trainer.accumulate_grad_batches != 0 and batches != trainer.num_training_batches


def gradients(trainer: Trainer, module: LightningModule, batches: int) -> dict[str, Any]:
    """Return the gradients that wait after so many batches of an epoch."""
    if not accumulating(trainer, batches):
        return {}
    return {name: weight.grad.cpu() for name, weight in module.named_parameters() if weight.grad is not None}


def restore_gradients(module: LightningModule, gradients: dict[str, Any]) -> None:
    """Put accumulated gradients back."""
    for name, weight in module.named_parameters():
        if name in gradients:
            weight.grad = gradients[name].to(weight)


def set_position(
    checkpoint: dict[str, Any], trainer: Trainer, position: tuple[int, int], *, validate: bool, begun: bool
) -> None:
    """Let Lightning's loops go on between two steps, exactly: neither a batch nor a validation is repeated or left out."""
    epoch, batches = position
    loops = checkpoint["loops"]["fit_loop"]
    done = {"processed": epoch, "completed": epoch}
    counts = {"ready": epoch + 1, "started": epoch + begun, **done}
    loops["epoch_progress"] = {"total": dict(counts), "current": dict(counts)}
    progress = trainer.fit_loop.epoch_loop.batch_progress
    total = progress.total.completed
    # `started` off by one: a state that Lightning takes neither for the end of a batch nor for that of an epoch. Then it
    # counts one step for its loggers when it begins, unless gradients wait, and once more after a validation.
    loops["epoch_loop.batch_progress"] = {
        "total": {"ready": total, "started": total - 1, "processed": total, "completed": total},
        "current": dict.fromkeys(("ready", "started", "processed", "completed"), batches),
        "is_last_batch": validate and progress.is_last_batch,
    }
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] = logged_steps(trainer) - (not accumulating(trainer, batches))
    validated = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.completed
    halfway = {"ready": validated + 1, "started": validated + 1, "processed": validated, "completed": validated}
    loops["epoch_loop.val_loop.batch_progress"] = {
        "total": halfway if validate else dict.fromkeys(halfway, validated),
        "current": dict.fromkeys(halfway, 0),
        "is_last_batch": False,
    }


def set_loader(trainer: Trainer, position: Sequence[int], *, elsewhere: bool = False) -> None:
    """Let the training loader begin at a position; Lightning loads the state of one before it has read the checkpoint."""
    loader = trainer.train_dataloader
    if elsewhere and position[1] and getattr(loader, "batch_size", None) is None:
        raise InputError("batches of texts of like length depend on the number of processes: go on with as many as before")
    if isinstance(loader, ResumableLoader):
        loader.load_state_dict({"epoch": position[0], "batches": position[1]})
    elif position[1] and trainer.is_global_zero:
        text = "the data module has a loader of its own: from here on its batches come in another order than without the stop"
        print(text, flush=True)  # noqa: T201 (to be seen)


def begin_epoch(trainer: Trainer) -> None:
    """Let a loader that draws from the global generators draw again, now that they are restored."""
    if not isinstance(trainer.train_dataloader, ResumableLoader):
        restart_loader(trainer)


def set_counters(trainer: Trainer, epochs: int, steps: int) -> None:
    """Let loggers count the test of a run that was trained in another process as they would have there."""
    trainer.fit_loop.epoch_progress.current.completed = epochs
    set_logged_steps(trainer, steps)


# --- private names of torch and Lightning ---


def epoch_results(trainer: Trainer) -> Iterator[tuple[str, Any]]:
    """Yield the values that training has logged for the current epoch, with their running sums."""
    yield from trainer.fit_loop.epoch_loop._results.items()


def logged_steps(trainer: Trainer) -> int:
    """Return the number that loggers count the next step by."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def set_logged_steps(trainer: Trainer, steps: int) -> None:
    """Set the number that loggers count the next step by."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = steps


def restart_loader(trainer: Trainer) -> None:
    """Start the training loader again, so that it draws its order again."""
    iter(trainer.fit_loop._data_fetcher)  # type: ignore[arg-type]


def disable_sigterm(trainer: Trainer) -> None:
    """Disable Lightning's handler of SIGTERM: its collective calls hang, and it ends a run with exit code 0."""
    connector: Any = trainer._signal_connector
    connector._sigterm_notifier_fn = lambda signum, frame: None


def set_timeout(strategy: Strategy, seconds: float) -> None:
    """Set the time that a process waits for the others; a strategy that is given by name takes no such argument."""
    strategy._timeout = timedelta(seconds=seconds)  # type: ignore[attr-defined]


def starts_scripts(strategy: Strategy) -> bool:
    """Return whether a strategy starts its other processes by running the same command again."""
    return isinstance(strategy.launcher, _SubprocessScriptLauncher)


def broadcast_buffers(network: DistributedDataParallel) -> None:
    """Broadcast buffers from rank 0."""
    network._sync_buffers()


def move_wandb(logger: WandbLogger, folder: Path) -> None:
    """Let Weights & Biases write into a folder."""
    logger._save_dir = logger._wandb_init["dir"] = str(folder)
