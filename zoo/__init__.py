"""Neural networks over hypercomplex algebras: any algebra in any backbone.

    import zoo

    net = zoo.backbone("vit(dim=64)", algebra="quaternion", in_channels=1, image_size=28, num_classes=2)
    net = zoo.convert(torchvision_or_timm_model, "quaternion")
    product = zoo.algebra("octonion")
    summary = zoo.fit(backbone="vit", algebra="quaternion")

Importing this package imports no torch; the first use of a name does (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.algebra import Algebra, Laws, laws
    from zoo.algebra import algebra as algebra
    from zoo.api import fit
    from zoo.build import backbone, count
    from zoo.checkpoint import load
    from zoo.convert import convert as convert
    from zoo.errors import InputError
    from zoo.layers import Layers

__all__ = ["Algebra", "InputError", "Laws", "Layers", "algebra", "backbone", "convert", "count", "fit", "laws", "load"]

_HOMES = {
    "Algebra": "zoo.algebra",
    "InputError": "zoo.errors",
    "Laws": "zoo.algebra",
    "Layers": "zoo.layers",
    "algebra": "zoo.algebra",
    "backbone": "zoo.build",
    "convert": "zoo.convert",
    "count": "zoo.build",
    "fit": "zoo.api",
    "laws": "zoo.algebra",
    "load": "zoo.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    home = import_module(_HOMES[name])
    # zoo.algebra and zoo.convert are both a module and the function in it: see zoo.callable_module.
    return home if _HOMES[name] == f"zoo.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
