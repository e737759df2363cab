"""Paths that users write, and what to say about the Hugging Face Hub when it cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoo.errors import InputError


def existing(path: str | Path, preset: str) -> Path:
    """Return the path, `~` expanded and relative to the working directory.

    Raises:
        InputError: There is nothing at that place.
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise InputError(f"{preset}: {place} does not exist (working directory {Path.cwd()})")
    return place


@contextmanager
def from_hub(preset: str, repository: str) -> Iterator[None]:
    """Turn whatever goes wrong on the way to the Hub into one line that offers `path=`."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise InputError(
            f"{preset}: could not get {repository} from the Hugging Face Hub ({reason}); "
            f"use {preset}(path=...) for a local copy, beside the other options"
        ) from error
