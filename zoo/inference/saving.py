"""Save a trained model, a network built from a spec, or a converted network as a model folder."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from zoo import checkpoint
from zoo.algebras import Algebra
from zoo.backbones.build import backbone as build_backbone
from zoo.backbones.build import count, untrained
from zoo.checkpoint import ModelConfig
from zoo.checkpoint.folder import conversion_record, fingerprint, library_versions, network_options
from zoo.data.tokenizer import Tokenizer
from zoo.errors import InputError


class Trained(Protocol):
    """A `zoo.Model`: a network with its configuration, tokenizer, and facts about its data and training."""

    net: nn.Module
    config: ModelConfig
    info: Any
    tokenizer: Tokenizer | None
    metrics: dict[str, float | None]
    known: dict[str, Any]


def save(
    model: Trained | nn.Module,
    folder: str | Path,
    *,
    backbone: str | None = None,
    algebra: str | None = None,
    scope: str = "all",
    init: str = "variance",
    embedding: str | None = None,
    metrics: Mapping[str, float | None] | None = None,
    sparse: bool = False,
    **model_kwargs: object,
) -> Path:
    """Save a model folder for `zoo.load`: weights as safetensors, specs, checksums and a card.

    A `Model` is saved with its task, tokenizer and info. For a network of `zoo.backbone`, give the spec, algebra and sizes that
    built it. A network of `zoo.convert` is saved with a record of the conversion; load it with
    ``zoo.load(folder, module=...)`` and a real network of the same structure, and with ``algebra=`` for an algebra without a
    spec. The loaded weights are bit-for-bit identical.

    Args:
        model: The `zoo.Model` or network.
        folder: The folder. An existing model folder is replaced after the new one is complete; other folders must be empty.
        backbone: Spec of a network, such as ``"timm/resnet18"``.
        algebra: Spec of its algebra; not needed for a converted network.
        scope: Its scope.
        init: Its initialization.
        embedding: Spec of its token embedding.
        metrics: Metrics for the card and the manifest; by default those of the `Model`.
        sparse: Whether to store only nonzero numbers and a bit mask, which is smaller for pruned networks.
        model_kwargs: The sizes given to `zoo.backbone`, such as ``num_classes=10``.

    Raises:
        InputError: If the spec builds another network, a module was not converted, or the folder has other content.
    """
    folder = Path(folder).expanduser()
    if folder.exists() and any(folder.iterdir()) and not (folder / "manifest.json").is_file():
        raise InputError(f"'{folder}' is not empty and not a model folder: choose another")
    net = model if isinstance(model, nn.Module) else model.net
    if getattr(net, "is_folded", False):
        raise InputError("a folded network has no components: save the original network, or its state_dict with torch.save")
    if getattr(net, "is_quantized", False):
        raise InputError("a quantized network is no model folder: save the original network, or use zoo export --quantize")
    files, known = dict[str, str](), dict[str, Any]()
    if not isinstance(model, nn.Module):
        if backbone or algebra or embedding or model_kwargs:
            raise InputError("a zoo.Model contains its specs: leave backbone, algebra, embedding and sizes out")
        known = dict(model.known if metrics is None else {})
        config, metrics = model.config, model.metrics if metrics is None else metrics
        if model.tokenizer is not None:
            files[model.info.tokenizer] = model.tokenizer.to_json()
    else:
        config = ModelConfig(backbone=backbone, algebra=algebra, scope=scope, init=init, embedding=embedding)
        config = _converted(net) if backbone is None else _built(net, replace(config, model_kwargs=model_kwargs))
    known |= {"metrics": dict(metrics or {}), "parameters": (known.get("parameters") or {}) | count(net)}
    checkpoint.save(folder, net, config, known | {"versions": library_versions(config)}, files, sparse)
    return folder


def _built(net: nn.Module, config: ModelConfig) -> ModelConfig:
    """Return the configuration of a network built from a spec, after comparing shapes with a rebuilt network."""
    if config.algebra is None:
        raise InputError(f"missing the algebra of {config.backbone}: use algebra=SPEC", code="missing")
    with torch.random.fork_rng(devices=[]):
        rebuilt = build_backbone(untrained(str(config.backbone)), config.algebra, **network_options(config, None))
    ours, theirs = ({key: value.shape for key, value in network.state_dict().items()} for network in (net, rebuilt))
    if different := sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)):
        text = f"{config.backbone} over {config.algebra} with these sizes is another network"
        raise InputError(f"{text}: '{different[0]}' differs")
    return config


def _converted(net: nn.Module) -> ModelConfig:
    described = conversion_record(net)
    if not described["converted"]:
        kind = type(net).__name__
        raise InputError(f"this {kind} was not built by zoo.backbone or zoo.convert: use backbone=SPEC, or convert it")
    products = [module for module in net.modules() if isinstance(module, Algebra) and module.n > 1]
    specs = {product.spec for product in products} or {"real"}
    if len(specs) != 1:
        raise InputError(f"the network is over several algebras, {', '.join(sorted(specs))}: save it with torch.save")
    (algebra,) = specs
    digest = None if algebra else fingerprint(products[0])
    return ModelConfig(algebra=algebra or None, algebra_sha256=digest, conversion=described)
