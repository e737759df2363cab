"""Model folders: specs, weights, a manifest with checksums, and a model card. Nothing is unpickled.

Importing this package does not import torch; the first use of `load_network` or `save` does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.checkpoint.config import ModelConfig, read_config
    from zoo.checkpoint.folder import load_network, save
    from zoo.checkpoint.manifest import find

_MODULES = {"ModelConfig": "config", "find": "manifest", "load_network": "folder", "read_config": "config", "save": "folder"}
__all__ = ["ModelConfig", "find", "load_network", "read_config", "save"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'zoo.checkpoint' has no attribute '{name}'")
    return getattr(import_module(f"zoo.checkpoint.{_MODULES[name]}"), name)
