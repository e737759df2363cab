"""Neural networks over hypercomplex algebras: any algebra in any backbone.

    import zoo

    net = zoo.backbone("vit(dim=64)", algebra="quaternion", in_channels=1, image_size=28, num_classes=2)
    net = zoo.convert(torchvision_or_timm_model, "quaternion")
    product = zoo.algebra("octonion")
    summary = zoo.fit(backbone="vit", algebra="quaternion")
    model = zoo.load(summary["run_dir"])
    rows = model.predict(["picture.png"])

Importing this package imports no torch; the first use of a name does (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.algebras import Algebra, Laws, laws
    from zoo.algebras import algebra as algebra
    from zoo.backbones.build import backbone, count
    from zoo.conversion import convert as convert
    from zoo.conversion import fold as fold
    from zoo.errors import InputError
    from zoo.inference.model import Model, load
    from zoo.inference.saving import save
    from zoo.layers import Layers, keep_matrices
    from zoo.registry import register
    from zoo.training.api import fit, lottery

__all__ = [
    "Algebra",
    "InputError",
    "Laws",
    "Layers",
    "Model",
    "algebra",
    "backbone",
    "convert",
    "count",
    "fit",
    "fold",
    "keep_matrices",
    "laws",
    "load",
    "lottery",
    "register",
    "save",
]

_HOMES = {
    "Algebra": "zoo.algebras",
    "InputError": "zoo.errors",
    "Laws": "zoo.algebras",
    "Layers": "zoo.layers",
    "Model": "zoo.inference.model",
    "algebra": "zoo.algebras",
    "backbone": "zoo.backbones.build",
    "convert": "zoo.conversion",
    "count": "zoo.backbones.build",
    "fit": "zoo.training.api",
    "fold": "zoo.conversion",
    "keep_matrices": "zoo.layers",
    "laws": "zoo.algebras",
    "load": "zoo.inference.model",
    "lottery": "zoo.training.api",
    "register": "zoo.registry",
    "save": "zoo.inference.saving",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("zoo.cli.commands").own_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
