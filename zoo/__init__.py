"""Neural networks over hypercomplex algebras: any algebra in any backbone.

    import zoo

    net = zoo.backbone("vit(dim=64)", algebra="quaternion", in_channels=1, image_size=28, num_classes=2)
    net = zoo.convert(torchvision_or_timm_model, "quaternion")
    product = zoo.algebra("octonion")
    summary = zoo.fit(backbone="vit", algebra="quaternion")
    model = zoo.load(summary["run_dir"])
    rows = model.predict(["picture.png"])

``import zoo`` does not import torch; the first use of a name does (PEP 562).
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Threads that spin while they wait are ten times slower on a busy machine (benchmarks/results/threads.json). OpenMP reads the
# variable when torch is imported, so it has no effect in a program that has imported torch before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from zoo.algebras import Algebra as Algebra
    from zoo.algebras import Laws as Laws
    from zoo.algebras import algebra as algebra
    from zoo.algebras import laws as laws
    from zoo.backbones.build import backbone as backbone
    from zoo.backbones.build import count as count
    from zoo.conversion import adapt as adapt
    from zoo.conversion import convert as convert
    from zoo.conversion import fold as fold
    from zoo.conversion import quantize as quantize
    from zoo.errors import InputError as InputError
    from zoo.hub.sources import list_models as list_models
    from zoo.inference.model import Model as Model
    from zoo.inference.model import load as load
    from zoo.inference.saving import save as save
    from zoo.nn import Layers as Layers
    from zoo.nn import batch_matrices as batch_matrices
    from zoo.nn import keep_matrices as keep_matrices
    from zoo.registry import register as register
    from zoo.reports import report as report
    from zoo.training.fit import fit as fit
    from zoo.training.fit import lottery as lottery

_NAMES = {
    "algebras": "Algebra Laws algebra laws",
    "backbones.build": "backbone count",
    "conversion": "adapt convert fold quantize",
    "errors": "InputError",
    "hub.sources": "list_models",
    "inference.model": "Model load",
    "inference.saving": "save",
    "nn": "Layers batch_matrices keep_matrices",
    "registry": "register",
    "reports": "report",
    "training.fit": "fit lottery",
}
_HOMES = {name: f"zoo.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("zoo.cli.commands").own_version()
    if name == "nn":
        return import_module("zoo.nn")
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__", "nn"]
