"""Registry of plugins: list algebras, backbones, data sets and so on, and build objects from spec strings.

Listing reads package metadata only and does not import plugins. The registry never imports torch.
"""

from zoo.registry.catalogue import (
    GROUPS,
    Entry,
    Fault,
    PluginError,
    entries,
    faults,
    load,
    refresh,
    register,
    summary,
    unregister,
)
from zoo.registry.resolution import build_options, create, resolve
from zoo.registry.spec import Spec

__all__ = [
    "GROUPS",
    "Entry",
    "Fault",
    "PluginError",
    "Spec",
    "build_options",
    "create",
    "entries",
    "faults",
    "load",
    "refresh",
    "register",
    "resolve",
    "summary",
    "unregister",
]
