"""Model folders: specs, weights, a manifest with checksums, and a model card. Nothing is unpickled.

Importing this package does not import torch; the first use of `load_network`, `read_config` or `save` does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.checkpoint.folder import load_network, read_config, save
    from zoo.checkpoint.manifest import find

__all__ = ["find", "load_network", "read_config", "save"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'zoo.checkpoint' has no attribute '{name}'")
    return getattr(import_module(f"zoo.checkpoint.{'manifest' if name == 'find' else 'folder'}"), name)
