"""The registry: which algebras, backbones, data sets and tasks there are, and how a spec string becomes one of them.

Listing reads package metadata only and imports no plugin; the registry itself never imports torch.
"""

from zoo.registry.catalogue import GROUPS, Entry, Fault, entries, faults, refresh, register, unregister
from zoo.registry.loading import PluginError, load, probe, summary
from zoo.registry.resolution import create, resolve
from zoo.registry.signatures import build_options
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
    "probe",
    "refresh",
    "register",
    "resolve",
    "summary",
    "unregister",
]
