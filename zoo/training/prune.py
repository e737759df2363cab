"""A smaller network out of a trained one: pruned by whole heads, units and channels, measured, and fine-tuned."""

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

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
from zoo.training.average import check_one_device, measured, new_path
from zoo.training.fit import fit
from zoo.training.folder import read_config as read_run_config
from zoo.training.options import Fit, Prune, build
from zoo.training.resolve import plan
from zoo.training.trainer import check_trainer

REPEATS = 21
SIZES = frozenset({"head_dim", "ffn", "mlp_ratio", "hidden", "channels"})
"""Options of backbones that say what pruning leaves."""
_NOT_TAKEN = ("max_epochs", "max_steps", "max_time", "devices", "num_nodes", "strategy")


def prune(run: str | Path, options: Prune) -> dict[str, Any]:
    """Write a model with fewer heads, units and channels than that of a run, measure both, and fine-tune it.

    The smaller network is one that a spec builds, with fewer heads, hidden units or channels in its options, and is read by
    `zoo.load` like any other. Fine-tuning is a run of its own, with the data and the recipe of the first, from these weights.

    Returns:
        The folder of the model, its spec, the cuts, parameters and milliseconds of a forward pass before and after, metrics
        before, after and fine-tuned, and the folder of the fine-tuning run.

    Raises:
        InputError: If an option is wrong, a folder exists, or the backbone cannot be pruned; then nothing is written.
    """
    check_ratio(options.ratio)
    check_one_device("zoo prune", options.trainer)
    config, model_folder = read_config(run), find(run)
    is_run = (model_folder.parent / "config.yaml").is_file()
    folder, name = (model_folder.parent if is_run else model_folder), f"pruned-{options.ratio}"
    out = new_path(options.out or (folder / name if is_run else f"{folder}-{name}"), "--out")
    if not options.epochs and (options.lr is not None or options.run_dir is not None):
        raise InputError("--lr and --run-dir are of fine-tuning: give --epochs, or leave them out")
    further = further_options(folder, options) if options.epochs else None
    before = load(run, device="auto")
    net, spec, cuts = pruned(before, options.ratio)
    if further is not None:
        further = replace(further, backbone=spec)
        plan(further)  # checks all that needs no data, before anything is written
    manifest = read_json(model_folder / "manifest.json")
    files = model_files(model_folder)
    config |= {"backbone": spec}
    sizes = {"real_twin": count(real_twin(spec, **network_options(before.config, before.info)))["total"]}
    summary: dict[str, Any] = {"versions": library_versions(config), "parameters": count(net) | sizes, "pruned": options.ratio}
    splits = ("validation", "metrics") if manifest["metrics"] else ("validation",)
    config_file = str(folder / "config.yaml") if is_run else None
    result: dict[str, Any] = {"folder": str(out), "backbone": spec, "config": config_file, "cuts": cuts}
    result["before"] = measured(run, splits, options, options.data)
    with scratch_folder(out) as part:  # measured as everybody will: from its folder
        save(part / "model", net, config, summary, files)
        result["after"] = measured(part, splits, options, options.data)
        after = load(part, device="auto")
    save(out, net, config, summary | result["after"], files, sparse=bool(config["sparse"]))
    result["parameters"] = {"before": count(before.net)["total"], "after": count(net)["total"]}
    result["forward"] = forward_times(before, after, options.batch_size)
    if further is not None:
        tuned = fit(replace(further, init_from=str(out)))
        result |= {key: tuned[key] for key in ("run_dir", "epochs")}
        result["tuned"] = measured(tuned["run_dir"], splits, options, options.data)
    return result


def further_options(folder: Path, options: Prune) -> Fit:
    """Return the options of the run that fine-tunes: those of the run in a folder, with other epochs."""
    run_dir = new_path(options.run_dir or f"{folder}-pruned-{options.ratio}", "--run-dir")
    if options.epochs < 0:
        raise InputError(f"epochs={options.epochs}: use 0 for no fine-tuning, or the number of epochs")
    if not (folder / "config.yaml").is_file():
        raise InputError(f"'{folder}' is a model without its run, so that nothing says how to fine-tune it: leave --epochs out")
    first = build(Fit, read_run_config(folder))
    lr = first.optimizer.lr if options.lr is None else options.lr
    trainer = {name: value for name, value in first.trainer.items() if name not in _NOT_TAKEN}
    trainer |= {"max_epochs": options.epochs, "devices": 1} | options.trainer
    check_trainer(trainer)
    settings: dict[str, Any] = {"trainer": trainer, "run_dir": str(run_dir), "num_workers": options.num_workers}
    return replace(first, optimizer=replace(first.optimizer, lr=lr), resume=None, **settings)


def pruned(model: Model, ratio: float) -> tuple[nn.Module, str, list[Cut]]:
    """Return a smaller copy of a model's network, on the CPU, with the spec that builds it and what was removed."""
    spec = model.config["backbone"]
    if spec is None or model.info is None or model.config["algebra"] is None:
        raise InputError("a network without a spec cannot be built smaller: zoo.pruning.prune_structure prunes it in Python")
    if not SIZES & options_of(spec):
        raise InputError(_cannot(spec))
    net = deepcopy(model.net).cpu()
    example = model.info.example_inputs(2)
    try:
        cuts = prune_structure(net, ratio, *(example if isinstance(example, tuple) else (example,)))
    except InputError as error:
        raise InputError(f"{spec}: {error}") from error
    smaller = smaller_spec(spec, cuts)
    with torch.random.fork_rng(devices=[]):
        built = backbone(smaller, model.config["algebra"], **network_options(model.config, model.info))
    ours, theirs = ({name: t.shape for name, t in network.state_dict().items()} for network in (net, built))
    if ours != theirs:
        raise InputError(_cannot(spec))
    return net, smaller, cuts


def smaller_spec(spec: str, cuts: Sequence[Cut]) -> str:
    """Write the new sizes of a network into its spec, under the names that the options of backbones have for them.

    Heads are ``heads`` and ``head_dim``; hidden units ``ffn`` or ``mlp_ratio`` if all layers have as many, or ``hidden``, one
    number for each layer; channels ``channels``, one for each convolution.
    """
    taken = options_of(spec)
    parsed, new = Spec.parse(spec), dict[str, Any]()
    for kind in sorted({cut.kind for cut in cuts if cut.after < cut.before}):
        first, *others = of_kind = [cut for cut in cuts if cut.kind == kind]
        same = all((cut.after, cut.head_dim, cut.width) == (first.after, first.head_dim, first.width) for cut in others)
        if kind == "heads" and same and {"heads", "head_dim"} <= taken:
            new |= {"heads": first.after, "head_dim": first.head_dim}
        elif kind == "units" and same and "ffn" in taken:
            new["ffn"] = first.after
        elif kind == "units" and same and "mlp_ratio" in taken:
            new["mlp_ratio"] = _quotient(first.after, first.width)
        elif (name := {"units": "hidden", "channels": "channels"}.get(kind)) in taken:
            new[str(name)] = tuple(cut.after for cut in of_kind)
        else:
            raise InputError(_cannot(spec))
    return str(Spec(parsed.name, {**parsed.options, **new}))


def options_of(spec: str) -> set[str]:
    """Return the names of the options that a backbone takes."""
    return set(signature(registry.load(registry.resolve("zoo.backbones", untrained(spec))[0])).parameters)


def _cannot(spec: str) -> str:
    """Say that the options of a backbone cannot tell the sizes of a pruned network, and those of which can."""
    able = []
    for entry in registry.entries("zoo.backbones"):
        if entry.ours and {"head_dim", "channels"} & signature(registry.load(entry)).parameters.keys():
            able.append(entry.name)
    return (
        f"{spec} cannot be pruned: no options of this backbone say the sizes that would be left; those of {', '.join(able)} do"
    )


def _quotient(hidden: int, width: int) -> float:
    """Return the number that int(width * number) makes the hidden units of."""
    near = hidden / width
    return near if int(width * near) == hidden else (hidden + 0.5) / width


def forward_times(before: Model, after: Model, batch: int) -> dict[str, float]:
    """Return the median milliseconds of a forward pass of two models, of so many examples side by side, and their ratio."""
    example = before.info.example_inputs(batch)
    inputs = [t.to(before.device) for t in (example if isinstance(example, tuple) else (example,))]
    times: Mapping[str, list[float]] = {"before_ms": [], "after_ms": []}
    with torch.inference_mode():
        for _ in range(REPEATS):
            for name, model in (("before_ms", before), ("after_ms", after)):
                times[name].append(1000 * _seconds(model.net, inputs))
    times_ms = {name: round(median(values[1:]), 3) for name, values in times.items()}
    return times_ms | {"ratio": round(times_ms["after_ms"] / times_ms["before_ms"], 3)}


def _seconds(net: nn.Module, inputs: Sequence[Tensor]) -> float:
    start = time.perf_counter()
    out = net(*inputs)
    if out.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start
