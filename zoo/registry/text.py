"""Text handling for specs and messages: cut at commas, quote, put on one line."""

import re

from zoo.errors import InputError

MAX_DEPTH = 16
CLOSERS = {"(": ")", "[": "]", "{": "}"}
# Whole quoted strings come first, so a quote matched alone is one that nobody closed.
MARK = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[][(){},'"]""", re.DOTALL)


def shorten(text: str, width: int = 60) -> str:
    """Quote a text for an error message on one line, cut in the middle if it is long.

    >>> shorten("vit(dim=64)")
    "'vit(dim=64)'"
    """
    return repr(text if len(text) <= width else f"{text[: width - 20]}...{text[-17:]}")


def split(text: str) -> list[str]:
    """Cut a text at the commas that stand outside quotes and brackets; one comma may trail.

    >>> split("p=0, rule=clifford(p=0,q=2), name='a,b'")
    ['p=0', 'rule=clifford(p=0,q=2)', "name='a,b'"]

    Raises:
        InputError: A bracket or quote has no partner, brackets nest too deep, or a part is empty.
    """
    parts, start, open_brackets = [], 0, list[str]()
    for match in MARK.finditer(text):
        mark = match.group()
        if mark in CLOSERS:
            open_brackets.append(CLOSERS[mark])
        elif mark in {")", "]", "}"}:
            if not open_brackets or open_brackets.pop() != mark:
                raise InputError(f"{mark!r} closes no bracket")
        elif mark in {"'", '"'}:
            raise InputError(f"the quote {mark} is never closed")
        elif mark == "," and not open_brackets:
            parts.append(text[start : match.start()].strip())
            start = match.end()
        if len(open_brackets) > MAX_DEPTH:
            raise InputError(f"brackets nest deeper than {MAX_DEPTH}")
    if open_brackets:
        raise InputError(f"{open_brackets[-1]!r} is missing")
    last = text[start:].strip()
    parts += [last] if last else []
    if "" in parts:
        raise InputError("nothing stands before a comma")
    return parts


def one_line(error: BaseException, width: int = 300) -> str:
    r"""Give the text of an error on one line, even if the error cannot print itself.

    >>> one_line(ValueError("a\n  b"))
    'a b'
    """
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "(its text cannot be shown)"
    return (text if len(text) <= width else f"{text[:width]}...") or "(no text)"
