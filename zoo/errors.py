"""Errors that a user can correct, and how messages quote what a user wrote."""

from collections.abc import Iterable
from typing import Literal

ErrorCode = Literal[
    "invalid",  # a value of the wrong type or outside its range
    "unknown",  # a name, option or keyword that does not exist
    "missing",  # a required option, file, folder or column that is not there
    "conflict",  # options that exclude each other
    "data",  # a row, image or file of data that cannot be read
    "mismatch",  # two things that do not belong together: weights and network, checkpoint and run
    "corrupt",  # a file that is not as it was written
    "untrusted",  # input that is refused for safety
    "unsupported",  # an operation that this layer, platform or device does not support
    "dependency",  # an optional package that is not installed
    "busy",  # a folder, port or lock that another process holds
    "failed",  # the system or the network refused: permissions, disk space, connections
]
"""Stable kinds of `InputError`: tests and scripts check these, never the wording of a message."""


class InputError(ValueError):
    """An error that the user can correct.

    The message is one line that says what is wrong, where, and what to do instead. The command line prints it and exits with
    code 2; any other exception is a defect of the zoo or of a plugin.

    Args:
        message: The line.
        code: The kind of error, see `ErrorCode`.

    Attributes:
        code: The kind of error.
        is_shared: Whether every process of the run raises this error, so that only rank 0 reports it.
    """

    is_shared = False

    def __init__(self, message: str = "", *, code: ErrorCode = "invalid") -> None:
        super().__init__(message)
        self.code: ErrorCode = code


def check_rules(*rules: tuple[bool, str], code: ErrorCode = "invalid") -> None:
    """Check pairs of a condition and the message to raise if it is false.

    Raises:
        InputError: The first message whose condition is false.
    """
    for holds, message in rules:
        if not holds:
            raise InputError(message, code=code)


def check_choice(kind: str, name: object, choices: Iterable[str]) -> None:
    """Check that a name is among the choices.

    Raises:
        InputError: Otherwise, with the code ``unknown``; the message lists the choices.
    """
    if name not in (known := list(choices)):
        raise InputError(f"unknown {kind} '{name}': use {', '.join(known)}", code="unknown")


def shorten(text: str, width: int = 60) -> str:
    """Quote a text for an error message on one line, cut in the middle if it is long.

    >>> shorten("vit(dim=64)")
    "'vit(dim=64)'"
    """
    return repr(text if len(text) <= width else f"{text[: width - 20]}...{text[-17:]}")


def printable(text: str) -> str:
    r"""Put text on one line, and escape what a terminal would obey or not show.

    >>> printable("a\x1b[2J\n  b")
    'a\\x1b[2J b'
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(text.split()))


def one_line(error: BaseException, width: int = 300) -> str:
    r"""Return the text of an error on one line, see `printable`, even if the error cannot print itself.

    >>> one_line(ValueError("a\n  b"))
    'a b'
    """
    try:
        text = printable(str(error))
    except Exception:
        text = "(its text cannot be shown)"
    return (text if len(text) <= width else f"{text[:width]}...") or "(no text)"


class Stop(BaseException):
    """A signal asks the process to end; no `Exception`, so that nothing on the way swallows it.

    Args:
        signum: The signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


class Interrupted(KeyboardInterrupt):
    """A run was ended by a signal; its text says how to go on.

    Args:
        text: What to say.
        signum: The signal; the command line exits with 128 + its number.
    """

    def __init__(self, text: str, signum: int) -> None:
        super().__init__(text)
        self.signum = signum
