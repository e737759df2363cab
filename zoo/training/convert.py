"""Project a trained real network onto an algebra and save it as a model folder."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import nn

from zoo.algebras import algebra as make_algebra
from zoo.atomic import write_bytes
from zoo.backbones.build import backbone, count, untrained
from zoo.checkpoint import find, save
from zoo.checkpoint.folder import library_versions, model_files, network_options
from zoo.conversion import stayed_real, transfer
from zoo.conversion.transfer import ImportedLayers, ImportedNetwork, summary
from zoo.data.info import CorpusInfo, DataInfo, ImageInfo
from zoo.data.tokenizer import Tokenizer
from zoo.errors import InputError, check_rules, one_line
from zoo.hub.sources import locate
from zoo.inference.model import load
from zoo.registry import Spec, create
from zoo.training.average import new_path
from zoo.training.objects import REALS, algebras_of
from zoo.training.options import Convert, Fit
from zoo.training.resolve import canonical, load_data, resolve

TIMM = "timm/"


@dataclass(frozen=True)
class RealModel:
    """A trained network over the reals, with the configuration, data info and further files of its model folder."""

    net: nn.Module
    config: dict[str, Any]
    info: Any = None
    files: dict[str, str] = field(default_factory=dict)


def convert(options: Convert) -> dict[str, Any]:
    """Project a trained real network onto an algebra and save a model folder, for ``zoo fit --from`` to fine-tune.

    Every matrix becomes the nearest one over the algebra (`zoo.conversion.transfer`).

    Returns:
        The folder, the specs, parameters, the relative error of every matrix and their mean, and the layers that stayed real.

    Raises:
        InputError: If the source is missing or already over an algebra, or the folder exists; nothing is written then.
    """
    check_rules(
        (bool(options.source), "missing --from: use a run, a model folder, a name from zoo list checkpoints, or timm/NAME"),
        (bool(options.to), "missing --to: use --to FOLDER"),
        (not (options.format and options.data), "--data is not supported for imported weights: leave --data out"),
    )
    folder = new_path(options.to, "--to")
    imported: Any = None
    if options.format is not None:
        imported = create("importers", options.format, options.source, algebra=options.algebra or None)
        if isinstance(imported, ImportedLayers):
            return write_layers(imported, options)
    check_rules((bool(options.algebra), "missing --algebra: zoo list algebras shows what is installed"))
    product, is_timm = make_algebra(options.algebra), options.source.startswith(TIMM)
    model = load_imported(imported, options) if imported else load_timm(options) if is_timm else load_zoo(options)
    config = model.config | {"algebra": canonical(options.algebra), "scope": options.scope or model.config["scope"]}
    with torch.random.fork_rng(devices=[]):
        net = backbone(untrained(config["backbone"]), product, **network_options(config, model.info))
    try:
        rows = transfer(model.net, net, product)
    except InputError as error:
        raise InputError(f"{options.source}: {error}") from error
    errors = summary(rows)
    parameters = count(net) | {"real_twin": count(model.net)["total"]}
    facts: dict[str, Any] = {"versions": library_versions(config), "metrics": {}, "parameters": parameters}
    facts |= {"projected": round(errors["mean"], 4)} if errors else {}
    folder.parent.mkdir(parents=True, exist_ok=True)
    save(folder, net, config, facts, model.files)
    specs = {key: config[key] for key in ("backbone", "algebra", "scope", "embedding", "data")}
    layers = [row._asdict() | {"shape": list(row.shape)} for row in rows]
    result = {"folder": options.to, "source": options.source, **specs, "parameters": parameters}
    result |= {"task": config["task"], "max_length": (config.get("info") or {}).get("max_length")}
    result["has_teacher"] = not is_timm and bool(config["data"])
    return result | {"error": errors, "layers": layers, "stayed_real": stayed_real(net)}


def write_layers(imported: ImportedLayers, options: Convert) -> dict[str, Any]:
    """Save a state dict in which layers of the zoo replace those of another library.

    Returns:
        The file, the converted layers, and the names of the other tensors (``kept``).
    """
    file = Path(options.to).expanduser()
    check_rules(
        (options.scope is None, "--scope is not supported for layers without a network: leave --scope out"),
        (file.suffix == ".safetensors", f"--to '{options.to}' must be a file: use --to FILE.safetensors"),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, to_bytes({name: tensor.contiguous() for name, tensor in imported.state.items()}))
    return {"file": options.to, "source": options.source, "layers": imported.layers, "kept": imported.kept}


def load_zoo(options: Convert) -> RealModel:
    """Load a model of the zoo from a source of `zoo.hub.sources.locate`."""
    source = options.source
    check_rules((options.data is None, f"{source} has its own data: leave --data out"))
    path = locate(source)
    model = load(path)
    if algebras_of(model.net):
        raise InputError(f"{source} is already over {model.config['algebra'] or 'an algebra'}: use a real network")
    if model.config["backbone"] is None:
        raise InputError(f"{source} has no spec: use zoo.convert(module, algebra, weights='project') in Python")
    return RealModel(model.net, model.config, model.info, model_files(find(path)))


def load_timm(options: Convert) -> RealModel:
    """Load a pretrained model of timm; with ``data`` it gets a new head."""
    given = Spec.parse(options.source)
    spec = untrained(str(given))
    data = None if options.data is None else load_data(resolve(Fit(spec, REALS, options.data)))
    info: DataInfo = imagenet_info(given) if data is None else data.info
    net = backbone(str(Spec(given.name, given.options | {"pretrained": True})), make_algebra(REALS), **info.model_kwargs)
    config: dict[str, Any] = {"backbone": spec, "algebra": REALS, "scope": "all", "init": "variance", "embedding": None}
    config |= {"task": "image_classification", "data": options.data, "info": info.to_dict()}
    return RealModel(net.eval(), config, info)


def load_imported(imported: ImportedNetwork, options: Convert) -> RealModel:
    """Build the network of imported weights; with a tokenizer it is a language model."""
    net = backbone(imported.backbone, make_algebra(REALS), **imported.sizes)
    try:
        net.load_state_dict(imported.state)
    except RuntimeError as error:
        text = f"the weights in '{options.source}' do not match the network: {one_line(error)}"
        raise InputError(text, code="mismatch") from error
    config: dict[str, Any] = {"backbone": imported.backbone, "algebra": REALS, "scope": "all", "init": "variance"}
    config |= {"embedding": None, "task": None, "data": None}
    if imported.tokenizer is None:
        return RealModel(net.eval(), config | {"model_kwargs": imported.sizes})
    info = CorpusInfo(**imported.sizes, stream=False, sizes={}, sha256="")
    tokenizer = Tokenizer.from_json(imported.tokenizer, info).to_json()
    config |= {"task": "language_model", "info": info.to_dict()}
    return RealModel(net.eval(), config, info, {info.tokenizer: tokenizer})


def imagenet_info(spec: Spec) -> ImageInfo:
    """Return the image sizes, mean, standard deviation and class names of a pretrained timm model."""
    import timm
    from timm.data import ImageNetInfo, infer_imagenet_subset

    variant = spec.name.removeprefix(TIMM)
    config: Any = timm.get_pretrained_cfg(variant) if timm.is_model(variant) else None
    if config is None or not (config.has_weights and config.num_classes):
        missing = "model" if config is None else "pretrained classifier"
        raise InputError(f"timm {timm.__version__} has no {missing} '{variant}': use another, or --data for a new head")
    channels, size = config.input_size[0], config.input_size[-1]
    subset = infer_imagenet_subset(config.to_dict())
    names = ImageNetInfo(subset).label_descriptions() if subset else [f"class {i}" for i in range(config.num_classes)]
    moments: dict[str, Any] = {"mean": tuple(config.mean), "std": tuple(config.std)}
    return ImageInfo(in_channels=channels, image_size=size, classes=tuple(names), **moments, sizes={}, sha256="")
