"""Train a network, measure it, and leave behind a folder that says how."""

import math
import platform
import shlex
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from zoo import registry
from zoo.backbones.build import backbone, check_fit, count, real_twin
from zoo.checkpoint import save
from zoo.checkpoint.atomic import write_json
from zoo.conversion import stayed_real
from zoo.errors import InputError
from zoo.tasks import make_task
from zoo.tasks.making import num_outputs
from zoo.training.folder import claim, release, write_config
from zoo.training.options import Fit
from zoo.training.resolve import GENERATED, load_data, resolve
from zoo.training.resume import check_resume, load_best
from zoo.training.trainer import check_ranks, check_trainer, make_trainer, place, quiet
from zoo.training.vectors import load_into, share_of, vectors_for

PACKAGES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "tokenizers")


def fit(options: Fit) -> dict[str, Any]:
    """Train as the options say and return the summary that is also written to ``summary.json``.

    The run's folder holds config.yaml, metrics.csv, tensorboard/, checkpoints/, model/ (see `zoo.checkpoint`) and summary.json.
    Test metrics are those of the epoch that validation liked best (`zoo.tasks.Task.monitor`).

    Raises:
        InputError: If a name, an option, the data or the folder is wrong, before anything is trained; or if the loss is not
            finite any more, or a data file turns out to be broken when it is read.
        KeyboardInterrupt: If it was interrupted; checkpoints/last.ckpt holds the last whole epoch.
    """
    quiet()
    options = resolve(options)
    settings = check_trainer(options.trainer)
    pl.seed_everything(options.seed, verbose=False)
    data = load_data(options)
    vectors = vectors_for(data, options.vectors)
    info = data.info
    net = backbone(options.backbone, options.algebra, scope=options.scope, init=options.init, **known(options, info))
    load_into(net, vectors)
    check_fit(net, options.backbone, info.example_inputs(2), num_outputs(info), every=info.inputs in GENERATED)
    task = make_task(data.task, info, net, options.optimizer, options.schedule, options.label_smoothing, options.decoding)
    check_resume(options, task)
    described = describe(options, net, data) | {"vectors_found": share_of(vectors)}
    folder = claim(options)
    try:
        trainer = make_trainer(settings, folder, options, task.monitor)
        check_ranks(trainer, net)
    except InputError:
        release(folder)
        raise
    write_config(folder, options)
    seconds = train(trainer, task, data, options, folder)
    best = load_best(trainer, task, folder)
    metrics = trainer.test(task, data, verbose=False)[0] if data.has_test else {}
    summary = described | {
        "metrics": {name.removeprefix("test_"): finite(value) for name, value in metrics.items()},
        "seconds": round(seconds, 2),
        "epochs": trainer.current_epoch,
        "checkpoint": best,
        "run_dir": str(folder),
        "resumed_from": options.ckpt_path,
        "device": device_name(trainer),
    }
    if trainer.is_global_zero:
        save(folder / "model", net, summary | {"info": info.to_dict()}, summary, data.files)
        write_json(folder / "summary.json", summary)
    return summary


def known(options: Fit, info: Any) -> dict[str, Any]:
    """What a network is told of its data and of its word embedding."""
    return {**info.model_kwargs, "embedding": options.embedding, "vectors": getattr(info, "vectors", None)}


def describe(options: Fit, net: nn.Module, data: Any) -> dict[str, Any]:
    """Say what can be said of a run before it begins: names, sizes, seed and versions."""
    info = data.info
    entries = [
        registry.resolve(group, spec)[0]
        for group, spec in (
            ("zoo.backbones", options.backbone),
            ("zoo.algebras", options.algebra),
            ("zoo.datasets", options.data or ""),
            ("zoo.embeddings", options.embedding),
        )
        if spec is not None
    ]
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    return {
        **{
            key: getattr(options, key)
            for key in ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors", "seed")
        },
        "task": data.task,
        "parameters": count(net) | {"real_twin": count(real_twin(options.backbone, **known(options, info)))["total"]},
        "versions": versions | {entry.distribution: entry.version for entry in entries},
        "data_sha256": info.sha256,
        **({"decoding": asdict(options.decoding)} if info.inputs == "source_target" else {}),
        "stayed_real": stayed_real(net),
    }


def finite(value: float) -> float | None:
    """Return a number that JSON can hold, or None for one that is not finite."""
    return float(value) if math.isfinite(value) else None


def train(trainer: pl.Trainer, task: pl.LightningModule, data: pl.LightningDataModule, options: Fit, folder: Path) -> float:
    """Run the training loop and return its seconds.

    Raises:
        InputError: If the loss is not finite any more, or a data file is broken.
        KeyboardInterrupt: If the user stopped it; Lightning itself would end the process.
    """
    start = time.perf_counter()
    try:
        trainer.fit(task, data, ckpt_path=options.ckpt_path)
    except SystemExit as stop:
        last = folder / "checkpoints" / "last.ckpt"
        command = shlex.join(["zoo", "fit", "-c", str(folder / "config.yaml"), "--ckpt-path", str(last)])
        advice = f"go on with: {command}" if last.exists() else "no epoch was finished"
        release(folder)
        raise KeyboardInterrupt(f"stopped in {place(trainer).replace('/', ' of ')}; {advice}") from stop
    except InputError:
        release(folder)
        raise
    return time.perf_counter() - start


def device_name(trainer: pl.Trainer) -> str:
    """Name what it ran on, such as ``cpu`` or ``1 x NVIDIA H200``."""
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return device.type
    return f"{trainer.world_size} x {torch.cuda.get_device_name(device)}"
