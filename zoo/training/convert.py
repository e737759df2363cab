"""A trained network over the reals, projected onto an algebra, and written as a model folder."""

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
from zoo.checkpoint.manifest import read_json
from zoo.conversion import stayed_real, transfer
from zoo.conversion.imported import ImportedLayers, ImportedNetwork
from zoo.conversion.transfer import summary
from zoo.data.info import CorpusInfo, DataInfo, ImageInfo
from zoo.data.text.tokenizer import Tokenizer
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
    """A network over the reals, and what a model folder must know of it.

    Attributes:
        net: The network.
        config: The configuration of its folder, see `zoo.checkpoint.save`.
        info: Facts of its data, None for a network alone.
        files: Texts beside the weights, by file name.
    """

    net: nn.Module
    config: dict[str, Any]
    info: Any = None
    files: dict[str, str] = field(default_factory=dict)


def convert(options: Convert) -> dict[str, Any]:
    """Project a trained network over the reals onto an algebra, and write a model folder that ``zoo fit --from`` goes on from.

    The network has the weights nearest to the trained ones (`zoo.conversion.transfer`); it is not trained further.

    Returns:
        The folder, the specs, parameters, the relative error of every matrix and their mean, and what stayed real.

    Raises:
        InputError: If there is no such source, it is over an algebra already, or the folder exists; then nothing is written.
    """
    check_rules(
        (bool(options.source), "which trained network? give --from: a run, a model folder, a name, or timm/NAME"),
        (bool(options.to), "missing --to: use --to FOLDER"),
    )
    folder = new_path(options.to, "--to")
    imported: Any = None
    if options.format is not None:
        check_rules((options.data is None, "imported weights have no data: leave --data out"), code="conflict")
        imported = create("importers", options.format, options.source, algebra=options.algebra or None)
        if isinstance(imported, ImportedLayers):
            return write_layers(imported, options)
    check_rules((bool(options.algebra), "which algebra? give --algebra; zoo list algebras shows what is installed"))
    product, is_timm = make_algebra(options.algebra), options.source.startswith(TIMM)
    model = load_imported(imported, options) if imported else read_timm(options) if is_timm else read_own(options)
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
    """Write a state dict in which our layers replace those of another library.

    Returns:
        The file; the name, real matrix and number of components of every layer; the names of the other tensors.
    """
    file = Path(options.to).expanduser()
    check_rules(
        (options.scope is None, "layers have no scope: leave --scope out"),
        (file.suffix == ".safetensors", f"--to '{options.to}' must be a file: use --to FILE.safetensors"),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, to_bytes({name: tensor.contiguous() for name, tensor in imported.state.items()}))
    return {"file": options.to, "source": options.source, "layers": imported.layers, "kept": imported.kept}


def read_own(options: Convert) -> RealModel:
    """Read a model of ours: a run, a model folder, a name of the catalogue, or another source of `zoo.hub.sources.locate`."""
    source = options.source
    check_rules((options.data is None, f"{source} knows its data: leave --data out"))
    path = locate(source)
    if (path / "config.json").is_file() and "model_type" in read_json(path / "config.json"):
        raise InputError(f"'{source}' is a model of transformers: give --format gpt2 if it is a GPT-2; others in Python")
    model = load(path)
    if algebras_of(model.net):
        over = model.config["algebra"] or "an algebra"
        raise InputError(f"{source} is over {over} already: give the same network over the reals")
    if model.config["backbone"] is None:
        raise InputError(
            f"{source} holds a network without a spec: use zoo.convert(module, algebra, weights='project') in Python"
        )
    return RealModel(model.net, model.config, model.info, model_files(find(path)))


def read_timm(options: Convert) -> RealModel:
    """Build a model of timm with its pretrained weights; for data of the user's it has a new head."""
    given = Spec.parse(options.source)
    spec = untrained(str(given))
    data = None if options.data is None else load_data(resolve(Fit(spec, REALS, options.data)))
    info: DataInfo = imagenet_info(given) if data is None else data.info
    net = backbone(str(Spec(given.name, given.options | {"pretrained": True})), make_algebra(REALS), **info.model_kwargs)
    config: dict[str, Any] = {"backbone": spec, "algebra": REALS, "scope": "all", "init": "variance", "embedding": None}
    config |= {"task": "image_classification", "data": options.data, "info": info.to_dict()}
    return RealModel(net.eval(), config, info)


def load_imported(imported: ImportedNetwork, options: Convert) -> RealModel:
    """Build the network of an importer; with a tokenizer it is a language model."""
    net = backbone(imported.backbone, make_algebra(REALS), **imported.sizes)
    try:
        net.load_state_dict(imported.state)
    except RuntimeError as error:
        text = f"the weights in '{options.source}' do not fit one network: {one_line(error)}"
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
    """Return what timm knows of the images that a model was trained on: sizes, moments, and the names of ImageNet's classes."""
    import timm
    from timm.data import ImageNetInfo, infer_imagenet_subset

    variant = spec.name.removeprefix(TIMM)
    known: Any = timm.get_pretrained_cfg(variant) if timm.is_model(variant) else None
    if known is None or not (known.has_weights and known.num_classes):
        lacks = "has no model" if known is None else "has no pretrained classifier"
        raise InputError(f"timm {timm.__version__} {lacks} '{variant}': zoo convert takes others, or --data for a new head")
    channels, size = known.input_size[0], known.input_size[-1]
    count, subset = known.num_classes, infer_imagenet_subset(known.to_dict())
    names = ImageNetInfo(subset).label_descriptions() if subset else [f"class {i}" for i in range(count)]
    moments: dict[str, Any] = {"mean": tuple(known.mean), "std": tuple(known.std)}
    return ImageInfo(in_channels=channels, image_size=size, classes=tuple(names), **moments, sizes={}, sha256="")
