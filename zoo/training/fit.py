"""Train a network, measure it, and leave behind a folder that says how."""

import math
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from zoo.checkpoint import save
from zoo.checkpoint.atomic import write_json
from zoo.errors import InputError
from zoo.tasks.base import Task
from zoo.training.callbacks import progress
from zoo.training.checkpoints import RunRecord, check_network, check_resume, load_best
from zoo.training.folder import RunFolder, claim, write_config
from zoo.training.network import build_network, model_config, rebuild_options, summarize, vectors_for
from zoo.training.objects import Objects
from zoo.training.options import Fit
from zoo.training.processes import Processes, join
from zoo.training.resolve import Plan, check_data, plan
from zoo.training.trainer import check_ranks, check_trainer, make_trainer


@dataclass
class Run:
    """The parts of a run that is ready to train.

    Attributes:
        plan: The options and the data module.
        folder: The run's folder.
        task: The task with the network.
        trainer: The Trainer.
        summary: What can be said before training; grows into summary.json.
        record: ``config`` and ``files`` of the model folder, ``network``, the keywords that build the network (None if no spec
            names it), and ``summary``.
    """

    plan: Plan
    folder: Path
    task: Task
    trainer: pl.Trainer
    summary: dict[str, Any]
    record: dict[str, Any]


def fit(options: Fit, objects: Objects | None = None) -> dict[str, Any]:
    """Train as the options say and return the summary that is also written to ``summary.json``.

    The run's folder holds config.yaml, metrics.csv, tensorboard/, checkpoints/, model/ (see `zoo.checkpoint`) and summary.json.
    Test metrics are those of the epoch that validation liked best (`zoo.tasks.Task.monitor`). The model is written before it
    is tested, and once more with the metrics.

    Args:
        options: The run.
        objects: Objects that stand in the place of specs, see `zoo.training.objects`.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong, before anything is trained; or if the loss is not
            finite any more, or a data file turns out to be broken when it is read.
        KeyboardInterrupt: If it was interrupted; checkpoints/last.ckpt holds the last whole epoch.
    """
    planned = plan(options, objects)
    settings = check_trainer(planned.options.trainer)
    checkpoint = check_resume(planned.options)
    in_order = "token_stream" in planned.recipe.inputs or getattr(planned.objects.net, "has_memory", False)
    processes = join(settings, in_order, planned.options.ddp_timeout)
    with claimed(planned.options, processes) as folder, matmul_precision(planned.options.matmul_precision):
        try:
            run = set_up(planned, settings, checkpoint, folder.path, processes)
        except BaseException:
            folder.discard()
            raise
        seconds = train(run, folder)
        run.summary |= {"seconds": round(seconds, 2), "epochs": run.trainer.current_epoch, "metrics": {}}
        run.summary |= {"checkpoint": load_best(run.trainer, run.task, folder.path), "device": device_name(run.trainer)}
        write_model(run)
        if getattr(planned.data, "has_test", True):
            metrics = run.trainer.test(run.task, planned.data, verbose=False)[0]
            run.summary["metrics"] = {name.removeprefix("test_"): finite(value) for name, value in metrics.items()}
            write_model(run)
        if run.trainer.is_global_zero:
            write_json(folder.path / "summary.json", run.summary)
    return run.summary


def set_up(
    planned: Plan,
    settings: Mapping[str, Any],
    checkpoint: Mapping[str, Any] | None,
    folder: Path,
    processes: Processes,
) -> Run:
    """Build the Trainer, set up the data, build the network and the task, and write config.yaml.

    Raises:
        InputError: If something does not fit together.
    """
    options, data = planned.options, planned.data
    trainer = make_trainer(settings, folder, options, planned.task.monitor)
    pl.seed_everything(options.seed, verbose=False)
    processes.prepare(data)
    vectors, info = None, getattr(data, "info", None)
    if info is not None:
        check_data(options, planned.recipe, data)
        vectors = vectors_for(data, options.vectors)
        info = data.info
    net = build_network(planned, vectors)
    task = planned.objects.task
    if not isinstance(task, Task):
        task = planned.task.from_info(net, info, getattr(data, "tokenizer", None), **planned.task_options)
        task.save_hyperparameters(dict(task.hparams), logger=False)  # the options of the run, logged below, say the same
    check_network(options, checkpoint, task)
    check_ranks(trainer, net)
    summary = summarize(planned, net, vectors) | {"run_dir": str(folder)}
    config, files = model_config(planned, net, summary), dict(getattr(data, "files", {}))
    record = {"config": config, "files": files, "network": rebuild_options(planned), "summary": summary}
    trainer.callbacks.insert(0, RunRecord(options, record))  # type: ignore[attr-defined]
    if trainer.is_global_zero:
        write_config(folder, options)
        for logger in trainer.loggers:
            logger.log_hyperparams(asdict(options))
    if options.compile:
        net.compile()  # in place: the names in its state_dict stay
    return Run(planned, folder, task, trainer, summary, record)


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
        run.trainer.fit(run.task, run.plan.data, ckpt_path=run.plan.options.ckpt_path)
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
        save(run.folder / "model", run.task.net, run.record["config"], run.summary, run.record["files"])


def device_name(trainer: pl.Trainer) -> str:
    """Name the device, such as ``cpu`` or ``1 x NVIDIA H200``."""
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return device.type if trainer.world_size == 1 else f"{trainer.world_size} x {device.type}"
    return f"{trainer.world_size} x {torch.cuda.get_device_name(device)}"
