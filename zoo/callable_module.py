"""Let ``zoo.algebra`` be the module zoo/algebra.py and the function that everybody calls, whichever was imported first."""

import sys
from collections.abc import Callable
from types import ModuleType


def make_callable(name: str, function: Callable[..., object]) -> None:
    """Make the module of that name callable: ``module(...)`` is ``function(...)``.

    Importing a submodule sets the attribute of its package, which would hide a function of the same name.
    """

    class CallableModule(ModuleType):
        __call__ = staticmethod(function)

    sys.modules[name].__class__ = CallableModule
