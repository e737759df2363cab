"""Import a plugin, in this process or in a separate one, or read its one-line summary without importing it."""

import ast
import json
import signal
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import asdict
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import Any

from zoo.errors import InputError, one_line
from zoo.registry.catalogue import GROUPS, LOCAL, Entry


class PluginError(InputError):
    """Raised when a plugin fails; the message names the entry, its distribution, the cause and a remedy."""


def plugin_error(entry: Entry, problem: str, cause: BaseException | None = None) -> PluginError:
    """Return the error for a plugin with a problem and its cause.

    >>> print(plugin_error(Entry("dual", "zoo.algebras", "dual:dual", "duals", "1.0"), "does not load", ImportError("no jax")))
    algebra 'dual' of duals 1.0 does not load: ImportError: no jax; fix it or: pip uninstall duals
    """
    remedy = f"fix it or: pip uninstall {entry.distribution}"
    if entry.ours or entry.distribution == LOCAL:
        remedy = "see: zoo doctor" if entry.ours else "fix the registered function"
    reason = f": {type(cause).__name__}: {one_line(cause)}" if cause else ""
    return PluginError(f"{entry} {problem}{reason}; {remedy}")


def load(entry: Entry) -> Any:
    """Import the module of an entry and return its callable, or for a command the module.

    Output of the plugin is redirected to stderr, so that it does not corrupt `--json` output.

    Raises:
        PluginError: If the import fails, or the target is not what the group requires.
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
        raise KeyboardInterrupt(f"interrupted while loading {entry}") from error
    except BaseException as error:  # a plugin may call sys.exit() or raise its own BaseException
        raise plugin_error(entry, "does not load", error) from error
    if is_command and not all(callable(getattr(target, name, None)) for name in ("make_parser", "run")):
        raise plugin_error(entry, f"does not load: {entry.value} must define make_parser(command) and run(command, values)")
    if not is_command and not callable(target):
        raise plugin_error(entry, f"does not load: {entry.value} must be callable, got {type(target).__name__}")
    return target


# sys.path is passed on, because plugins may depend on folders that were added at run time.
_CHILD = """
import json, os, sys
path, fields = json.loads(sys.argv[1])
sys.path[:] = path
from zoo.registry.catalogue import Entry
from zoo.registry.loading import load
try:
    load(Entry(**fields))
    answer = "loaded"
except BaseException as error:
    answer = str(error) or type(error).__name__
print("\\n" + answer, file=sys.stderr, flush=True)
os._exit(0)
"""


def probe(entry: Entry, timeout: float = 60.0) -> str | None:
    """Load an entry, third-party ones in a separate process, which may crash; return the error message, or None."""
    if entry.ours or entry.factory is not None:
        try:
            return load(entry) and None
        except PluginError as error:
            return str(error)
    words = json.dumps([list(map(str, sys.path)), asdict(entry)])
    with TemporaryFile() as report:  # a pipe that a grandchild keeps open would block forever
        command, null = [sys.executable, "-P", "-c", _CHILD, words], subprocess.DEVNULL
        try:
            code = subprocess.run(command, stdin=null, stdout=null, stderr=report, timeout=timeout, check=False).returncode
        except subprocess.TimeoutExpired:
            return f"{entry} does not load within {timeout:g} s"
        report.seek(0)
        answer = report.read().decode(errors="replace").rstrip("\n").rpartition("\n")[2]
    if answer == "loaded":
        return None
    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return answer if str(entry) in answer else f"{entry} terminates the process that loads it ({end})"


def summary(entry: Entry) -> str:
    """Return the first docstring line of an entry, read from its source without importing it; "" if that fails.

    The docstring of a variable is the string literal below its assignment.
    """
    if (factory := entry.factory) is not None:
        doc = getattr(factory, "func", factory).__doc__  # the function behind a functools.partial
        return next(iter((doc or "").strip().splitlines()), "")
    module, attribute = entry.target
    try:
        with warnings.catch_warnings():  # invalid escapes in third-party files
            warnings.simplefilter("ignore")
            node: ast.AST = ast.parse(_source(module))
        for name in filter(None, attribute.split(".")):
            node = _definition(node, name)
        text = node.value.value if isinstance(node, ast.Expr) else ast.get_docstring(node)  # type: ignore[attr-defined,arg-type]
    except Exception:  # errors of the source are reported when it is loaded
        return ""
    return next(iter((text or "").splitlines()), "")


def _source(module: str) -> str:
    """Return the source of a module; `find_spec("a.b")` would import `a`."""
    package, *parts = module.split(".")
    spec: ModuleSpec | None = find_spec(package)
    for part in parts:
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations or []) if spec else [])
    source: str = spec.loader.get_source(spec.name)  # type: ignore[union-attr]
    return source


def _definition(scope: ast.AST, name: str) -> ast.AST:
    """Return the last function or class of this name, also inside `if` and `try`, or the statement below an assignment."""
    definitions: list[ast.AST] = []
    for node in ast.walk(scope):
        body = getattr(node, "body", [])
        for child, below in zip(body, [*body[1:], None], strict=False) if isinstance(body, list) else ():
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == name:
                definitions.append(child)
            elif isinstance(child, ast.Assign) and below and name in map(ast.unparse, child.targets):
                definitions.append(below)
    return definitions[-1]
