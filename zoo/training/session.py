"""What runs share and what surrounds them: processes, signals, the locked folder, and reports of interruptions."""

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zoo.errors import Interrupted, Stop
from zoo.training.folder import RunFolder, claim_on_rank_0
from zoo.training.processes import Processes, Signals, join
from zoo.training.resolve import Plan
from zoo.training.threads import restored_threads
from zoo.training.trainer import check_trainer

NOTHING_SAVED = "no checkpoint was written yet, so nothing is saved"
ResumeText = Callable[[Path, bool], str | None]
"""Describes what is saved of an interrupted run in a folder, whether or not it is trained; None if nothing is."""


class Session(NamedTuple):
    """What all runs of a command share: checked Trainer arguments, processes and signal handlers."""

    settings: dict[str, Any]
    processes: Processes
    signals: Signals


@contextmanager
def start_session(plan: Plan) -> Iterator[Session]:
    """Start the processes of a command (`zoo.training.processes.join`), handle signals, and set the matmul precision."""
    settings, before = check_trainer(plan.options.trainer), torch.get_float32_matmul_precision()
    processes = join(settings, plan.needs_order, plan.options.ddp_timeout)
    torch.set_float32_matmul_precision(plan.options.matmul_precision or before)
    try:
        with Signals() as signals:
            yield Session(settings, processes, signals)
    finally:
        torch.set_float32_matmul_precision(before)
    processes.end()


@contextmanager
def open_folder(
    config: Mapping[str, object], run_dir: str | None, resume: str | None, processes: Processes, resume_text: ResumeText
) -> Iterator[RunFolder]:
    """Claim the folder of a run (`claim_on_rank_0`); errors then tell what is saved in it and how to resume."""
    with (
        claim_on_rank_0(config, run_dir, resume, processes) as folder,
        quiet_event_writer(),
        restored_threads(),
        report_interruption(folder, resume_text),
        processes.report_lost(lambda: resume_text(folder.path, False) or NOTHING_SAVED),
    ):
        yield folder


@contextmanager
def report_interruption(folder: RunFolder, resume_text: ResumeText, trained: bool = False) -> Iterator[None]:
    """Add what is saved and how to resume to the error of a signal or a full disk."""
    try:
        yield
    except (Stop, SystemExit) as stop:
        text = resume_text(folder.path, trained)
        if text is None:
            folder.discard()
        raise Interrupted(f"stopped; {text or NOTHING_SAVED}", getattr(stop, "signum", signal.SIGINT)) from stop
    except OSError as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, OSError):  # stdout is closed, or already reported
            raise
        text, path = resume_text(folder.path, trained), error.filename or folder.path
        if text is None:
            error.filename = str(path)
            raise
        if trained and not (folder.path / "model").exists():
            text += f", or save the model with: zoo recover {shlex.quote(str(folder.path))}"
        raise OSError(error.errno, f"{error.strerror or error} ({path}); {text}") from error


@contextmanager
def quiet_event_writer() -> Iterator[None]:
    """Suppress tracebacks of an `OSError` in TensorBoard's writer thread; writing the next checkpoint raises it as well."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not (isinstance(args.exc_value, OSError) and type(args.thread).__module__.startswith("tensorboard")):
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
