"""The ``zoo`` command line: dispatch to a command, and turn its errors into one line and an exit code."""

import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

from zoo.cli.result import Result
from zoo.errors import InputError, Stop, printable
from zoo.training.processes import end_with_parent, is_first_process, is_known_to_all, wait_for_parent

COMMANDS = {
    "list": "zoo.cli.listing:list_plugins",
    "info": "zoo.cli.report:info",
    "doctor": "zoo.cli.doctor:doctor",
    "completion": "zoo.cli.listing:completion",
    "fit": "zoo.cli.fit:fit",
    "test": "zoo.cli.models:test",
    "validate": "zoo.cli.models:validate",
    "average": "zoo.cli.fit:average",
    "prune": "zoo.cli.convert:prune",
    "convert": "zoo.cli.convert:convert",
    "recover": "zoo.cli.fit:recover",
    "predict": "zoo.cli.models:predict",
    "generate": "zoo.cli.models:generate",
    "report": "zoo.cli.report:report",
    "verify": "zoo.cli.report:verify",
    "pull": "zoo.cli.sharing:pull",
    "bench": "zoo.cli.report:bench",
    "push": "zoo.cli.sharing:push",
    "publish": "zoo.cli.sharing:publish",
}
"""Functions of the built-in commands, imported on use. Plugins add commands through the group ``zoo.commands``."""


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
        with record_interrupts(interrupts), without_working_folder(), quiet():
            code = dispatch(words)
        sys.stdout.flush()
        if interrupts:
            raise KeyboardInterrupt
        return code
    except (Exception, KeyboardInterrupt, Stop) as error:
        if debug:
            raise
        discard_output()
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


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the log messages of libraries, and advice that our defaults take into account."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning.*")
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            yield
    finally:
        logging.disable(before)


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


def discard_output() -> None:
    """Discard output that cannot be written; otherwise Python would report an error when it flushes at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    function = load_command(command)
    from zoo.cli.parser import Parser

    parser = Parser(command, function)
    values = parser.parse(rest)
    as_json = parser.returns_result and values.pop("json", False)
    with redirect_stdout(sys.stderr if as_json else sys.stdout):  # training prints messages
        result = function(**values)
    if not isinstance(result, Result):
        return result or 0
    if is_first_process():
        result.show(as_json)
    return result.code


def command_names() -> list[str]:
    """Return the names of all commands, those of plugins last."""
    from zoo.registry import entries

    return list(dict.fromkeys([*COMMANDS, *(entry.name for entry in entries("commands"))]))


def load_command(name: str) -> Callable[..., Result | int | None]:
    """Import the function of a command, see `zoo.cli.parser.Parser`.

    Raises:
        InputError: If the command is unknown.
        PluginError: If the command of a plugin cannot be imported.
    """
    if name in COMMANDS:
        module, _, function = COMMANDS[name].partition(":")
        return getattr(import_module(module), function)  # type: ignore[no-any-return]
    from zoo.registry import entries, load, resolve

    if any(entry.name == name for entry in entries("commands")):
        return load(resolve("commands", name)[0])  # type: ignore[no-any-return]
    names = command_names()
    close = get_close_matches(name, names, 1)
    hint = f": did you mean '{close[0]}'?" if close else f": use {', '.join(names)}"
    raise InputError(f"unknown command '{name}'{hint} (see zoo --help)", code="unknown")


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
    if isinstance(error, BrokenPipeError):  # the reader of our output has exited
        return 0
    if isinstance(error, MemoryError):
        print(f"zoo: not enough memory{f': {text}' if text else ''}", file=sys.stderr)
        return 1
    if isinstance(error, OSError) and error.strerror:
        print(f"zoo: {error.strerror}{f' ({printable(str(error.filename))})' if error.filename else ''}", file=sys.stderr)
        is_path = isinstance(error, PermissionError | FileExistsError | NotADirectoryError | IsADirectoryError)
        return 2 if is_path else 1
    print(f"zoo: {type(error).__name__}: {text[:300]}", file=sys.stderr)
    print("this is a bug in the zoo or in a plugin: run again with --debug and report the output", file=sys.stderr)
    return 1
