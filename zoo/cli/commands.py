"""Neural networks over hypercomplex algebras: any algebra in any backbone, with 1/n of the weights.

usage: zoo COMMAND [OPTIONS]

explore
  list        List what is installed: zoo list [algebras|backbones|datasets|...], zoo list backbones vit
  info        Count the parameters of a network by layer, next to the same network over the reals
  doctor      Check the installation: Python, torch, devices, plugins and folders
  completion  Print a shell completion script: zoo completion bash

train
  fit         Train a network: zoo fit --backbone vit --algebra quaternion
  sweep       Train a grid of runs from one file: zoo sweep FILE --jobs 2
  frontier    Compare algebras with real networks of equal size: zoo frontier FILE --jobs 2
  lottery     Find lottery tickets: zoo lottery --backbone vit --compare real,quaternion --rounds 10
  average     Average the last checkpoints of a run: zoo average runs/NAME --last 8
  recover     Save the model of a crashed run from its best checkpoint: zoo recover runs/NAME

evaluate and use
  test        Evaluate a model on its test split: zoo test runs/NAME
  validate    Evaluate a model on its validation split
  predict     Classify images or texts, or translate: zoo predict runs/NAME picture.png
  generate    Generate text: zoo generate runs/NAME --prompt "zebra: "
  serve       Serve a trained model as a web page: zoo serve vit-digits-quaternion
  report      Report on a model or an experiment: zoo report frequencies runs/NAME
  verify      Check the files of a model and its checkpoints: zoo verify runs/NAME
  bench       Time a network against the same network over the reals: zoo bench --backbone vit --algebra quaternion

convert and compress
  convert     Project a real network onto an algebra: zoo convert --from NAME --algebra quaternion --to FOLDER
  prune       Remove heads, units and channels, then fine-tune: zoo prune runs/NAME --ratio 0.5 --epochs 5
  export      Export a model to ONNX, torch.export or safetensors: zoo export runs/NAME --format onnx --to FOLDER

share
  pull        Download and verify a trained model: zoo pull OWNER/NAME
  push        Upload a model with its card to the Hugging Face Hub: zoo push runs/NAME OWNER/NAME
  publish     Write a release folder and its catalogue entry: zoo publish runs/NAME --to FOLDER

plugins

options
  -h, --help  Show this page; zoo COMMAND --help shows the options of a command
  --version   Show the version
  --debug     After COMMAND: show the full traceback of an error
"""

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

from zoo.cli.result import Result
from zoo.errors import InputError, Stop, printable, quiet
from zoo.training.processes import end_with_parent, is_first_process, is_known_to_all, wait_for_parent

COMMANDS = {
    "list": "zoo.cli.listing:list_plugins",
    "info": "zoo.cli.report:info",
    "doctor": "zoo.cli.listing:doctor",
    "completion": "zoo.cli.listing:completion",
    "fit": "zoo.cli.fit:fit",
    "test": "zoo.cli.models:test",
    "validate": "zoo.cli.models:validate",
    "average": "zoo.cli.fit:average",
    "prune": "zoo.cli.fit:prune",
    "convert": "zoo.cli.fit:convert",
    "recover": "zoo.cli.fit:recover",
    "predict": "zoo.cli.models:predict",
    "generate": "zoo.cli.models:generate",
    "report": "zoo.cli.report:report",
    "verify": "zoo.cli.report:verify",
    "pull": "zoo.cli.models:pull",
    "bench": "zoo.cli.report:bench",
    "push": "zoo.cli.models:push",
    "publish": "zoo.cli.models:publish",
}
"""Functions of the built-in commands, imported on use. Plugins add commands through the group ``zoo.commands``."""


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 success, 1 bug or failed check, 2 invalid input, 130 Ctrl-C, 143 SIGTERM."""
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
        print(_help_page())
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


def _help_page() -> str:
    """Return the docstring of this module, with the commands of third-party plugins."""
    from zoo.registry import entries, summary

    before, _, after = (__doc__ or "").strip().partition("plugins\n\n")
    lines = [
        f"  {entry.name:<10}  {summary(entry).removesuffix('.')} [{entry.distribution} {entry.version}]"
        for entry in entries("commands")
        if not entry.ours
    ]
    return before + ("\n".join(["plugins", *lines]) + "\n\n" if lines else "") + after


def command_names() -> list[str]:
    """Return the names of all commands, those of plugins last."""
    from zoo.registry import entries

    return list(dict.fromkeys([*COMMANDS, *(entry.name for entry in entries("commands"))]))


def load_command(name: str) -> Callable[..., Result | int | None]:
    """Import the function of a command, see `zoo.cli.parser.Parser`."""
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
        path = error.filename2 or error.filename  # of a copy the target
        print(f"zoo: {error.strerror}{f' ({printable(str(path))})' if path else ''}", file=sys.stderr)
        is_path = isinstance(error, PermissionError | FileExistsError | NotADirectoryError | IsADirectoryError)
        return 2 if is_path else 1
    print(f"zoo: {type(error).__name__}: {text[:300]}", file=sys.stderr)
    print("this is a bug in the zoo or in a plugin: run again with --debug and report the output", file=sys.stderr)
    return 1
