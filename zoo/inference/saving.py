"""Save a trained model, a network that a spec builds, or a converted network, as a model folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from zoo import checkpoint
from zoo.algebras import Algebra
from zoo.backbones.build import backbone as build_backbone
from zoo.backbones.build import count, untrained
from zoo.checkpoint.folder import conversion_record, library_versions
from zoo.checkpoint.integrity import fingerprint
from zoo.conversion import Conversion
from zoo.errors import InputError
from zoo.inference.model import Model


def save(
    model: Model | nn.Module,
    folder: str | Path,
    *,
    backbone: str | None = None,
    algebra: str | None = None,
    scope: str = "all",
    init: str = "variance",
    embedding: str | None = None,
    metrics: Mapping[str, float | None] | None = None,
    sparse: bool = False,
    **model_kwargs: Any,
) -> Path:
    """Write a model folder that `zoo.load` reads: weights as safetensors, specs, checksums and a card.

    A `Model` is saved with all that belongs to it; a network that `zoo.backbone` built, with the spec, the algebra and the
    sizes that built it; any other that `zoo.convert` converted, with a record of the conversion, and comes back with
    ``zoo.load(folder, module=...)``, given the real network that it was made from, or one like it, and over an algebra
    without a spec with ``algebra=`` too. The loaded network has the same weights bit for bit.

    Args:
        model: What to save.
        folder: The folder. One with another model is replaced once the new one is complete; with anything else it is refused.
        backbone: Spec of a network, such as ``"timm/resnet18"``.
        algebra: Its algebra; a converted one knows it.
        scope: Its scope.
        init: Its initialisation.
        embedding: Spec of its token embedding.
        metrics: Metrics to write into the card and the manifest; by default those that a `Model` came with.
        sparse: Whether to store only the numbers that are not zero and one bit for each: small if the network was pruned.
        model_kwargs: The sizes that `zoo.backbone` was given, such as ``num_classes=10``.

    Raises:
        InputError: If the spec does not build such a network, a module was not converted, or the folder holds something else.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> net = torch.nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        >>> with TemporaryDirectory() as place:  # a network must be hypercomplex or have a spec
        ...     save(net, place + "/model")
        Traceback (most recent call last):
        zoo.errors.InputError: this Sequential was not made by zoo.backbone or zoo.convert: give backbone=SPEC, or convert it
    """
    folder = Path(folder).expanduser()
    check_saving(model, folder)
    files, known = dict[str, str](), dict[str, Any]()
    if isinstance(model, Model):
        if backbone or algebra or embedding or model_kwargs:
            raise InputError("a model knows its specs: leave backbone, algebra, embedding and sizes out")
        known = dict(model.known if metrics is None else {})
        config, net, metrics = model.config, model.net, model.metrics if metrics is None else metrics
        if model.tokenizer is not None:
            files[model.info.tokenizer] = model.tokenizer.to_json()
    else:
        net = model
        names = {"backbone": backbone, "algebra": algebra, "scope": scope, "init": init, "embedding": embedding}
        config = converted(net) if backbone is None else built(net, names, model_kwargs)
    known |= {"metrics": dict(metrics or {}), "parameters": (known.get("parameters") or {}) | count(net)}
    checkpoint.save(folder, net, config, known | {"versions": library_versions(config)}, files, sparse)
    return folder


def check_saving(model: Model | nn.Module, folder: Path) -> None:
    """Refuse a folder that holds something else, and a network without the components that a folder stores."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "manifest.json").is_file():
        raise InputError(f"'{folder}' is not empty and no model folder: choose another")
    if getattr(model.net if isinstance(model, Model) else model, "is_folded", False):
        raise InputError("a folded network has no components to save: save the one it came from, or its state_dict with torch")


def built(net: nn.Module, names: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a network that a spec builds, after comparing the two."""
    if names["algebra"] is None:
        raise InputError(f"which algebra is {names['backbone']} over? give algebra=SPEC")
    with torch.random.fork_rng(devices=[]):
        rebuilt = build_backbone(untrained(names["backbone"]), **{k: v for k, v in names.items() if k != "backbone"}, **sizes)
    ours, theirs = ({key: value.shape for key, value in network.state_dict().items()} for network in (net, rebuilt))
    if wrong := sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)):
        raise InputError(
            f"{names['backbone']} over {names['algebra']} with these sizes is another network: '{wrong[0]}' differs"
        )
    return names | {"model_kwargs": sizes}


def converted(net: nn.Module) -> dict[str, Any]:
    """Return the configuration of a network that `zoo.convert` converted."""
    record = getattr(net, "conversion", None)
    if not isinstance(record, Conversion) or not record.converted:
        kind = type(net).__name__
        raise InputError(f"this {kind} was not made by zoo.backbone or zoo.convert: give backbone=SPEC, or convert it")
    products = [module for module in net.modules() if isinstance(module, Algebra) and module.n > 1]
    specs = {product.spec for product in products} or {"real"}
    if len(specs) != 1:
        raise InputError(f"the network is over several algebras, {', '.join(sorted(specs))}: save it with torch")
    (algebra,) = specs
    over = {"algebra": algebra} if algebra else {"algebra": None, "algebra_sha256": fingerprint(products[0])}
    return {"backbone": None, **over, "scope": "all", "init": "variance", "conversion": conversion_record(net)}
