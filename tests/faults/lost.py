"""One of two processes of a run is lost during training: the run must end in time and resume bit for bit.

The processes are started like by torchrun, and this module ends the remaining one, as its agent would. `tests.faults.ranks`
uses real launchers.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.kills import Case, Whole, compare, finish, start
from tests.faults.ranks import GRACE

CASE = Case("images", ranks=2)
HOW = ("kill", "raise", "hang", "terminate")
WHEN = ("step", "checkpoint")


@dataclass(frozen=True)
class Lost:
    """The end of a run that has lost one process.

    Attributes:
        codes: The exit codes of both processes.
        seconds: Time from the loss until the other process ended by itself; None if it did not in time.
        wrong: What is wrong with the resumed run, if anything.
    """

    codes: tuple[int, int]
    seconds: float | None
    wrong: str


def go_wrong(how: str, when: str, mark: str) -> None:
    """Make this process fail in its third step, or when it writes its second checkpoint."""

    def fail() -> None:
        Path(mark).touch()
        if how in ("kill", "terminate"):
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGTERM)
        elif how == "hang":
            time.sleep(1000)
        else:
            raise RuntimeError("a rank is gone")

    from lightning.pytorch import Trainer
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

    kind, name, number = (_TrainingEpochLoop, "advance", 3) if when == "step" else (Trainer, "save_checkpoint", 2)
    inner, calls = getattr(kind, name), [0]

    def outer(*arguments: object, **options: object) -> object:
        calls[0] += 1
        if calls[0] == number:
            fail()
        return inner(*arguments, **options)

    setattr(kind, name, outer)


def lose(rank: int, how: str, when: str, whole: Whole, folder: Path, timeout: int) -> Lost:
    """Lose a process, end the other one like torchrun's agent, and resume the run without a short timeout."""
    run = f"lost-{rank}-{how}-{when}"
    mark = folder / f"{run}.mark"
    for _ in range(3):  # they may fail to connect on a busy machine
        running = start(CASE, folder, run, (go_wrong, (how, when, str(mark))), rank, ["--ddp_timeout", str(timeout)])
        processes = [each.process for each in running]
        while not mark.exists() and any(process.exitcode is None for process in processes):
            processes[1 - rank].join(0.05)
        if mark.exists():
            break
    since = time.monotonic()
    processes[1 - rank].join(timeout + GRACE)
    seconds = time.monotonic() - since if processes[1 - rank].exitcode and mark.exists() else None
    for stop in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.exitcode is None and process.pid is not None:
                os.kill(process.pid, stop)
                process.join(5)
    first, second = (each.ended().code for each in running)
    return Lost((first, second), seconds, compare(CASE, finish(CASE, folder, run), whole, folder / run))
