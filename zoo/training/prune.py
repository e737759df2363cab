"""Structured pruning of a trained network: remove heads, hidden units and channels, measure, and fine-tune."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from zoo import registry
from zoo.atomic import scratch_folder
from zoo.backbones.build import backbone, count, real_twin, untrained
from zoo.checkpoint import find, read_config, save
from zoo.checkpoint.folder import library_versions, model_files, network_options
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError
from zoo.inference.model import Model, load
from zoo.pruning import Cut, prune_structure
from zoo.pruning.structured import check_ratio
from zoo.registry import Spec
from zoo.training.average import measure_splits, new_path
from zoo.training.bench import side_by_side
from zoo.training.fit import fit
from zoo.training.folder import read_run_config
from zoo.training.options import Fit, Prune, build
from zoo.training.resolve import plan_run
from zoo.training.trainer import check_trainer

ROUNDS = 20
SIZES = frozenset({"head_dim", "ffn", "mlp_ratio", "hidden", "channels"})
"""Options of backbones that set the sizes that pruning changes."""
_NOT_INHERITED = ("max_epochs", "max_steps", "max_time", "devices", "num_nodes", "strategy")


def prune(run: str | Path, options: Prune) -> dict[str, Any]:
    """Save a model with fewer heads, hidden units and channels than a trained one, measure both, and fine-tune it.

    A spec describes the smaller network, so `zoo.load` builds it like any other. Fine-tuning is a new run with the data and
    options of the original run.

    Returns:
        The folder of the model, its spec, the cuts, parameters and milliseconds of a forward pass before and after, metrics
        before pruning, after pruning and after fine-tuning, and the folder of the fine-tuning run.

    Raises:
        InputError: If an option is wrong, a folder exists, or the backbone cannot be pruned; nothing is written then.
    """
    check_ratio(options.ratio)
    config, model_folder = read_config(run), find(run)
    is_run = (model_folder.parent / "config.yaml").is_file()
    folder, name = (model_folder.parent if is_run else model_folder), f"pruned-{options.ratio}"
    out = new_path(options.out or (folder / name if is_run else f"{folder}-{name}"), "--out")
    if not options.epochs and (options.lr is not None or options.run_dir is not None):
        raise InputError("--lr and --run-dir apply to fine-tuning: use --epochs, or leave them out")
    tuning = tuning_options(folder, options) if options.epochs else None
    before = load(run, device="auto")
    net, spec, cuts = pruned(before, options.ratio)
    if tuning is not None:
        tuning = replace(tuning, backbone=spec)
        plan_run(tuning)  # checks the options before anything is written
    manifest = read_json(model_folder / "manifest.json")
    files = model_files(model_folder)
    config |= {"backbone": spec}
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
    save(out, net, config, summary | result["after"], files, sparse=bool(config["sparse"]))
    result["parameters"] = {"before": count(before.net)["total"], "after": count(net)["total"]}
    result["forward"] = forward_times(before, after, options.batch_size)
    if tuning is not None:
        tuned = fit(replace(tuning, init_from=str(out)))
        result |= {key: tuned[key] for key in ("run_dir", "epochs")}
        result["tuned"] = measure_splits(tuned["run_dir"], splits, options, options.data)
    return result


def tuning_options(folder: Path, options: Prune) -> Fit:
    """Return the options of the fine-tuning run, based on those of the run in a folder."""
    run_dir = new_path(options.run_dir or f"{folder}-pruned-{options.ratio}", "--run-dir")
    if options.epochs < 0:
        raise InputError(f"epochs={options.epochs}: must not be negative; use 0 for no fine-tuning")
    if not (folder / "config.yaml").is_file():
        raise InputError(f"'{folder}' has no config.yaml with the options for fine-tuning: leave --epochs out")
    first = build(Fit, read_run_config(folder))
    lr = first.optimizer.lr if options.lr is None else options.lr
    trainer = {name: value for name, value in first.trainer.items() if name not in _NOT_INHERITED}
    trainer |= options.trainer | {"max_epochs": options.epochs, "devices": 1}
    check_trainer(trainer)
    settings: dict[str, Any] = {"trainer": trainer, "run_dir": str(run_dir), "num_workers": options.num_workers}
    return replace(first, optimizer=replace(first.optimizer, lr=lr), resume=None, **settings)


def pruned(model: Model, ratio: float) -> tuple[nn.Module, str, list[Cut]]:
    """Prune a copy of the network of a model on the CPU; return it, its spec and the cuts."""
    spec = model.config["backbone"]
    if spec is None or model.info is None or model.config["algebra"] is None:
        raise InputError("a network without a spec is not supported: use zoo.pruning.prune_structure in Python")
    if not SIZES & options_of(spec):
        raise InputError(_unsupported(spec))
    net = deepcopy(model.net).cpu()
    example = model.info.example_inputs(2)
    try:
        cuts = prune_structure(net, ratio, *(example if isinstance(example, tuple) else (example,)))
    except InputError as error:
        raise InputError(f"{spec}: {error}") from error
    smaller = smaller_spec(spec, cuts)
    with torch.random.fork_rng(devices=[]):
        built = backbone(smaller, model.config["algebra"], **network_options(model.config, model.info))
    shapes, built_shapes = ({name: t.shape for name, t in network.state_dict().items()} for network in (net, built))
    if shapes != built_shapes:
        raise InputError(_unsupported(spec))
    return net, smaller, cuts


def smaller_spec(spec: str, cuts: Sequence[Cut]) -> str:
    """Return the spec of a network after pruning.

    The sizes are set by ``heads`` and ``head_dim``; by ``ffn`` or ``mlp_ratio`` if all layers have the same number of hidden
    units, otherwise by ``hidden`` with one number per layer; and by ``channels`` with one number per convolution.
    """
    supported = options_of(spec)
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


def options_of(spec: str) -> set[str]:
    """Return the names of the options of a backbone."""
    return set(signature(registry.load(registry.resolve("zoo.backbones", untrained(spec))[0])).parameters)


def _unsupported(spec: str) -> str:
    """Return the message for a backbone without options for the sizes of a pruned network."""
    return f"{spec} cannot be pruned: its options cannot describe the smaller network"


def _quotient(hidden: int, width: int) -> float:
    """Return a ratio with int(width * ratio) == hidden."""
    near = hidden / width
    return near if int(width * near) == hidden else (hidden + 0.5) / width


def forward_times(before: Model, after: Model, batch: int) -> dict[str, float]:
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
