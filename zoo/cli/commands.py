"""The ``zoo`` command line: dispatch to a command, and turn its errors into one line and an exit code."""

import errno
import io
import json
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

from zoo.errors import InputError, Stop, printable
from zoo.training.processes import end_with_parent, is_first_process, is_known_to_all, wait_for_parent

COMMANDS = {
    "list": "zoo.cli.listing",
    "info": "zoo.cli.report",
    "doctor": "zoo.cli.doctor",
    "completion": "zoo.cli.listing",
    "fit": "zoo.cli.fit",
    "test": "zoo.cli.models",
    "validate": "zoo.cli.models",
    "average": "zoo.cli.fit",
    "prune": "zoo.cli.convert",
    "convert": "zoo.cli.convert",
    "recover": "zoo.cli.fit",
    "predict": "zoo.cli.models",
    "generate": "zoo.cli.models",
    "report": "zoo.cli.report",
    "verify": "zoo.cli.report",
    "pull": "zoo.cli.sharing",
    "bench": "zoo.cli.report",
    "push": "zoo.cli.sharing",
    "publish": "zoo.cli.sharing",
}
"""Modules of the built-in commands, imported on use. Plugins add commands through the group ``zoo.commands``."""


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 success, 1 bug or failed check, 2 invalid input, 130 Ctrl-C, 143 SIGTERM."""
    # Small networks synchronise their threads every few microseconds. Spinning threads are slightly faster on an idle machine
    # and ten times slower on a busy one (benchmarks/results/threads.json). Must be set before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    open_streams()
    end_with_parent()
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    interrupts: list[int] = []
    try:
        with record_interrupts(interrupts), without_working_folder():
            code = dispatch(words)
        sys.stdout.flush()
        if interrupts:
            raise KeyboardInterrupt
        return code
    except BrokenPipeError:
        # The reader of our output has exited; without this, Python would report an error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt, Stop) as error:
        if debug:
            raise
        return report_error(KeyboardInterrupt() if interrupts and isinstance(error, Exception) else error)


@contextmanager
def record_interrupts(interrupts: list[int]) -> Iterator[None]:
    """Record every Ctrl-C before it raises, because a library may swallow the exception while it is imported."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def record(signum: int, frame: FrameType | None) -> Any:
        interrupts.append(signum)
        return handler(signum, frame)

    signal.signal(signal.SIGINT, record)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def without_working_folder() -> Iterator[None]:
    """Remove the working directory from the import path, so that files next to a configuration are never imported.

    ``python -m zoo`` and an empty entry of PYTHONPATH put it first. Entries after the standard library belong to installed
    packages, including editable ones, and are not removed.
    """
    before, library = list(sys.path), os.path.dirname(os.__file__)
    end = before.index(library) if library in before else len(before)
    sys.path[:] = [entry for i, entry in enumerate(before) if i >= end or not _is_here(entry)]
    try:
        yield
    finally:
        sys.path[:] = before


def _is_here(entry: str) -> bool:
    try:
        return os.path.samefile(entry or os.curdir, os.curdir)
    except OSError:
        return False


def open_streams() -> None:
    """Open the null device for closed standard streams; otherwise the next opened file would get their descriptor."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is `number`
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (open until exit)
    for stream in (sys.stdout, sys.stderr):  # escape characters that the encoding of the terminal lacks
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def dispatch(words: list[str]) -> int:
    """Load and run a command."""
    if not words or words[0] in ("-h", "--help", "help"):
        from zoo.cli.help import page

        print(page())
        return 0
    command, *rest = words
    if command in ("-V", "--version"):
        print(own_version())
        return 0
    module = load_command(command)
    code: int = module.run(command, module.make_parser(command).parse(rest))
    return code


def command_names() -> list[str]:
    """Return the names of all commands, those of plugins last."""
    from zoo.registry import entries

    return list(dict.fromkeys([*COMMANDS, *(entry.name for entry in entries("commands"))]))


def load_command(name: str) -> Any:
    """Import the module of a command, which defines ``make_parser(command) -> Parser`` and ``run(command, values) -> int``.

    Raises:
        InputError: If the command is unknown.
        PluginError: If the command of a plugin cannot be imported.
    """
    if name in COMMANDS:
        return import_module(COMMANDS[name])
    from zoo.registry import entries, load, resolve

    if any(entry.name == name for entry in entries("commands")):
        return load(resolve("commands", name)[0])
    names = command_names()
    close = get_close_matches(name, names, 1)
    hint = f": did you mean '{close[0]}'?" if close else f": use {', '.join(names)}"
    raise InputError(f"unknown command '{name}'{hint} (see zoo --help)", code="unknown")


def show(value: Any, as_json: bool, print_text: Callable[[Any], None]) -> int:
    """Print a value as JSON, or call `print_text` with it; return exit code 0."""
    if as_json:
        print(to_json(value, indent=2))
    else:
        print_text(value)
    return 0


def to_json(value: Any, **options: Any) -> str:
    """Return a value as JSON, with null for infinity and NaN."""
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def quiet() -> None:
    """Silence messages of other libraries; must be called after their import, which sets the log level."""
    import logging
    import warnings

    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # huggingface_hub configures its loggers on first use
    for name in ("lightning.pytorch", "lightning.fabric", "huggingface_hub", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Advice about data loader workers and logging intervals, which our defaults take into account.
    warnings.filterwarnings("ignore", module="lightning.*")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


def broken_package(error: BaseException) -> str | None:
    """Return a message if an error was caused by an installed package with broken metadata.

    The registry tolerates such packages; importing torch and building Lightning's Trainer fail.
    """
    from zoo.registry import faults

    frames = traceback.extract_tb(error.__traceback__)
    if not any("importlib" in frame.filename and "metadata" in frame.filename for frame in frames):
        return None
    return next((f"the metadata in {fault.path} is broken ({fault.reason})" for fault in faults()), None)


def stdout_fails() -> bool:
    """Return whether standard output cannot be written, and if so discard its buffer."""
    try:
        if getattr(sys.stdout, "write_through", False):  # nothing is buffered
            sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def own_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return version("hypercomplex-zoo")
    except PackageNotFoundError:
        return "unknown (hypercomplex-zoo is not installed)"


def report_error(error: BaseException) -> int:
    """Print an error as one line on stderr and return the exit code."""
    text = printable(str(error))
    if isinstance(error, InputError | KeyboardInterrupt | Stop):
        if is_first_process():  # the other processes of a run have the same error
            print(f"zoo: {text or 'interrupted'}", file=sys.stderr)
        else:
            wait_for_parent()
            if not is_known_to_all(error):
                print(f"zoo: process {os.environ.get('RANK', os.environ.get('LOCAL_RANK', '?'))}: {text}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 128 + getattr(error, "signum", 2)
    if isinstance(error, MemoryError):
        print(f"zoo: not enough memory{f': {text}' if text else ''}", file=sys.stderr)
        return 1
    if isinstance(error, OSError) and error.strerror:
        name = error.filename or ("standard output" if stdout_fails() else "")
        suffix = f" ({printable(str(name))})" if name else ""
        number = error.errno if name and not isinstance(error.__cause__, OSError) else None  # a cause contains advice
        denied = number in (errno.EACCES, errno.EPERM, errno.EROFS)
        misplaced = number in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
        advice = ": choose another path" if denied or misplaced else ""
        print(f"zoo: {error.strerror}{suffix}{advice}{', or change its permissions' if denied else ''}", file=sys.stderr)
        return 2 if denied or misplaced else 1
    if package := broken_package(error):
        print(f"zoo: {package}, which torch and Lightning cannot handle: fix or uninstall it (zoo doctor)", file=sys.stderr)
        return 2
    print(f"zoo: {type(error).__name__}: {text[:300]}", file=sys.stderr)
    print("this is a bug in the zoo or in a plugin: run again with --debug and report the output", file=sys.stderr)
    return 1
