"""The processes of a run: launch, rendezvous, messages, exit and signals. This module imports torch only when a run starts."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from zoo.errors import InputError, Stop, one_line
from zoo.registry.limits import check_processes
from zoo.registry.resolution import OF_VALUES

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import Strategy

Result = TypeVar("Result")

_has_joined = False
"""Whether this process has started to join the others; from then on, ranks may raise different errors."""

_has_parent = False
"""Whether a run or a sweep has started this process."""

PARENT = "ZOO_PARENT_PID"
"""Environment variable with the process id of the rank 0 or the sweep that starts a process."""
GLOO = ("gloo", "Application timeout caused pair closure")
"""Texts of gloo's errors, which are no `torch.distributed.DistError`."""
DEVICE_ARGUMENTS = ("accelerator", "strategy", "devices", "num_nodes", "precision", "plugins", "sync_batchnorm")
"""The arguments of the Trainer that determine devices and processes."""


def is_first_process() -> bool:
    """Return whether this process has rank 0 according to its environment variables."""
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")  # of torchrun, Lightning and srun
    return all(os.environ.get(name, "0") == "0" for name in names)


def end_with_parent() -> None:
    """Have Linux kill this process when the rank 0 or the sweep that started it dies (``prctl(2)``, PR_SET_PDEATHSIG).

    Otherwise, a rank would wait in a collective call until the timeout. In any other process this has no effect.
    """
    global _has_parent
    parent = os.environ.pop(PARENT, None)  # not for processes that this one starts
    if parent is None or sys.platform != "linux":
        return
    _has_parent = True
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(parent):  # the parent died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_parent() -> None:
    """Give rank 0 time to report its error; Lightning kills it as soon as this process has failed."""
    if _has_parent and not is_first_process():
        time.sleep(10)  # or until `end_with_parent` takes effect


def is_known_to_all(error: BaseException) -> bool:
    """Return whether rank 0 reports this error: all errors before the processes join, and shared errors afterwards."""
    return not _has_joined or not isinstance(error, InputError) or error.is_shared


def launched_devices() -> dict[str, int]:
    """Return ``devices`` and ``num_nodes`` of the processes that torchrun or srun has started; empty without a launcher.

    >>> launched_devices()
    {}
    """
    env = os.environ
    if "TORCHELASTIC_RUN_ID" in env and "LOCAL_WORLD_SIZE" in env:
        local = int(env["LOCAL_WORLD_SIZE"])
        return {"devices": local, "num_nodes": int(env["WORLD_SIZE"]) // local}
    if "SLURM_NTASKS" in env and env.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        nodes = int(env.get("SLURM_NNODES", "1"))
        return {"devices": int(env["SLURM_NTASKS"]) // nodes, "num_nodes": nodes}
    return {}


class Processes:
    """The processes of a run: the rank of this one, their count, and collective operations of a Trainer's strategy."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.rank: int = getattr(strategy, "global_rank", 0)
        self.count: int = getattr(strategy, "world_size", 1)

    def first(self, function: Callable[[], Result]) -> Result:
        """Call a function on rank 0; return its result or raise its `InputError` on all ranks."""
        if self.count == 1:
            return function()
        outcome: tuple[Any, InputError | None] = None, None
        if self.rank == 0:
            try:
                outcome = function(), None
            except InputError as error:
                outcome = None, error
        value, failure = self.strategy.broadcast(outcome)
        if failure is not None:
            failure.is_shared = True
            raise failure
        return value  # type: ignore[no-any-return]

    def smallest(self, number: int) -> int:
        """Return the minimum of a number over all ranks."""
        if self.count == 1:
            return number
        import torch

        value = torch.tensor(number, device=self.strategy.root_device)
        return int(self.strategy.reduce(value, reduce_op="min"))

    @contextmanager
    def report_lost(self, resume_text: Callable[[], str]) -> Iterator[None]:
        """Raise `InputError` with the processes that have ended, and how to resume, if a collective operation fails."""
        try:
            yield
        except RuntimeError as error:
            from torch.distributed import DistError

            is_lost = isinstance(error, DistError) or any(text in str(error) for text in GLOO)
            if self.count == 1 or not is_lost:
                raise
            text = f"{self._lost() or f'another process ended or does not answer ({one_line(error, 150)})'}; {resume_text()}"
            raise InputError(text, code="failed") from error

    def _lost(self) -> str:
        """Describe the processes of Lightning's launcher that have ended; "" if there are none."""
        children = list(enumerate(getattr(self.strategy.launcher, "procs", ()), 1))
        deadline = time.monotonic() + 1  # until the system has reaped them
        while children and all(child.poll() is None for _, child in children) and time.monotonic() < deadline:
            time.sleep(0.05)
        codes = {rank: child.returncode for rank, child in children if child.returncode}
        ends = {rank: f"exit code {code}" if code > 0 else f"signal {-code}" for rank, code in codes.items()}
        return ", ".join(f"process {rank} ended with {end}" for rank, end in ends.items())

    def end(self) -> None:
        """Destroy the process group when Python exits after a successful run.

        Otherwise, Gloo's threads may release tensors during interpreter shutdown, which aborts the process
        (https://github.com/pytorch/pytorch/issues/190489).
        """
        if self.count > 1:
            from torch import distributed

            atexit.unregister(distributed.destroy_process_group)  # of an earlier run
            atexit.register(distributed.destroy_process_group)

    def prepare(self, data: Any) -> None:
        """Prepare the data on rank 0, then set them up on all ranks."""
        self.first(data.prepare_data)
        data.setup(None)
        if self.count == 1:
            return
        for split in ("val", "test"):  # a rank without batches would deadlock when metrics are reduced
            if split == "val" or getattr(data, "has_test", True):
                loader = getattr(data, f"{split}_dataloader")()
                if self.smallest(len(loader)) == 0:
                    raise InputError(f"too few {split} rows for {self.count} processes: use fewer --trainer.devices")


def build_trainer(arguments: Mapping[str, Any]) -> Trainer:
    """Build a Trainer, with the number of devices of torchrun or srun if they have started the processes.

    Lightning's distributed sampler is off because the data modules divide rows among processes without duplicates.
    """
    from lightning.pytorch import Trainer
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    try:
        return Trainer(**{"use_distributed_sampler": False, **launched_devices(), **arguments})
    except ImportError as error:
        raise InputError(f"--trainer.*: {one_line(error)}", code="dependency") from error
    except (MisconfigurationException, *OF_VALUES) as error:
        raise InputError(f"--trainer.*: {one_line(error)}") from error


def join(settings: Mapping[str, object], in_order: bool = False, timeout: float = 1800) -> Processes:
    """Start the processes that the Trainer's arguments ask for, unless a launcher or earlier run has, and join them.

    With `in_order`, data are read in order, which only one process can do. Processes wait `timeout` seconds for one another.
    """
    from torch.distributed import DistError

    from zoo.data.loader import check_order

    chosen = {name: value for name, value in settings.items() if name in DEVICE_ARGUMENTS and value is not None}
    trainer = build_trainer(chosen | {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False})
    check_strategy(trainer)
    check_order(in_order, trainer.world_size)
    strategy = trainer.strategy
    if strategy.launcher is not None and strategy.root_device.type == "cpu":
        check_processes("--trainer.devices", trainer.num_devices)
    end_with_parent()
    if strategy.launcher is not None:
        strategy._timeout = timedelta(seconds=timeout)  # type: ignore[attr-defined]
        os.environ[PARENT] = str(os.getpid())
        strategy.launcher.launch(lambda: None, trainer=trainer)
        del os.environ[PARENT]
        global _has_joined
        _has_joined = True
        try:
            strategy.setup_environment()
        except (DistError, OSError) as error:
            strategy.launcher.kill(signal.SIGKILL)  # the started processes may hang
            text = f"the {trainer.world_size} processes of the run did not connect within {timeout:g} s"
            raise InputError(f"{text} (see their errors, or raise --ddp-timeout): {one_line(error)}", code="failed") from error
    return Processes(strategy)


def check_strategy(trainer: Trainer) -> None:
    """Check that a strategy neither shards the network nor starts processes by spawn or fork, and on Windows none at all."""
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
    from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

    strategy = trainer.strategy
    is_supported = isinstance(strategy, SingleDeviceStrategy | DDPStrategy)
    if not is_supported or not isinstance(strategy.launcher, _SubprocessScriptLauncher | None):
        name = type(strategy).__name__.removesuffix("Strategy")
        text = f"{name} with spawn, fork or sharding is not supported: use one device, or ddp in a script"
        raise InputError(f"--trainer.strategy: {text}", code="unsupported")
    if sys.platform == "win32" and trainer.world_size > 1:
        raise InputError("several processes are not supported on Windows: use --trainer.devices 1", code="unsupported")


class Signals:
    """Handle Ctrl-C and SIGTERM during a run; a context manager.

    If `graceful` is set, the run checks between steps if a signal was `received`; otherwise, and at a second Ctrl-C, `Stop`
    is raised at once. SIGTERM is forwarded to the processes of Lightning's launcher.
    """

    def __init__(self) -> None:
        self.received, self.graceful, self.launcher = 0, False, None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            for number, handler in self._before.items():
                if handler is not signal.SIG_IGN:  # ignored by nohup or a shell's `&`
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def replace_lightning(self, trainer: Any) -> None:
        """Handle SIGTERM in place of Lightning, whose collective calls can hang and which exits with code 0."""
        trainer._signal_connector._sigterm_notifier_fn = lambda signum, frame: None
        self.launcher = trainer.strategy.launcher

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        again = self.received == signum == signal.SIGINT
        self.received = self.received or signum
        if again or not self.graceful:
            if signum == signal.SIGTERM:  # a terminal sends Ctrl-C to all processes
                for process in getattr(self.launcher, "procs", []):
                    process.send_signal(signum)
            raise Stop(signum)
        if signum == signal.SIGINT and sys.stderr.isatty():
            print("\nstopping after this step; Ctrl-C again stops at once", file=sys.stderr)  # noqa: T201
