"""Train a network, measure it, and leave behind a folder that says how."""

import math
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from zoo import registry
from zoo.atomic import write_json
from zoo.checkpoint import save
from zoo.data.loader import check_order
from zoo.errors import InputError, Interrupted, Stop
from zoo.tasks.base import Task
from zoo.training.checkpoints import Checkpoints, checkpoint_files
from zoo.training.folder import RunFolder, claim, finished_run, write_config
from zoo.training.network import build_network, model_config, rebuild_options, summarize, vectors_for
from zoo.training.objects import Objects
from zoo.training.options import Fit, without_tuples
from zoo.training.processes import Processes, join
from zoo.training.resolve import Plan, check_data, plan
from zoo.training.resume import Resumed, check_network, check_unchanged, read_best, resume
from zoo.training.signals import Signals
from zoo.training.state import set_counters
from zoo.training.teacher import read_teacher
from zoo.training.trainer import check_trainer, lightning_errors, make_trainer
from zoo.training.verify import CHECKSUMS, write_checksums


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
            names it), and ``summary``, all JSON values.
        sparse: Whether only the weights that are not zero are written (`zoo.checkpoint.save`).
    """

    plan: Plan
    folder: Path
    task: Task
    trainer: pl.Trainer
    summary: dict[str, Any]
    record: dict[str, Any]
    sparse: bool = False

    @property
    def checkpoints(self) -> Checkpoints:
        """The callback that writes training checkpoints."""
        return next(found for found in self.trainer.callbacks if isinstance(found, Checkpoints))  # type: ignore[attr-defined]


Say = Callable[[RunFolder, bool], str | None]
"""Says what is left of a run and how to go on with it, None if nothing is; the flag tells whether it was trained to its end."""


def fit(options: Fit, objects: Objects | None = None, say: Say | None = None) -> dict[str, Any]:
    """Train as the options say and return the summary that is also written to ``summary.json``.

    The run's folder holds config.yaml, metrics.csv, tensorboard/, checkpoints/, model/ (see `zoo.checkpoint`) and summary.json.
    Test metrics are those of the epoch that validation liked best (`zoo.tasks.Task.monitor`). The model is written before it
    is tested, and once more with the metrics.

    Args:
        options: The run.
        objects: Objects that stand in the place of specs, see `zoo.training.objects`.
        say: What is said of an interrupted run, if that is a part of something else; by default `resume_text`.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong, before anything is trained; or if the loss is not
            finite any more, or a data file turns out to be broken when it is read.
        Interrupted: At Ctrl-C or SIGTERM, after a checkpoint was written; the text says how to go on.
    """
    if options.folds is not None:
        return registry.load(registry.resolve("zoo.experiments", "folds")[0])(options)  # type: ignore[no-any-return]
    planned = plan(options, objects)
    if (summary := finished_run(planned.options)) is not None:
        return summary
    settings = check_trainer(planned.options.trainer)
    processes = join_for(planned, settings)
    with Signals() as signals, matmul_precision(planned.options.matmul_precision):
        summary = train_run(planned, settings, processes, signals, say=say)
    processes.end()
    return summary


class Extension:
    """What an experiment adds to a run that is one of its points.

    Attributes:
        draw: The seed of the initial weights, if that is not the seed of the run.
        sparse: Whether only the weights that are not zero are written.
    """

    draw: int | None = None
    sparse = False

    def prepare(self, run: Run) -> None:
        """Prepare a run before it is trained."""

    def finish(self, run: Run, resumed: Resumed | None) -> dict[str, Any]:
        """Return further keys of the summary after training, before the model is written."""
        return {}


def train_run(
    planned: Plan,
    settings: Mapping[str, Any],
    processes: Processes,
    signals: Signals,
    extension: Extension | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Train, measure and save a run in processes that have joined; return its summary.

    Args:
        planned: The run.
        settings: The arguments of its Trainer, checked.
        processes: Its processes.
        signals: Ctrl-C and SIGTERM.
        extension: What an experiment adds to it.
        say: See `fit`.
    """
    extension = extension or Extension()
    with (
        claimed(planned.options, processes) as folder,
        quiet_event_writer(),
        interruptions(folder, say=say),
    ):
        try:
            resumed = resume(planned.options, folder.path, processes.count) if folder.resumed else None
            run = set_up(planned, settings, resumed, folder.path, processes, signals, extension.draw)
            run.sparse = extension.sparse
            try:
                extension.prepare(run)
            except InputError:
                for logger in run.trainer.loggers:
                    logger.finalize("failed")
                raise
        except BaseException:
            folder.discard()
            raise
        train(run, folder, resumed)
        run.summary |= processes.first(lambda: extension.finish(run, resumed))
        with interruptions(folder, trained=True, say=say):
            measure(run)
        if settings.get("fast_dev_run"):
            folder.discard()
            run.summary["run_dir"] = None
    return run.summary


def join_for(planned: Plan, settings: Mapping[str, Any]) -> Processes:
    """Join the processes of a run, see `zoo.training.processes.join`."""
    in_order = "token_stream" in planned.recipe.inputs or getattr(planned.objects.net, "has_memory", False)
    return join(settings, in_order, planned.options.ddp_timeout)


def measure(run: Run) -> None:
    """Write the model, test it if there is a test split, and write it once more with the metrics, and the summary."""
    write_model(run)
    if getattr(run.plan.data, "has_test", True):
        for metrics in run.trainer.test(run.task, run.plan.data, verbose=False):  # none with limit_test_batches=0
            run.summary["metrics"] = {name.removeprefix("test_"): finite(value) for name, value in metrics.items()}
        write_model(run)
    if run.trainer.is_global_zero:
        write_json(run.folder / "summary.json", run.summary)
        write_checksums(run.folder)


@contextmanager
def interruptions(folder: RunFolder, trained: bool = False, say: Say | None = None) -> Iterator[None]:
    """Say how to go on when a signal or a full disk has ended a run: test the model, or train on from the newest checkpoint."""
    say = say or resume_text
    try:
        yield
    except (Stop, SystemExit) as stop:
        text = say(folder, trained)
        if text is None:
            folder.discard()
        raise Interrupted(f"stopped; {text or NOTHING_KEPT}", getattr(stop, "signum", signal.SIGINT)) from stop
    except BrokenPipeError:  # of standard output
        raise
    except OSError as error:
        text = say(folder, trained)
        if text is None or isinstance(error.__cause__, OSError):  # nothing to say, or it is said
            raise
        if trained and not (folder.path / "model").exists():
            text += f", or write the model alone: zoo recover {shlex.quote(str(folder.path))}"
        own = str(error.filename or "").startswith(str(folder.path))  # a temporary file, say
        place = folder.path if own else error.filename
        raise OSError(error.errno, f"{error.strerror or error}{f' ({place})' if place else ''}; {text}") from error


NOTHING_KEPT = "no checkpoint was written yet, nothing is kept"


def resume_text(folder: RunFolder, trained: bool) -> str | None:
    """Say what is saved of a run and how to resume it; None if there is nothing."""
    name, found = shlex.quote(str(folder.path)), checkpoint_files(folder.path / "checkpoints")
    if trained and (folder.path / "model").exists():
        return f"the model is there but not tested: zoo test {name}"
    if not found:
        return None
    where = found[-1].stem.removeprefix("resume-").replace("-", " ")
    return f"what was trained up to {where} is kept, go on with: zoo fit --resume {name}"


def set_up(
    planned: Plan,
    settings: Mapping[str, Any],
    resumed: Resumed | None,
    folder: Path,
    processes: Processes,
    signals: Signals,
    draw: int | None = None,
) -> Run:
    """Build the Trainer, set up the data, build the network and the task, and write config.yaml."""
    options, data = planned.options, planned.data
    trainer = make_trainer(settings, folder, options, planned.task.monitor, signals, resumed)
    pl.seed_everything(options.seed if draw is None else draw, verbose=False)
    processes.prepare(data)
    vectors, info = None, getattr(data, "info", None)
    if info is not None:
        check_data(options, planned.recipe, data)
        vectors = vectors_for(data, options.vectors)
        info = data.info
        check_unchanged(folder, resumed, getattr(info, "sha256", None))
    net = build_network(planned, vectors)
    task = planned.objects.task
    if not isinstance(task, Task):
        task = planned.task.from_info(net, info, getattr(data, "tokenizer", None), **planned.task_options)
        task.save_hyperparameters(dict(task.hparams), logger=False)  # the options of the run, logged below, say the same
    if options.teacher is not None:
        trainer.callbacks.append(read_teacher(options, data))  # type: ignore[attr-defined]
    check_network(resumed, task)
    check_order(getattr(net, "has_memory", False), trainer.world_size)
    summary = summarize(planned, net, vectors) | {"run_dir": str(folder)}
    summary["resumed_from"] = None if resumed is None else str(resumed.path)
    config, files = model_config(planned, net, summary), dict(getattr(data, "files", {}))
    record = {"config": config, "files": files, "network": rebuild_options(planned), "summary": summary}
    run = Run(planned, folder, task, trainer, summary, record)
    run.checkpoints.model = record
    if trainer.is_global_zero:
        for name in ("summary.json", CHECKSUMS):  # of a run that was finished and is trained further
            (folder / name).unlink(missing_ok=True)
        write_config(folder, options)
        for logger in trainer.loggers if resumed is None else ():
            logger.log_hyperparams(asdict(options, dict_factory=without_tuples))
    if options.compile:
        net.compile()  # in place: the names in its state_dict stay
    return run


@contextmanager
def claimed(options: Fit, processes: Processes, name: str | None = None) -> Iterator[RunFolder]:
    """Let process 0 claim the folder of the run, and tell the others where it is, until the run ends."""
    mine: list[RunFolder] = []

    def claim_folder() -> tuple[str, bool]:
        mine.append(claim(options, name))
        return str(mine[0].path), mine[0].resumed

    path, resumed = processes.first(claim_folder)
    with mine[0] if mine else RunFolder(Path(path), resumed=resumed) as folder:
        yield folder


@contextmanager
def quiet_event_writer() -> Iterator[None]:
    """Print no traceback of TensorBoard's writer thread on an `OSError`: the checkpoint on the same disk fails as well."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not (isinstance(args.exc_value, OSError) and type(args.thread).__module__.startswith("tensorboard")):
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


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


def train(run: Run, folder: RunFolder, resumed: Resumed | None) -> None:
    """Run the training loop, unless an earlier process has, and put the best weights back."""
    keeper, checkpoint = run.checkpoints, None
    if resumed is not None and resumed.finished:
        keeper.best, checkpoint = resumed.state["best"], resumed.checkpoint
        run.summary |= {"seconds": round(resumed.state["seconds"], 2), "epochs": resumed.state["epochs"]}
    else:
        try:
            with lightning_errors():
                run.trainer.fit(run.task, run.plan.data, ckpt_path=None if resumed is None else str(resumed.path))
        except Exception:
            if not checkpoint_files(keeper.folder):
                folder.discard()
            raise
        run.summary |= {"seconds": round(keeper.seconds, 2), "epochs": run.trainer.current_epoch}
    if resumed is not None and not keeper.finished:  # there was no step left
        set_counters(run.trainer, resumed.state["epochs"], resumed.state["logged_steps"])
    run.summary |= {"metrics": {}, "device": device_name(run.trainer), "checkpoint": None}
    if best := run.trainer.strategy.broadcast(keeper.best):
        checkpoint = read_best(folder.path, best)
        run.summary["validation"] = {"metric": best["monitor"].removeprefix("val_"), "mode": keeper.mode}
        run.summary["validation"] |= {"value": finite(best["score"]), "epoch": best["epoch"], "step": best["step"]}
        run.summary["checkpoint"] = str(keeper.folder / best["file"])
    if checkpoint is not None:
        run.task.load_state_dict(checkpoint["state_dict"])


def write_model(run: Run) -> None:
    """Write the model folder, in process 0."""
    if run.trainer.is_global_zero:
        save(run.folder / "model", run.task.net, run.record["config"], run.summary, run.record["files"], run.sparse)


def device_name(trainer: pl.Trainer) -> str:
    """Name the device, such as ``cpu`` or ``1 x NVIDIA H200``."""
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return device.type if trainer.world_size == 1 else f"{trainer.world_size} x {device.type}"
    return f"{trainer.world_size} x {torch.cuda.get_device_name(device)}"
