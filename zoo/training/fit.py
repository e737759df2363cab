"""Train a network, measure it, and leave behind a folder that says how."""

import math
import platform
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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
from zoo.tasks import make_task, task_type
from zoo.training.callbacks import progress
from zoo.training.checkpoints import RunRecord, check_network, check_resume, load_best
from zoo.training.folder import RunFolder, claim, write_config
from zoo.training.options import Fit
from zoo.training.processes import Processes, join
from zoo.training.resolve import check_data, make_data, resolve, task_options
from zoo.training.trainer import check_ranks, check_trainer, make_trainer
from zoo.training.vectors import load_into, share_of, vectors_for

PACKAGES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "tokenizers")


@dataclass
class Run:
    """The parts of a run that is ready to train.

    Attributes:
        options: The options, with everything filled in.
        folder: The run's folder.
        data: The data module, set up.
        task: The task with the network.
        trainer: The Trainer.
        summary: What can be said before training.
        config: The configuration of the model folder.
    """

    options: Fit
    folder: Path
    data: Any
    task: Any
    trainer: pl.Trainer
    summary: dict[str, Any]
    config: dict[str, Any]


def fit(options: Fit) -> dict[str, Any]:
    """Train as the options say and return the summary that is also written to ``summary.json``.

    The run's folder holds config.yaml, metrics.csv, tensorboard/, checkpoints/, model/ (see `zoo.checkpoint`) and summary.json.
    Test metrics are those of the epoch that validation liked best (`zoo.tasks.Task.monitor`). The model is written before it
    is tested, and once more with the metrics.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong, before anything is trained; or if the loss is not
            finite any more, or a data file turns out to be broken when it is read.
        KeyboardInterrupt: If it was interrupted; checkpoints/last.ckpt holds the last whole epoch.
    """
    options = resolve(options)
    settings = check_trainer(options.trainer)
    checkpoint = check_resume(options)
    data = make_data(options)
    processes = join(settings)
    with claimed(options, processes) as folder, matmul_precision(options.matmul_precision):
        try:
            run = set_up(options, settings, checkpoint, data, folder.path, processes)
        except BaseException:
            folder.discard()
            raise
        seconds = train(run, folder)
        run.summary |= {"seconds": round(seconds, 2), "epochs": run.trainer.current_epoch, "metrics": {}}
        run.summary |= {"checkpoint": load_best(run.trainer, run.task, folder.path), "device": device_name(run.trainer)}
        write_model(run)
        if run.data.has_test:
            metrics = run.trainer.test(run.task, run.data, verbose=False)[0]
            run.summary["metrics"] = {name.removeprefix("test_"): finite(value) for name, value in metrics.items()}
            write_model(run)
        if run.trainer.is_global_zero:
            write_json(folder.path / "summary.json", run.summary)
    return run.summary


@contextmanager
def claimed(options: Fit, processes: Processes) -> Iterator[RunFolder]:
    """Let process 0 claim the folder of the run, and tell the others where it is, until the run ends.

    Raises:
        InputError: In all of them, if it cannot be claimed.
    """
    mine: list[RunFolder] = []

    def claim_folder() -> str:
        mine.append(claim(options))
        return str(mine[0].path)

    path = processes.first(claim_folder)
    with mine[0] if mine else RunFolder(Path(path)) as folder:
        yield folder


@contextmanager
def matmul_precision(name: str | None) -> Iterator[None]:
    """Set torch's precision of float32 matrix products while a run lasts."""
    before = torch.get_float32_matmul_precision()
    if name is not None:
        torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def set_up(
    options: Fit,
    settings: Mapping[str, Any],
    checkpoint: Mapping[str, Any] | None,
    data: Any,
    folder: Path,
    processes: Processes,
) -> Run:
    """Set up the data, build the network, the task and the Trainer, and write config.yaml.

    Raises:
        InputError: If something does not fit together.
    """
    pl.seed_everything(options.seed, verbose=False)
    processes.prepare(data)
    check_data(options, data)
    vectors = vectors_for(data, options.vectors)
    info = data.info
    net = backbone(options.backbone, options.algebra, **network_options(options, info))
    load_into(net, vectors)
    kind, _ = task_type(data.task)
    check_fit(net, options.backbone, info.example_inputs(2), kind.num_outputs(info), every=kind.per_token)
    task = make_task(data.task, net, info, data.tokenizer, **task_options(options))
    check_network(options, checkpoint, task)
    trainer = make_trainer(settings, folder, options, task.monitor)
    check_ranks(trainer, net)
    summary = describe(options, net, data) | {
        "vectors_found": share_of(vectors),
        "run_dir": str(folder),
        "resumed_from": options.ckpt_path,
    }
    run = Run(options, folder, data, task, trainer, summary, summary | {"info": info.to_dict()})
    trainer.callbacks.insert(  # type: ignore[attr-defined]
        0,
        RunRecord(options, {"config": run.config, "files": dict(data.files), "network": network_options(options, info)}),
    )
    if trainer.is_global_zero:
        write_config(folder, options)
        for logger in trainer.loggers:
            logger.log_hyperparams(asdict(options))
    if options.compile:
        net.compile()  # in place: the names in its state_dict stay
    return run


def network_options(options: Fit, info: Any) -> dict[str, Any]:
    """Return the keywords that a network is built with, beside its spec and its algebra."""
    own = {"scope": options.scope, "init": options.init, "embedding": options.embedding}
    return {**info.model_kwargs, **own, "vectors": getattr(info, "vectors", None)}


def describe(options: Fit, net: nn.Module, data: Any) -> dict[str, Any]:
    """Return what can be said of a run before it begins: names, sizes, seed and versions."""
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
        "parameters": count(net) | {"real_twin": count(real_twin(options.backbone, **network_options(options, info)))["total"]},
        "versions": versions | {entry.distribution: entry.version for entry in entries},
        "data_sha256": info.sha256,
        **({"decoding": asdict(options.decoding)} if "decoding" in task_type(data.task)[0].options() else {}),
        "stayed_real": stayed_real(net),
    }


def finite(value: float) -> float | None:
    """Return a number that JSON can hold, or None for one that is not finite."""
    return float(value) if math.isfinite(value) else None


def train(run: Run, folder: RunFolder) -> float:
    """Run the training loop and return its seconds.

    Raises:
        InputError: If the loss is not finite any more, or a data file is broken.
        KeyboardInterrupt: If the user stopped it; Lightning itself would end the process.
    """
    start = time.perf_counter()
    try:
        run.trainer.fit(run.task, run.data, ckpt_path=run.options.ckpt_path)
    except (SystemExit, InputError) as error:
        last = folder.path / "checkpoints" / "last.ckpt"
        if not any(last.parent.glob("*.ckpt")) and run.trainer.current_epoch == 0:
            folder.discard()
        if isinstance(error, InputError):
            raise
        command = shlex.join(["zoo", "fit", "-c", str(folder.path / "config.yaml"), "--ckpt-path", str(last)])
        advice = f"go on with: {command}" if last.exists() else "no epoch was finished"
        raise KeyboardInterrupt(f"stopped in {progress(run.trainer).replace('/', ' of ')}; {advice}") from error
    return time.perf_counter() - start


def write_model(run: Run) -> None:
    """Write the model folder, in process 0."""
    if run.trainer.is_global_zero:
        save(run.folder / "model", run.task.net, run.config, run.summary, run.data.files)


def device_name(trainer: pl.Trainer) -> str:
    """Name the device, such as ``cpu`` or ``1 x NVIDIA H200``."""
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return device.type if trainer.world_size == 1 else f"{trainer.world_size} x {device.type}"
    return f"{trainer.world_size} x {torch.cuda.get_device_name(device)}"
