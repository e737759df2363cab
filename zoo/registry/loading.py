"""Import one plugin, in this process or in another, or read its one-line summary without importing it."""

import ast
import json
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import chain
from typing import Any

from zoo.errors import InputError, one_line
from zoo.registry.catalogue import LOCAL, Entry


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
    said = f": {type(cause).__name__}: {one_line(cause)}" if cause else ""
    return PluginError(f"{entry} {what}{said}; {remedy}")


def load(entry: Entry) -> Callable[..., Any]:
    """Import the one module an entry names and return the callable in it, or raise `PluginError`.

    What the plugin prints meanwhile goes to stderr, so that `--json` output stays clean.
    """
    if (factory := entry.factory) is not None:
        return factory
    module, attribute = entry.target
    if not module or not attribute:
        raise plugin_error(entry, f"does not load: {entry.value!r} is not module:attribute")
    try:
        with redirect_stdout(sys.stderr):
            target: Any = import_module(module)
            for name in attribute.split("."):
                target = getattr(target, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A plugin may call sys.exit() or raise a BaseException of its own.
        raise plugin_error(entry, "does not load", error) from error
    if not callable(target):
        raise plugin_error(entry, f"does not load: {entry.value} is not callable but of type {type(target).__name__}")
    return target  # type: ignore[no-any-return]


# The parent's path goes along, because plugins may depend on folders that were added at run time.
_CHILD = """
import json, os, sys
path, fields = json.loads(sys.argv[1])
sys.path[:] = path
from zoo.registry.catalogue import Entry
from zoo.registry.loading import PluginError, load
try:
    load(Entry(**fields))
    print("\\nloaded", flush=True)
except PluginError as error:
    print(f"\\n{error}", flush=True)
os._exit(0)
"""


def probe(entry: Entry, timeout: float = 60.0) -> str | None:
    """Load an entry in a fresh process, where even a crash does no harm; return what went wrong, or None."""
    if entry.factory is not None:
        return None
    # A file, not a pipe: a grandchild that keeps a pipe open would make us wait for ever.
    with tempfile.TemporaryFile("w+") as report:
        command = [sys.executable, "-P", "-c", _CHILD, json.dumps([list(map(str, sys.path)), asdict(entry)])]
        streams: Any = {"stdin": subprocess.DEVNULL, "stdout": report, "stderr": subprocess.DEVNULL}
        try:
            code = subprocess.run(command, timeout=timeout, **streams).returncode
        except subprocess.TimeoutExpired:
            return f"{entry} does not load within {timeout:g} s"
        report.seek(0)
        said = report.read().splitlines()
    if code == 0 and said:
        return None if said[-1] == "loaded" else said[-1]
    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"{entry} ends the process that loads it ({end})"


def summary(entry: Entry) -> str:
    """Return the first docstring line of what an entry points at, read from its source; "" if it cannot be read.

    Nothing is imported or run. The docstring of a plain name is the string below its assignment.
    """
    if (factory := entry.factory) is not None:
        return next(iter((factory.__doc__ or "").strip().splitlines()), "")
    module, attribute = entry.target
    try:
        with warnings.catch_warnings():  # Invalid escapes in a third-party file are not the user's concern.
            warnings.simplefilter("ignore")
            node: ast.AST | None = ast.parse(_source(module))
        for name in attribute.split("."):
            node = _definition(node, name)
        docstring = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else _string(node)
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
    found: ast.AST | None = None
    parts = [getattr(node, part, []) for part in ("body", "handlers", "orelse", "finalbody")]
    body = list(chain.from_iterable(parts))
    for child, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            found = child if child.name == name else found
        elif isinstance(child, ast.Assign):
            found = below if name in map(ast.unparse, child.targets) else found
        elif isinstance(child, ast.If | ast.Try | ast.ExceptHandler):
            found = _definition(child, name) or found
    return found
