"""Every use of private names of torch, Lightning and its loggers in training; a test fails when one of them is gone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from lightning.pytorch.loggers import WandbLogger
    from lightning.pytorch.strategies import Strategy
    from torch.nn.parallel import DistributedDataParallel


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
    from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

    return isinstance(strategy.launcher, _SubprocessScriptLauncher)


def broadcast_buffers(network: DistributedDataParallel) -> None:
    """Broadcast buffers from rank 0."""
    network._sync_buffers()


def move_wandb(logger: WandbLogger, folder: Path) -> None:
    """Let Weights & Biases write into a folder."""
    logger._save_dir = logger._wandb_init["dir"] = str(folder)
