"""Errors that a user can correct, formatting of their messages, and suppression of the messages of libraries."""

import logging
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

ErrorCode = Literal[
    "invalid",  # a value of the wrong type or outside its range
    "unknown",  # a name, option or keyword that does not exist
    "missing",  # a required option, file, folder or column that is not there
    "conflict",  # options that exclude each other
    "data",  # a row, image or file of data that cannot be read
    "mismatch",  # inputs that do not belong together, such as weights and network, or checkpoint and run
    "corrupt",  # a file whose checksum or format is wrong
    "untrusted",  # input that is rejected for safety
    "unsupported",  # an operation that this layer, platform or device does not support
    "dependency",  # an optional package that is not installed
    "busy",  # a folder, port or lock in use by another process
    "failed",  # an error of the system or the network: permissions, disk space, connections
]
"""Stable codes of `InputError`, for tests and scripts; the wording of messages may change."""


class InputError(ValueError):
    """An error that the user can correct.

    The message is one line that says what is wrong, where, and how to fix it; unprintable characters are escaped. The command
    line prints it and exits with code 2; any other exception is a bug in the zoo or in a plugin.

    Attributes:
        code: The kind of error, see `ErrorCode`.
        is_shared: Whether every process of the run raises this error, so that only rank 0 reports it.
    """

    is_shared = False

    def __init__(self, message: str = "", *, code: ErrorCode = "invalid") -> None:
        super().__init__(printable(message))
        self.code: ErrorCode = code


def check_choice(kind: str, name: object, choices: Iterable[str]) -> None:
    """Raise `InputError` with the code ``unknown`` unless a name is among the choices."""
    if name not in (known := list(choices)):
        raise InputError(f"unknown {kind} '{name}': use {', '.join(known)}", code="unknown")


def shorten(text: str, width: int = 60) -> str:
    """Quote text for an error message on one line, with the middle elided if it is long.

    >>> shorten("vit(dim=64)")
    "'vit(dim=64)'"
    """
    return repr(text if len(text) <= width else f"{text[: width - 20]}...{text[-17:]}")


def printable(text: str) -> str:
    r"""Collapse whitespace and escape unprintable characters, such as terminal control sequences.

    >>> printable("a\x1b[2J\n  b")
    'a\\x1b[2J b'
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(text.split()))


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    r"""Escape control characters, which could change the terminal, except tabs and line feeds.

    >>> visible("a\x1b[2J\n\x9b")
    'a\\x1b[2J\n\\x9b'
    """
    return CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def one_line(error: BaseException, width: int = 300) -> str:
    r"""Return the message of an error on one line, see `printable`.

    >>> one_line(ValueError("a\n  b"))
    'a b'
    """
    text = printable(str(error))
    return (text if len(text) <= width else f"{text[:width]}...") or "(no text)"


class Stop(BaseException):
    """Raised when a signal asks the process to end; not an `Exception`, so that no handler swallows it."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


class Interrupted(KeyboardInterrupt):
    """Raised when a signal has ended a run; the message says how to resume, and the command line exits with 128 + signum."""

    def __init__(self, text: str, signum: int) -> None:
        super().__init__(text)
        self.signum = signum


LOGGERS = ("lightning.pytorch", "lightning.fabric")


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Suppress the warnings of Lightning, and log messages below errors: of these loggers, or of all without names."""
    disabled, loggers = logging.root.manager.disable, [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    if not names:
        logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning.*")
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            yield
    finally:
        logging.disable(disabled)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
