"""The user's folder for what the library keeps between runs: pulled models and what was measured on a machine."""

import os
from pathlib import Path


def home() -> Path:
    """Return ZOO_HOME, or hypercomplex-zoo in the user's cache (XDG_CACHE_HOME or ~/.cache); it may not exist yet."""
    if own := os.environ.get("ZOO_HOME"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypercomplex-zoo"
