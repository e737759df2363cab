"""The error that a user can correct, and how messages quote what a user wrote."""


class InputError(ValueError):
    """An error in the user's input; its text says in one line what is wrong, where, and what to do instead.

    Raise it for anything a user can correct: a name, a size, a file. The command line prints the line and exits with 2; every
    other exception is a defect of the zoo or of a plugin.

    Attributes:
        is_shared: Whether all processes of a run are known to raise it, so that one of them says it.
    """

    is_shared = False


def check_rules(*rules: tuple[bool, str]) -> None:
    """Check rules, each with the message for the case that it is broken.

    Raises:
        InputError: If one is; the first such message.
    """
    for fine, message in rules:
        if not fine:
            raise InputError(message)


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
