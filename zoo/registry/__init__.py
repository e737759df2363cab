"""The registry: which algebras, backbones and data sets are installed, and how a spec string becomes one of them.

Listing reads package metadata only and imports no plugin; the registry itself never imports torch.

>>> from zoo.registry import Spec
>>> Spec.parse("phm(n=8)").options
{'n': 8}
"""

from zoo.registry.create import create
from zoo.registry.entries import GROUPS, Entry, Fault, entries, faults, refresh
from zoo.registry.loading import PluginError, load
from zoo.registry.probe import probe
from zoo.registry.resolve import resolve
from zoo.registry.source import summary
from zoo.registry.spec import Spec

__all__ = [
    "GROUPS",
    "Entry",
    "Fault",
    "PluginError",
    "Spec",
    "create",
    "entries",
    "faults",
    "load",
    "probe",
    "refresh",
    "resolve",
    "summary",
]
