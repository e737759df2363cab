"""The result of a command, printed as text or as JSON."""

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from zoo.errors import CONTROL, visible


class Result(NamedTuple):
    """The result of a command: JSON values, the text for people or a function that prints it, and the exit code."""

    value: Any
    text: str | Callable[[Any], None]
    code: int = 0

    def show(self, as_json: bool) -> None:
        """Print the result."""
        if as_json:
            print(to_json(self.value, indent=2))
        elif isinstance(self.text, str):
            print(visible(self.text))
        else:
            self.text(self.value)


def to_json(value: Any, **options: Any) -> str:
    """Return a value as JSON, with null for infinity and NaN, and without control characters."""
    text = json.dumps(_finite(value), allow_nan=False, **options)
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _finite(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
