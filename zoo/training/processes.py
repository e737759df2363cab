"""The processes of a run: how they start, meet and end, and how they handle Ctrl-C and SIGTERM.

Importing this module imports no torch.
"""

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

_meeting = False
"""Whether this process has begun to join others, with errors of its own from then on."""

PARENT = "ZOO_PARENT_PID"
"""The environment variable that tells a process of a run who started it."""
SWEEP = "ZOO_SWEEP_PID"
"""The environment variable that tells a run of a sweep who started it."""
JOINING = ("accelerator", "strategy", "devices", "num_nodes", "precision", "plugins", "sync_batchnorm")
"""The arguments of the Trainer that decide on devices and processes."""


def is_first_process() -> bool:
    """Tell from the environment whether this process is the one that prints: that of rank 0, or the only one."""
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")  # of torchrun, Lightning and srun
    return all(os.environ.get(name, "0") == "0" for name in names)


def end_with_parent() -> None:
    """Let the system kill this process once the one that started it for a run is gone; in any other process do nothing.

    Nobody else would: a process that waits for a dead one in a collective call goes on for half an hour, and one that hangs
    for ever. Only Linux can (``prctl(2)``, PR_SET_PDEATHSIG).
    """
    sweep = os.environ.pop(SWEEP, None)  # processes that this one starts for its run end with it, and not with the sweep
    if "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()  # torchrun; PARENT may be left over from an earlier run of the process that called it
    elif PARENT in os.environ and int(os.environ.get("LOCAL_RANK", "0")) > 0:
        parent = int(os.environ[PARENT])
    elif sweep:
        parent = int(sweep)
    else:
        return
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_parent() -> None:
    """Let the process that started this one say what happened: Lightning kills it as soon as this one has failed."""
    if PARENT in os.environ and not is_first_process():
        time.sleep(10)  # `end_with_parent` ends this earlier


def is_known_to_all(error: BaseException) -> bool:
    """Tell whether the first process says the same: all errors until the processes meet, and later those that are shared."""
    return not _meeting or not isinstance(error, InputError) or error.is_shared


def launched_devices() -> dict[str, int]:
    """Return ``devices`` and ``num_nodes`` as torchrun or srun have started processes; empty without either.

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
    """All processes of a run.

    Args:
        strategy: The strategy of a Trainer in this process, see `join`.

    Attributes:
        rank: The number of this process, from 0.
        count: How many there are.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.rank: int = getattr(strategy, "global_rank", 0)
        self.count: int = getattr(strategy, "world_size", 1)

    def first(self, function: Callable[[], Result]) -> Result:
        """Call a function in process 0; return its result, or raise its `InputError`, in all of them."""
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
        """Return the smallest of the numbers that all processes give."""
        if self.count == 1:
            return number
        import torch

        value = torch.tensor(number, device=self.strategy.root_device)
        return int(self.strategy.reduce(value, reduce_op="min"))

    def end(self) -> None:
        """End the process group when Python exits, after a run that was successful: nobody is left to be waited for.

        Gloo's threads let go of tensors after an operation is over. One that does so while the interpreter is torn down ends
        the process with SIGABRT, after all its work (https://github.com/pytorch/pytorch/issues/190489).
        """
        if self.count > 1:
            atexit.register(leave)

    def prepare(self, data: Any) -> None:
        """Let process 0 download and convert the data, then open them in all processes."""
        self.first(data.prepare_data)
        data.setup(None)
        if self.count == 1:
            return
        for split in ("val", "test"):  # a process without any batch would wait for ever when metrics are put together
            if split == "val" or getattr(data, "has_test", True):
                loader = getattr(data, f"{split}_dataloader")()
                if self.smallest(len(loader)) == 0:
                    raise InputError(f"too few {split} rows for {self.count} processes: use fewer --trainer.devices")


def leave() -> None:
    """End the process group, if there is one."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def build_trainer(arguments: Mapping[str, Any]) -> Trainer:
    """Build a Trainer on the devices that torchrun or srun have started processes for, if they have.

    The data modules divide their rows among processes themselves, without the duplicates of Lightning's sampler.
    """
    from lightning.pytorch import Trainer
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    try:
        return Trainer(**{"use_distributed_sampler": False, **launched_devices(), **arguments})
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, LookupError) as error:
        text = one_line(error)
        named = [name for name in arguments if re.search(rf"\b{name}\b", text, re.IGNORECASE)]
        raise InputError(f"--trainer{f'.{named[0]}' if len(named) == 1 else ''}: {text}") from error


def join(settings: Mapping[str, Any], in_order: bool = False, timeout: float = 1800) -> Processes:
    """Start the processes that the Trainer's arguments ask for, unless torchrun, srun or an earlier run has, and join them.

    They wait `timeout` seconds for one another. Only one process can read data in order.
    """
    from torch.distributed import DistError

    from zoo.data.loader import check_order
    from zoo.training.state import set_timeout

    chosen = {name: value for name, value in settings.items() if name in JOINING and value is not None}
    notes = logging.getLogger("lightning.pytorch")
    level = notes.level
    notes.setLevel(logging.WARNING)  # the run's own Trainer says the same
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
        global _meeting
        _meeting = True
        try:
            meet(strategy, timeout)
        except (DistError, OSError) as error:
            strategy.launcher.kill(signal.SIGKILL)  # those that this process has started, and that may hang
            text = f"the {trainer.world_size} processes of the run did not meet within {timeout:g} s"
            raise InputError(f"{text} (raise --ddp-timeout, or see what the others said): {one_line(error)}") from error
    return Processes(strategy)


def meet(strategy: Strategy, timeout: float) -> None:
    """Begin the process group, unless there is one."""
    from torch import distributed

    if not distributed.is_initialized() and Processes(strategy).rank != 0:
        # Torch says so as well if nobody answers, but after up to 2.6 times as long.
        environment = strategy.cluster_environment  # type: ignore[attr-defined]
        wait_for_server(environment.main_address, environment.main_port, timeout)
    strategy.setup_environment()


def wait_for_server(host: str, port: int, timeout: float) -> None:
    """Wait until somebody accepts connections."""
    end = time.monotonic() + timeout
    while True:
        try:
            with socket.create_connection((host, port), max(0.1, end - time.monotonic())) as connection:
                if connection.getsockname() != connection.getpeername():  # a port of its own, by chance
                    return
        except OSError as error:
            if time.monotonic() > end - 0.1:
                raise OSError(f"process 0 does not answer at {host}, port {port}: {one_line(error)}") from error
        time.sleep(0.1)


def check_strategy(trainer: Trainer) -> None:
    """Refuse strategies that shard a network over devices, and those that begin processes in the middle of a program."""
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

    from zoo.training.state import starts_scripts

    strategy = trainer.strategy
    if sys.platform == "win32" and trainer.world_size > 1:
        text = "several processes are not supported on Windows: use --trainer.devices 1, or WSL"
        raise InputError(text, code="unsupported")
    if not isinstance(strategy, SingleDeviceStrategy | DDPStrategy):
        name = type(strategy).__name__.removesuffix("Strategy")
        raise InputError(f"--trainer.strategy: a run cannot use {name}, only one device or ddp; use --trainer.strategy ddp")
    if strategy.launcher is not None and not starts_scripts(strategy):
        raise InputError("--trainer.strategy: processes by spawn or fork share no run folder; use ddp, and not in a notebook")


class Signals:
    """Handle both signals while a run lasts; as a context manager.

    Attributes:
        received: The signal that came while the run was `graceful`, or 0.
        graceful: Whether somebody looks at `received` and ends the run; otherwise a signal raises `Stop` wherever it comes. A
            second Ctrl-C always does.
        launcher: Lightning's, if it has started other processes of the run: they are told.
    """

    def __init__(self) -> None:
        self.received, self.graceful, self.launcher = 0, False, None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            for number, handler in self._before.items():
                if handler is not signal.SIG_IGN:  # as nohup and a shell's `&` ask for
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def take_over(self, trainer: Any) -> None:
        """Handle SIGTERM in place of Lightning."""
        from zoo.training.state import disable_sigterm

        disable_sigterm(trainer)
        self.launcher = trainer.strategy.launcher

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        again = self.received == signum == signal.SIGINT
        self.received = self.received or signum
        if again or not self.graceful:
            if signum == signal.SIGTERM:  # Ctrl-C reaches all processes of a terminal by itself
                for process in getattr(self.launcher, "procs", []):
                    process.send_signal(signum)
            raise Stop(signum)
        if signum == signal.SIGINT and sys.stderr.isatty():
            print("\nstopping after this step; Ctrl-C again stops at once", file=sys.stderr)  # noqa: T201
