"""Project a trained real network onto an algebra, or prune a trained network; both save a model folder."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import nn

from zoo import registry
from zoo.algebras import algebra as make_algebra
from zoo.atomic import scratch_folder, write_bytes
from zoo.backbones.build import backbone, count, real_twin, untrained
from zoo.checkpoint import ModelConfig, find, read_config, save
from zoo.checkpoint.folder import library_versions, model_files, network_options
from zoo.checkpoint.manifest import read_json
from zoo.checkpoint.run_config import read_run_config
from zoo.conversion import stayed_real, transfer
from zoo.conversion.transfer import ImportedLayers, ImportedNetwork, summary
from zoo.data.info import CorpusInfo, DataInfo, ImageInfo
from zoo.data.tokenizer import Tokenizer
from zoo.errors import InputError, one_line
from zoo.hub.sources import locate
from zoo.inference.model import Model, load
from zoo.pruning import Cut, prune_structure
from zoo.registry import Spec, build_options, create
from zoo.training.bench import side_by_side
from zoo.training.fit import run_fit
from zoo.training.options import Convert, Fit, Prune
from zoo.training.pretrained import is_of_transformers
from zoo.training.resolve import REALS, algebras_of, canonical, load_data, plan_run, resolve
from zoo.training.runs import measure_splits, new_path
from zoo.training.trainer import check_trainer

TIMM = "timm/"


@dataclass(frozen=True)
class RealModel:
    """A trained network over the reals, with the configuration, data info and further files of its model folder."""

    net: nn.Module
    config: ModelConfig
    info: Any = None
    files: dict[str, str] = field(default_factory=dict)


def convert(options: Convert) -> dict[str, Any]:
    """Project a trained real network onto an algebra and save a model folder, for ``zoo fit --from`` to fine-tune.

    Every matrix becomes the nearest one over the algebra (`zoo.conversion.transfer`). Returns the folder, specs, parameters,
    the relative error of every matrix and their mean, and the layers that stayed real.
    """
    if options.format and options.data:
        raise InputError("--data is not supported for imported weights: leave --data out", code="conflict")
    folder = new_path(options.to, "--to")
    imported: Any = None
    if options.format is not None:
        imported = create("importers", options.format, options.source, algebra=options.algebra or None)
        if isinstance(imported, ImportedLayers):
            return _write_layers(imported, options)
    if not options.algebra:
        raise InputError("missing --algebra: zoo list algebras shows what is installed", code="missing")
    product, is_timm = make_algebra(options.algebra), options.source.startswith(TIMM)
    model = _load_imported(imported, options) if imported else _load_timm(options) if is_timm else _load_zoo(options)
    config = replace(model.config, algebra=canonical(options.algebra), scope=options.scope or model.config.scope)
    with torch.random.fork_rng(devices=[]):
        net = backbone(untrained(str(config.backbone)), product, **network_options(config, model.info))
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
    specs = {key: getattr(config, key) for key in ("backbone", "algebra", "scope", "embedding", "data")}
    layers = [row._asdict() | {"shape": list(row.shape)} for row in rows]
    result = {"folder": options.to, "source": options.source, **specs, "parameters": parameters}
    result |= {"task": config.task, "max_length": (config.info or {}).get("max_length")}
    result["has_teacher"] = not is_timm and bool(config.data)
    return result | {"error": errors, "layers": layers, "stayed_real": stayed_real(net)}


def _write_layers(imported: ImportedLayers, options: Convert) -> dict[str, Any]:
    """Save a state dict in which layers of the zoo replace those of another library."""
    file = Path(options.to).expanduser()
    if options.scope is not None:
        raise InputError("--scope is not supported for layers without a network: leave --scope out", code="unsupported")
    if file.suffix != ".safetensors":
        raise InputError(f"--to '{options.to}' must be a file: use --to FILE.safetensors")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, to_bytes({name: tensor.contiguous() for name, tensor in imported.state.items()}))
    return {"file": options.to, "source": options.source, "layers": imported.layers, "kept": imported.kept}


def _load_zoo(options: Convert) -> RealModel:
    source = options.source
    if options.data is not None:
        raise InputError(f"{source} has its own data: leave --data out")
    path = locate(source)
    if is_of_transformers(path):
        text = f"{source} is a model of transformers: zoo fit --backbone hf/NAME --from {source} projects its weights"
        raise InputError(text, code="unsupported")
    model = load(path)
    if algebras_of(model.net):
        raise InputError(f"{source} is already over {model.config.algebra or 'an algebra'}: use a real network")
    if model.config.backbone is None:
        raise InputError(f"{source} has no spec: use zoo.convert(module, algebra, weights='project') in Python")
    return RealModel(model.net, model.config, model.info, model_files(find(path)))


def _load_timm(options: Convert) -> RealModel:
    """Load a pretrained model of timm; with ``data`` it gets a new head."""
    given = Spec.parse(options.source)
    spec = untrained(str(given))
    data = None if options.data is None else load_data(resolve(Fit(spec, REALS, options.data)))
    info: DataInfo = _imagenet_info(given) if data is None else data.info
    net = backbone(str(Spec(given.name, given.options | {"pretrained": True})), make_algebra(REALS), **info.model_kwargs)
    facts: dict[str, Any] = {"task": "image_classification", "data": options.data, "info": info.to_dict()}
    return RealModel(net.eval(), ModelConfig(backbone=spec, algebra=REALS, **facts), info)


def _load_imported(imported: ImportedNetwork, options: Convert) -> RealModel:
    """Build the network of imported weights; with a tokenizer it is a language model."""
    net = backbone(imported.backbone, make_algebra(REALS), **imported.sizes)
    try:
        net.load_state_dict(imported.state)
    except RuntimeError as error:
        text = f"the weights in '{options.source}' do not match the network: {one_line(error)}"
        raise InputError(text, code="mismatch") from error
    config = ModelConfig(backbone=imported.backbone, algebra=REALS)
    if imported.tokenizer is None:
        return RealModel(net.eval(), replace(config, model_kwargs=imported.sizes))
    info = CorpusInfo(**imported.sizes, stream=False, sizes={}, sha256="")
    tokenizer = Tokenizer.from_json(imported.tokenizer, info).to_json()
    config = replace(config, task="language_model", info=info.to_dict())
    return RealModel(net.eval(), config, info, {info.tokenizer: tokenizer})


def _imagenet_info(spec: Spec) -> ImageInfo:
    """Return the image sizes, mean, standard deviation and class names of a pretrained timm model."""
    import timm
    from timm.data import ImageNetInfo, infer_imagenet_subset

    variant = spec.name.removeprefix(TIMM)
    config: Any = timm.get_pretrained_cfg(variant) if timm.is_model(variant) else None
    if config is None or not (config.has_weights and config.num_classes):
        missing = "model" if config is None else "pretrained classifier"
        raise InputError(
            f"timm {timm.__version__} has no {missing} '{variant}': use another, or --data for a new head", code="unknown"
        )
    channels, size = config.input_size[0], config.input_size[-1]
    subset = infer_imagenet_subset(config.to_dict())
    names = ImageNetInfo(subset).label_descriptions() if subset else [f"class {i}" for i in range(config.num_classes)]
    moments: dict[str, Any] = {"mean": tuple(config.mean), "std": tuple(config.std)}
    return ImageInfo(in_channels=channels, image_size=size, classes=tuple(names), **moments, sizes={}, sha256="")


ROUNDS = 20
SIZES = frozenset({"head_dim", "ffn", "mlp_ratio", "hidden", "channels"})
"""Options of backbones that set the sizes that pruning changes."""
_NOT_INHERITED = ("max_epochs", "max_steps", "max_time", "devices", "num_nodes", "strategy")


def prune(run: str | Path, options: Prune) -> dict[str, Any]:
    """Save a model with fewer heads, hidden units and channels than a trained one, measure both, and fine-tune it.

    A spec describes the smaller network, so `zoo.load` builds it like any other. Fine-tuning is a new run with the data and
    options of the original run. Returns the folder of the model, its spec, the cuts, parameters and milliseconds of a forward
    pass before and after, metrics before pruning, after pruning and after fine-tuning, and the folder of the fine-tuning run.
    """
    config, model_folder = read_config(run), find(run)
    is_run = (model_folder.parent / "config.yaml").is_file()
    folder, name = (model_folder.parent if is_run else model_folder), f"pruned-{options.ratio}"
    out = new_path(options.out or (folder / name if is_run else f"{folder}-{name}"), "--out")
    if not options.epochs and (options.lr is not None or options.run_dir is not None):
        raise InputError("--lr and --run-dir apply to fine-tuning: use --epochs, or leave them out")
    tuning = _tuning_options(folder, options) if options.epochs else None
    before = load(run, device="auto")
    net, spec, cuts = pruned(before, options.ratio)
    if tuning is not None:
        tuning = replace(tuning, backbone=spec)
        plan_run(tuning)  # checks the options before anything is written
    manifest = read_json(model_folder / "manifest.json")
    files = model_files(model_folder)
    config = replace(config, backbone=spec)
    sizes = {"real_twin": count(real_twin(spec, **network_options(before.config, before.info)))["total"]}
    summary: dict[str, Any] = {"versions": library_versions(config), "parameters": count(net) | sizes, "pruned": options.ratio}
    splits = ("validation", "metrics") if manifest["metrics"] else ("validation",)
    config_file = str(folder / "config.yaml") if is_run else None
    result: dict[str, Any] = {"folder": str(out), "backbone": spec, "config": config_file, "cuts": cuts}
    result["before"] = measure_splits(run, splits, options, options.data)
    with scratch_folder(out) as temporary:
        save(temporary / "model", net, config, summary, files)
        result["after"] = measure_splits(temporary, splits, options, options.data)
        after = load(temporary, device="auto")
    save(out, net, config, summary | result["after"], files, sparse=bool(config.sparse))
    result["parameters"] = {"before": count(before.net)["total"], "after": count(net)["total"]}
    result["forward"] = _forward_times(before, after, options.batch_size)
    if tuning is not None:
        tuned = run_fit(replace(tuning, init_from=str(out)))
        result |= {"run_dir": tuned.run_dir, "epochs": tuned.epochs}
        result["tuned"] = measure_splits(str(tuned.run_dir), splits, options, options.data)
    return result


def _tuning_options(folder: Path, options: Prune) -> Fit:
    run_dir = new_path(options.run_dir or f"{folder}-pruned-{options.ratio}", "--run-dir")
    if not (folder / "config.yaml").is_file():
        raise InputError(f"'{folder}' has no config.yaml with the options for fine-tuning: leave --epochs out", code="missing")
    first = build_options(Fit, read_run_config(folder))
    lr = first.optimizer.lr if options.lr is None else options.lr
    trainer = {name: value for name, value in first.trainer.items() if name not in _NOT_INHERITED}
    trainer |= options.trainer | {"max_epochs": options.epochs, "devices": 1}
    check_trainer(trainer)
    settings: dict[str, Any] = {"trainer": trainer, "run_dir": str(run_dir), "num_workers": options.num_workers}
    return replace(first, optimizer=replace(first.optimizer, lr=lr), resume=None, **settings)


def pruned(model: Model, ratio: float) -> tuple[nn.Module, str, list[Cut]]:
    """Prune a copy of the network of a model on the CPU; return it, its spec and the cuts."""
    spec, algebra = model.config.backbone, model.config.algebra
    if spec is None or model.info is None or algebra is None:
        raise InputError(
            "a network without a spec is not supported: use zoo.pruning.prune_structure in Python", code="unsupported"
        )
    if not SIZES & _options_of(spec):
        raise InputError(_unsupported(spec))
    net = deepcopy(model.net).cpu()
    example = model.info.example_inputs(2)
    try:
        cuts = prune_structure(net, ratio, *(example if isinstance(example, tuple) else (example,)))
    except InputError as error:
        raise InputError(f"{spec}: {error}") from error
    smaller = _smaller_spec(spec, cuts)
    with torch.random.fork_rng(devices=[]):
        built = backbone(smaller, algebra, **network_options(model.config, model.info))
    shapes, built_shapes = ({name: t.shape for name, t in network.state_dict().items()} for network in (net, built))
    if shapes != built_shapes:
        raise InputError(_unsupported(spec))
    return net, smaller, cuts


def _smaller_spec(spec: str, cuts: Sequence[Cut]) -> str:
    """Return the spec of a network after pruning.

    The sizes are set by ``heads`` and ``head_dim``; by ``ffn`` or ``mlp_ratio`` if all layers have the same number of hidden
    units, otherwise by ``hidden`` with one number per layer; and by ``channels`` with one number per convolution.
    """
    supported = _options_of(spec)
    parsed, new = Spec.parse(spec), dict[str, Any]()
    for kind in sorted({cut.kind for cut in cuts if cut.after < cut.before}):
        first, *others = same_kind = [cut for cut in cuts if cut.kind == kind]
        same = all((cut.after, cut.head_dim, cut.width) == (first.after, first.head_dim, first.width) for cut in others)
        if kind == "heads" and same and {"heads", "head_dim"} <= supported:
            new |= {"heads": first.after, "head_dim": first.head_dim}
        elif kind == "units" and same and "ffn" in supported:
            new["ffn"] = first.after
        elif kind == "units" and same and "mlp_ratio" in supported:
            new["mlp_ratio"] = _quotient(first.after, first.width)
        elif (name := {"units": "hidden", "channels": "channels"}.get(kind)) in supported:
            new[str(name)] = tuple(cut.after for cut in same_kind)
        else:
            raise InputError(_unsupported(spec))
    return str(Spec(parsed.name, {**parsed.options, **new}))


def _options_of(spec: str) -> set[str]:
    return set(signature(registry.load(registry.resolve("zoo.backbones", untrained(spec))[0])).parameters)


def _unsupported(spec: str) -> str:
    return f"{spec} cannot be pruned: its options cannot describe the smaller network"


def _quotient(hidden: int, width: int) -> float:
    """Return a ratio with int(width * ratio) == hidden."""
    near = hidden / width
    return near if int(width * near) == hidden else (hidden + 0.5) / width


def _forward_times(before: Model, after: Model, batch: int) -> dict[str, float]:
    """Return the median milliseconds of interleaved forward passes of two models, and their ratio."""
    example = before.info.example_inputs(batch)
    inputs = [t.to(before.device) for t in (example if isinstance(example, tuple) else (example,))]

    def forward(net: nn.Module) -> None:
        with torch.inference_mode():
            if net(*inputs).is_cuda:
                torch.cuda.synchronize()

    calls = {"before": partial(forward, before.net), "after": partial(forward, after.net)}
    times = side_by_side(calls, ROUNDS, warmup=1)
    return {"before_ms": times["before"]["ms"], "after_ms": times["after"]["ms"], "ratio": times["after"]["ratio"]}
