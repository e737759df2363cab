"""One line about a plugin, read from its source text; nothing is imported or run."""

import ast
import warnings
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import chain

from zoo.registry.records import Entry


def summary(entry: Entry) -> str:
    """Give the first docstring line of the function, class or name behind an entry, or "" if it cannot be read.

    >>> summary(Entry("split", "zoo.algebras", "zoo.registry.literals:read", "x", "1"))[:15]
    'Read one value:'
    """
    module, attribute = entry.target
    try:
        with warnings.catch_warnings():  # A stranger's "\d" is not the user's concern.
            warnings.simplefilter("ignore")
            node: ast.AST | None = ast.parse(_text(module))
        for name in attribute.split("."):
            node = _definition(node, name)
        docstring = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else _text_below(node)
    except Exception:  # Whatever is wrong with the source is said when it is loaded.
        return ""
    return next(iter((docstring or "").splitlines()), "")


def _text(module: str) -> str:
    """Find and decode the source of a module. Looking for `a.b` by its full name would import `a`."""
    package, *parts = module.split(".")
    spec: ModuleSpec | None = find_spec(package)
    for part in parts:
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations or []) if spec else [])
    source: str = spec.loader.get_source(spec.name)  # type: ignore[union-attr]
    return source


def _text_below(node: ast.AST | None) -> str:
    """Read the string that follows an assignment: the docstring of a name."""
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
