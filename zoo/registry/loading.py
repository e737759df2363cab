"""Import one plugin and turn whatever goes wrong into one line that names it."""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

from zoo.errors import InputError
from zoo.registry.records import Entry
from zoo.registry.text import one_line


class PluginError(InputError):
    """A plugin failed: the line names the entry, its distribution, the error and what to do."""


def blame(entry: Entry, what: str, cause: BaseException | None = None) -> PluginError:
    """Word the failure of a plugin.

    >>> entry = Entry("dual", "zoo.algebras", "dual_numbers:dual", "dual-numbers", "1.0")
    >>> print(blame(entry, "does not load", ImportError("no jax")))
    algebra 'dual' of dual-numbers 1.0 does not load: ImportError: no jax; mend it or: pip uninstall dual-numbers

    Args:
        entry: The plugin.
        what: What it did, to follow its name in the sentence.
        cause: The error it raised, if it raised one.
    """
    remedy = "see: zoo doctor" if entry.ours else f"mend it or: pip uninstall {entry.distribution}"
    said = f": {type(cause).__name__}: {one_line(cause)}" if cause else ""
    return PluginError(f"{entry} {what}{said}; {remedy}")


def load(entry: Entry) -> Callable[..., Any]:
    """Import the one module an entry names and return the callable in it.

    What the plugin prints meanwhile goes to stderr, so that `--json` output stays clean.

    Raises:
        PluginError: The import raised anything, `SystemExit` included, or the target is not callable.
        KeyboardInterrupt: The user pressed Ctrl-C meanwhile.
    """
    module, attribute = entry.target
    if not module or not attribute:
        raise blame(entry, f"does not load: {entry.value!r} is not module:attribute")
    try:
        with redirect_stdout(sys.stderr):
            target: Any = import_module(module)
            for name in attribute.split("."):
                target = getattr(target, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A plugin may call sys.exit() or raise a BaseException of its own.
        raise blame(entry, "does not load", error) from error
    if not callable(target):
        raise blame(entry, f"does not load: {entry.value} is not callable but of type {type(target).__name__}")
    return target  # type: ignore[no-any-return]
