"""Import a plugin, or read its one-line summary without importing it."""

import ast
import sys
import warnings
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.errors import InputError, one_line
from zoo.registry.catalogue import LOCAL, Entry


class PluginError(InputError):
    """Raised when a plugin fails; the message names the entry, its distribution, the cause and a remedy."""


def plugin_error(entry: Entry, problem: str, cause: BaseException) -> PluginError:
    """Return the error for a plugin with a problem and its cause.

    >>> print(plugin_error(Entry("dual", "zoo.algebras", "dual:dual", "duals", "1.0"), "does not load", ImportError("no jax")))
    algebra 'dual' of duals 1.0 does not load: ImportError: no jax; fix it or: pip uninstall duals
    """
    remedy = f"fix it or: pip uninstall {entry.distribution}"
    if entry.ours or entry.distribution == LOCAL:
        remedy = "see: zoo doctor" if entry.ours else "fix the registered function"
    return PluginError(f"{entry} {problem}: {type(cause).__name__}: {one_line(cause)}; {remedy}")


def load(entry: Entry) -> Any:
    """Import the module of an entry and return its callable.

    Output of the plugin is redirected to stderr, so that it does not corrupt `--json` output.

    Raises:
        PluginError: If the import fails, or the target is not what the group requires.
    """
    if (factory := entry.factory) is not None:
        return factory
    try:
        with redirect_stdout(sys.stderr):
            target = entry.point.load()
        if not callable(target):
            raise TypeError(f"{entry.value} must be callable")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may call sys.exit() or raise its own BaseException
        raise plugin_error(entry, "does not load", error) from error
    return target


def summary(entry: Entry) -> str:
    """Return the first docstring line of an entry, read from its source without importing it; "" if that fails.

    The docstring of a variable is the string literal below its assignment.
    """
    if (factory := entry.factory) is not None:
        text = getattr(factory, "func", factory).__doc__  # the function behind a functools.partial
    else:
        try:
            text = _docstring(entry.point.module, entry.point.attr)
        except Exception:  # errors of the source are reported when it is loaded
            text = ""
    return next(iter((text or "").strip().splitlines()), "")


def _docstring(module: str, name: str) -> str | None:
    """Return the docstring of the function, class or variable of this name in a module."""
    package, *parts = module.split(".")
    root = Path(find_spec(package).origin)  # type: ignore[union-attr,arg-type]  # `find_spec("a.b")` would import `a`
    path = root.parent.joinpath(*parts) if parts else root
    file = next(file for file in (path, path.with_suffix(".py"), path / "__init__.py") if file.is_file())
    with warnings.catch_warnings():  # invalid escapes in third-party files
        warnings.simplefilter("ignore")
        tree = ast.parse(file.read_bytes())
    for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node)
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets) and isinstance(below, ast.Expr):
            return str(ast.literal_eval(below.value))
    return None
