"""The cache folder of the zoo: pulled models, compiled kernels and measurements of this machine."""

import os
from pathlib import Path


def home() -> Path:
    """Return ZOO_HOME, or hypercomplex-zoo in the user's cache (XDG_CACHE_HOME or ~/.cache); the folder may not exist."""
    if folder := os.environ.get("ZOO_HOME"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypercomplex-zoo"
