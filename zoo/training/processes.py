"""The processes of a run: launch, rendezvous, exit and signals. This module imports torch only when a run starts."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from zoo.errors import InputError, Stop, one_line

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import Strategy

Result = TypeVar("Result")

_has_joined = False
"""Whether this process has started to join the others; from then on, ranks may raise different errors."""

PARENT = "ZOO_PARENT_PID"
"""Environment variable with the process id of rank 0, which started the other ranks of the run."""
SWEEP = "ZOO_SWEEP_PID"
"""Environment variable with the process id of the sweep that started a run."""
DEVICE_ARGUMENTS = ("accelerator", "strategy", "devices", "num_nodes", "precision", "plugins", "sync_batchnorm")
"""The arguments of the Trainer that determine devices and processes."""


def is_first_process() -> bool:
    """Return whether this process has rank 0 according to its environment variables."""
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")  # of torchrun, Lightning and srun
    return all(os.environ.get(name, "0") == "0" for name in names)


def end_with_parent() -> None:
    """Have Linux kill this process when the launcher or sweep that started it dies (``prctl(2)``, PR_SET_PDEATHSIG).

    Otherwise, a rank would wait in a collective call until the timeout. In any other process this has no effect.
    """
    sweep = os.environ.pop(SWEEP, None)  # not for processes that this one starts, which end with this one
    if "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()  # torchrun; PARENT may be inherited from an earlier run
    elif PARENT in os.environ and int(os.environ.get("LOCAL_RANK", "0")) > 0:
        parent = int(os.environ[PARENT])
    elif sweep:
        parent = int(sweep)
    else:
        return
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_parent() -> None:
    """Give rank 0 time to report its error; Lightning kills it as soon as this process has failed."""
    if PARENT in os.environ and not is_first_process():
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
        outcome: tuple[Any, str, type[InputError]] = None, "", InputError
        if self.rank == 0:
            try:
                outcome = function(), "", InputError
            except InputError as error:
                outcome = None, str(error), type(error) if type(error).__init__ is InputError.__init__ else InputError
        value, message, kind = self.strategy.broadcast(outcome)
        if message:
            shared = kind(message)
            shared.is_shared = True
            raise shared
        return value  # type: ignore[no-any-return]

    def smallest(self, number: int) -> int:
        """Return the minimum of a number over all ranks."""
        if self.count == 1:
            return number
        import torch

        value = torch.tensor(number, device=self.strategy.root_device)
        return int(self.strategy.reduce(value, reduce_op="min"))

    def end(self) -> None:
        """Destroy the process group when Python exits after a successful run.

        Otherwise, Gloo's threads may release tensors during interpreter shutdown, which aborts the process
        (https://github.com/pytorch/pytorch/issues/190489).
        """
        if self.count > 1:
            atexit.register(destroy_process_group)

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


def destroy_process_group() -> None:
    """Destroy the process group, if there is one."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def build_trainer(arguments: Mapping[str, Any]) -> Trainer:
    """Build a Trainer, with the number of devices of torchrun or srun if they have started the processes.

    Lightning's distributed sampler is off because the data modules divide rows among processes without duplicates.
    """
    from lightning.pytorch import Trainer
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    try:
        return Trainer(**{"use_distributed_sampler": False, **launched_devices(), **arguments})
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, LookupError) as error:
        text = one_line(error)
        names = [name for name in arguments if re.search(rf"\b{name}\b", text, re.IGNORECASE)]
        raise InputError(f"--trainer{f'.{names[0]}' if len(names) == 1 else ''}: {text}") from error


def join(settings: Mapping[str, Any], in_order: bool = False, timeout: float = 1800) -> Processes:
    """Start the processes that the Trainer's arguments ask for, unless a launcher or earlier run has, and join them.

    Args:
        settings: The arguments of the Trainer.
        in_order: Whether data are read in order, which only one process can do.
        timeout: Seconds that processes wait for one another.
    """
    from torch.distributed import DistError

    from zoo.data.loader import check_order
    from zoo.training.state import set_timeout

    chosen = {name: value for name, value in settings.items() if name in DEVICE_ARGUMENTS and value is not None}
    notes = logging.getLogger("lightning.pytorch")
    level = notes.level
    notes.setLevel(logging.WARNING)  # the Trainer of the run prints the same
    try:
        trainer = build_trainer(chosen | {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False})
    finally:
        notes.setLevel(level)
    check_strategy(trainer)
    check_order(in_order, trainer.world_size)
    strategy = trainer.strategy
    end_with_parent()
    if strategy.launcher is not None:
        set_timeout(strategy, timeout)
        if int(os.environ.get("LOCAL_RANK", "0")) == 0:
            os.environ[PARENT] = str(os.getpid())
        strategy.launcher.launch(lambda: None, trainer=trainer)
        global _has_joined
        _has_joined = True
        try:
            init_process_group(strategy, timeout)
        except (DistError, OSError) as error:
            strategy.launcher.kill(signal.SIGKILL)  # the started processes may hang
            text = f"the {trainer.world_size} processes of the run did not connect within {timeout:g} s"
            raise InputError(f"{text} (see their errors, or raise --ddp-timeout): {one_line(error)}") from error
    return Processes(strategy)


def init_process_group(strategy: Strategy, timeout: float) -> None:
    """Initialize the process group, unless there is one."""
    from torch import distributed

    if not distributed.is_initialized() and Processes(strategy).rank != 0:
        # Without an answer, torch raises after up to 2.6 times the timeout.
        environment = strategy.cluster_environment  # type: ignore[attr-defined]
        wait_for_server(environment.main_address, environment.main_port, timeout)
    strategy.setup_environment()


def wait_for_server(host: str, port: int, timeout: float) -> None:
    """Wait until a server accepts connections."""
    end = time.monotonic() + timeout
    while True:
        try:
            with socket.create_connection((host, port), max(0.1, end - time.monotonic())) as connection:
                if connection.getsockname() != connection.getpeername():  # not a connection to itself
                    return
        except OSError as error:
            if time.monotonic() > end - 0.1:
                raise OSError(f"rank 0 does not answer at {host}, port {port}: {one_line(error)}") from error
        time.sleep(0.1)


def check_strategy(trainer: Trainer) -> None:
    """Check that a strategy neither shards the network nor starts processes by spawn or fork."""
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

    from zoo.training.state import starts_scripts

    strategy = trainer.strategy
    if sys.platform == "win32" and trainer.world_size > 1:
        text = "several processes are not supported on Windows: use --trainer.devices 1, or WSL"
        raise InputError(text, code="unsupported")
    if not isinstance(strategy, SingleDeviceStrategy | DDPStrategy):
        name = type(strategy).__name__.removesuffix("Strategy")
        raise InputError(f"--trainer.strategy: {name} is not supported; use one device, or --trainer.strategy ddp")
    if strategy.launcher is not None and not starts_scripts(strategy):
        raise InputError("--trainer.strategy: spawn and fork are not supported, also in notebooks; use ddp in a script")


class Signals:
    """Handle Ctrl-C and SIGTERM during a run; a context manager.

    Attributes:
        received: The signal that was received while `graceful` was set, or 0.
        graceful: Whether the run checks `received` between steps; otherwise, and at a second Ctrl-C, `Stop` is raised at once.
        launcher: Lightning's launcher, whose processes SIGTERM is forwarded to.
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
        """Handle SIGTERM in place of Lightning."""
        from zoo.training.state import disable_sigterm

        disable_sigterm(trainer)
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
