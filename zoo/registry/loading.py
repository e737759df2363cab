"""Import one plugin, in this process or in another, or read its one-line summary without importing it."""

import ast
import json
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from zoo.errors import InputError, one_line
from zoo.registry.catalogue import GROUPS, LOCAL, Entry


class PluginError(InputError):
    """A plugin failed; the text names the entry, its distribution, the error and what to do."""


def plugin_error(entry: Entry, what: str, cause: BaseException | None = None) -> PluginError:
    """Return the error for a plugin that failed: ``what`` it did, the error that was the cause, and what to do.

    >>> print(plugin_error(Entry("dual", "zoo.algebras", "dual:dual", "duals", "1.0"), "does not load", ImportError("no jax")))
    algebra 'dual' of duals 1.0 does not load: ImportError: no jax; mend it or: pip uninstall duals
    """
    remedy = f"mend it or: pip uninstall {entry.distribution}"
    if entry.ours or entry.distribution == LOCAL:
        remedy = "see: zoo doctor" if entry.ours else "register a factory that works"
    reason = f": {type(cause).__name__}: {one_line(cause)}" if cause else ""
    return PluginError(f"{entry} {what}{reason}; {remedy}")


def load(entry: Entry) -> Any:
    """Import the one module an entry names and return the callable in it, of a command the module; or raise `PluginError`.

    What the plugin prints meanwhile goes to stderr, so that `--json` output stays clean.
    """
    if (factory := entry.factory) is not None:
        return factory
    module, attribute = entry.target
    is_command = entry.group == GROUPS["commands"]
    if not module or bool(attribute) == is_command:
        raise plugin_error(entry, f"does not load: {entry.value!r} is not {'a module' if is_command else 'module:attribute'}")
    try:
        with redirect_stdout(sys.stderr):
            target: Any = import_module(module)
            for name in filter(None, attribute.split(".")):
                target = getattr(target, name)
    except KeyboardInterrupt as error:  # by the user, or by the plugin
        raise KeyboardInterrupt(f"interrupted while {entry} was loaded") from error
    except BaseException as error:  # A plugin may call sys.exit() or raise a BaseException of its own.
        raise plugin_error(entry, "does not load", error) from error
    if is_command and not all(callable(getattr(target, name, None)) for name in ("make_parser", "run")):
        raise plugin_error(entry, f"does not load: {entry.value} needs make_parser(command) and run(command, values)")
    if not is_command and not callable(target):
        raise plugin_error(entry, f"does not load: {entry.value} is not callable but of type {type(target).__name__}")
    return target


# The parent's path goes along, because plugins may depend on folders that were added at run time. No key
# reaches the process: an interrupt is of the plugin's own making.
_CHILD = """
import json, os, signal, sys
path, entries, report, common = json.loads(sys.argv[1])
sys.path[:] = path
signal.signal(signal.SIGINT, signal.SIG_IGN)
from importlib import import_module
from zoo.registry.catalogue import Entry
from zoo.registry.loading import PluginError, load
for name in common:
    try:
        import_module(name)
    except Exception:
        pass
with open(report, "a", encoding="utf-8", errors="backslashreplace", buffering=1) as file:
    print("began", file=file)
    for fields in entries:
        entry = Entry(**fields)
        try:
            load(entry)
            print("loaded", file=file)
        except PluginError as error:
            print(error, file=file)
        except KeyboardInterrupt:
            print(f"{entry} does not load: KeyboardInterrupt", file=file)
os._exit(0)
"""
BEGIN = 120.0
"""Seconds for Python to begin, and for the common modules."""


def probe(entries: Sequence[Entry], timeout: float = 60.0, common: Sequence[str] = ()) -> Iterator[str | None]:
    """Load entries in another process, where even a crash does no harm; yield what went wrong with each, or None.

    After an entry that ends the process, or takes longer than ``timeout`` seconds, the others are loaded in a new one. Modules
    that many of them import may be named as ``common``: the time of each entry is its own then.
    """
    answers = _tried_in_turn([entry for entry in entries if entry.factory is None], timeout, common)
    return (None if entry.factory is not None else next(answers) for entry in entries)


def _tried_in_turn(entries: Sequence[Entry], timeout: float, common: Sequence[str]) -> Iterator[str | None]:
    while entries:
        for answer in _tried(entries, timeout, common):
            entries = entries[1:]
            yield None if answer == "loaded" else answer


def _tried(entries: Sequence[Entry], timeout: float, common: Sequence[str]) -> Iterator[str]:
    """Load entries in one process and yield what it says of each, until one ends it."""
    # A file, not a pipe: a grandchild that keeps a pipe open would make us wait for ever.
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        report.touch()
        words = json.dumps([list(map(str, sys.path)), [asdict(entry) for entry in entries], str(report), [*common]])
        streams: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        with subprocess.Popen([sys.executable, "-P", "-c", _CHILD, words], **streams) as process:
            try:
                yield from _answers(process, report, entries, timeout)
            finally:
                process.kill()


def _answers(process: subprocess.Popen[bytes], report: Path, entries: Sequence[Entry], timeout: float) -> Iterator[str]:
    done, since = 0, time.monotonic()  # the first answer is that the process is ready
    while done <= len(entries):
        code = process.poll()
        lines = report.read_text(encoding="utf-8").split("\n")[done:-1]
        for answer in lines:
            done, since = done + 1, time.monotonic()
            if done > 1:
                yield answer
        late = time.monotonic() - since > (timeout if done else BEGIN)
        if not lines and (late or code is not None):
            end = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
            what = f"ends the process that loads it ({end})" if code is not None else f"does not load within {timeout:g} s"
            yield f"{entries[max(0, done - 1)]} {what}"
            return
        if not lines:
            time.sleep(0.02)


def summary(entry: Entry) -> str:
    """Return the first docstring line of what an entry points at, read from its source; "" if it cannot be read.

    Nothing is imported or run. The docstring of a plain name is the string below its assignment.
    """
    if (factory := entry.factory) is not None:
        doc = getattr(factory, "func", factory).__doc__  # of what a functools.partial calls
        return next(iter((doc or "").strip().splitlines()), "")
    module, attribute = entry.target
    try:
        with warnings.catch_warnings():  # Invalid escapes in a third-party file are not the user's concern.
            warnings.simplefilter("ignore")
            node: ast.AST | None = ast.parse(_source(module))
        for name in filter(None, attribute.split(".")):
            node = _definition(node, name)
        documented = ast.Module | ast.ClassDef | ast.FunctionDef
        docstring = ast.get_docstring(node) if isinstance(node, documented) else _string(node)
    except Exception:  # Whatever is wrong with the source is reported when it is loaded.
        return ""
    return next(iter((docstring or "").splitlines()), "")


def _source(module: str) -> str:
    """Find and decode the source of a module. Looking for `a.b` by its full name would import `a`."""
    package, *parts = module.split(".")
    spec: ModuleSpec | None = find_spec(package)
    for part in parts:
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations or []) if spec else [])
    source: str = spec.loader.get_source(spec.name)  # type: ignore[union-attr]
    return source


def _string(node: ast.AST | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    return str(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _definition(node: ast.AST | None, name: str) -> ast.AST | None:
    """Find the last function or class of this name in a body, also inside `if` and `try`; of a name, the line below it."""
    definition: ast.AST | None = None
    parts = [getattr(node, part, []) for part in ("body", "handlers", "orelse", "finalbody")]
    body = list(chain.from_iterable(parts))
    for child, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            definition = child if child.name == name else definition
        elif isinstance(child, ast.Assign):
            definition = below if name in map(ast.unparse, child.targets) else definition
        elif isinstance(child, ast.If | ast.Try | ast.ExceptHandler):
            definition = _definition(child, name) or definition
    return definition
