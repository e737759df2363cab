"""The cache folder of the zoo: pulled models, compiled kernels and measurements of this machine."""

import os
from pathlib import Path

from zoo.errors import InputError


def home() -> Path:
    """Return ZOO_HOME, or hypercomplex-zoo in the user's cache (XDG_CACHE_HOME or ~/.cache); the folder may not exist.

    Raises:
        InputError: If neither variable is set and the home directory cannot be determined.
    """
    if folder := os.environ.get("ZOO_HOME"):
        return Path(folder).expanduser()
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "hypercomplex-zoo"
    try:
        return Path.home() / ".cache" / "hypercomplex-zoo"
    except RuntimeError:
        raise InputError("cannot determine the home directory: set ZOO_HOME to a folder") from None
