"""Options that are whole numbers."""

import numpy as np

from zoo.errors import InputError


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return an option that must be a whole number in a range.

    Raises:
        InputError: It is not.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, np.integer))
        or value < least
        or (most is not None and value > most)
    ):
        wanted = f"from {least} on" if most is None else f"from {least} to {most}"
        raise InputError(f"{name}={value!r}: must be a whole number {wanted}")
    return int(value)
