"""The user's folder for what the library keeps between runs: pulled models and what was measured on a machine."""

import os
from pathlib import Path

from zoo.errors import InputError


def home() -> Path:
    """Return ZOO_HOME, or hypercomplex-zoo in the user's cache (XDG_CACHE_HOME or ~/.cache); it may not exist yet.

    Raises:
        InputError: If none of them is set and the system knows no home of the user.
    """
    if folder := os.environ.get("ZOO_HOME"):
        return Path(folder).expanduser()
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "hypercomplex-zoo"
    try:
        return Path.home() / ".cache" / "hypercomplex-zoo"
    except RuntimeError:
        raise InputError("the system knows no home of this user: let ZOO_HOME name a folder") from None
