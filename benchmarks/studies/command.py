"""Run commands of the zoo in this process, and read what they print."""

import json
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from zoo.cli import main


def result_of(*words: str) -> dict[str, Any]:
    """Run a command and return its result; exit with its code if it fails."""
    with redirect_stdout(StringIO()) as printed:
        code = main([*words, "--json"])
    if code:
        raise SystemExit(code)
    result: dict[str, Any] = json.loads(printed.getvalue())
    return result
