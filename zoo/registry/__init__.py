"""Registry of plugins: list algebras, backbones, data sets and so on, and build objects from spec strings.

Listing reads package metadata only and does not import plugins. The registry never imports torch.
"""

from zoo.registry.catalogue import GROUPS as GROUPS
from zoo.registry.catalogue import Entry as Entry
from zoo.registry.catalogue import Fault as Fault
from zoo.registry.catalogue import PluginError as PluginError
from zoo.registry.catalogue import entries as entries
from zoo.registry.catalogue import faults as faults
from zoo.registry.catalogue import load as load
from zoo.registry.catalogue import refresh as refresh
from zoo.registry.catalogue import register as register
from zoo.registry.catalogue import summary as summary
from zoo.registry.catalogue import unregister as unregister
from zoo.registry.resolution import build_options as build_options
from zoo.registry.resolution import check_option as check_option
from zoo.registry.resolution import create as create
from zoo.registry.resolution import passes_options_to as passes_options_to
from zoo.registry.resolution import resolve as resolve
from zoo.registry.spec import Spec as Spec
