"""The ``zoo`` command: find the command that was asked for, run it, and turn its errors into one line and an exit code."""

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
"""The modules of the built-in commands, imported on use. Other commands are entries of the group ``zoo.commands``."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 is success, 1 a defect or a failed check, 2 the user's input, 130 Ctrl-C and 143 SIGTERM.
    """
    # Small networks synchronise their threads every few microseconds. Threads that spin while they wait gain a little on an
    # idle machine and lose an order of magnitude on a busy one (benchmarks/results/threads.json). Torch reads it when imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    open_streams()
    end_with_parent()
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    interrupts: list[int] = []
    try:
        with noted(interrupts), without_working_folder():
            code = dispatch(words)
        sys.stdout.flush()
        if interrupts:
            raise KeyboardInterrupt
        return code
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, KeyboardInterrupt, Stop, Exception) as error:
        if debug:
            raise
        return explain(KeyboardInterrupt() if interrupts and isinstance(error, Exception) else error)


@contextmanager
def noted(interrupts: list[int]) -> Iterator[None]:
    """Note every Ctrl-C before it raises: a library that is being imported may swallow the exception, or fail for it later."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(signum: int, frame: FrameType | None) -> Any:
        interrupts.append(signum)
        return before(signum, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def without_working_folder() -> Iterator[None]:
    """Take the working folder off the import path: what lies beside a configuration is not installed.

    Python puts it first for ``python -m zoo``, and so does an empty entry of PYTHONPATH. Entries behind the standard library
    are those of installed packages, editable ones too, and stay.
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
    """Put the null device in the place of standard streams that are closed: a file that is opened later would take it."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (as long as the process)
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a letter is no reason to fail
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def dispatch(words: list[str]) -> int:
    """Find the command and run it."""
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
    """List the names of all commands: the built-in ones, then those of plugins."""
    from zoo.registry import entries

    return list(dict.fromkeys([*COMMANDS, *(entry.name for entry in entries("commands"))]))


def load_command(name: str) -> Any:
    """Import the module of a command, which has ``make_parser(command) -> Parser`` and ``run(command, values) -> int``.

    Raises:
        InputError: If there is no such command.
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


def show(value: Any, as_json: bool, write: Callable[[Any], None]) -> None:
    """Print a value as JSON, or as a function writes it."""
    if as_json:
        print(to_json(value, indent=2))
    else:
        write(value)


def to_json(value: Any, **options: Any) -> str:
    """Write JSON, which has no infinity and no NaN: they are null."""
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def quiet() -> None:
    """Keep other libraries' notes and adverts off the terminal; must come after their import, which sets the level."""
    import logging
    import warnings

    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # its own loggers are made when it is first used
    for name in ("lightning.pytorch", "lightning.fabric", "huggingface_hub", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Advice about loader workers and about logging intervals, which our defaults have already weighed.
    warnings.filterwarnings("ignore", module="lightning.*")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


def broken_package(error: BaseException) -> str | None:
    """Name the installed package whose metadata Python itself stumbled over, if that is what happened.

    Our registry reads around such a package; importing torch and building Lightning's Trainer do not.
    """
    from zoo.registry import faults

    frames = traceback.extract_tb(error.__traceback__)
    if not any("importlib" in frame.filename and "metadata" in frame.filename for frame in frames):
        return None
    return next((f"the metadata of {fault.distribution} is broken ({fault.reason})" for fault in faults()), None)


def stdout_fails() -> bool:
    """Return whether nothing can be written to standard output, and give up what was to be."""
    try:
        if getattr(sys.stdout, "write_through", False):  # then nothing waits to be flushed
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


def explain(error: BaseException) -> int:
    """Say what went wrong in one line on stderr, and return the exit code."""
    text = printable(str(error))
    if isinstance(error, InputError | KeyboardInterrupt | Stop):
        if is_first_process():  # the other processes of a run say the same
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
        number = error.errno if name and not isinstance(error.__cause__, OSError) else None  # a cause says what to do
        denied = number in (errno.EACCES, errno.EPERM, errno.EROFS)
        misplaced = number in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
        advice = ": choose another place" if denied or misplaced else ""
        print(f"zoo: {error.strerror}{suffix}{advice}{', or see to its permissions' if denied else ''}", file=sys.stderr)
        return 2 if denied or misplaced else 1
    if package := broken_package(error):
        print(f"zoo: {package}: torch and Lightning fail beside it; mend or uninstall it (zoo doctor)", file=sys.stderr)
        return 2
    print(f"zoo: {type(error).__name__}: {text[:300]}", file=sys.stderr)
    print("this is a defect of the zoo or of a plugin: run again with --debug and report what it prints", file=sys.stderr)
    return 1
