"""Train and test a network in a run folder that can be repeated, resumed and shared."""

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch

from zoo import registry
from zoo.checkpoint import ModelConfig, save
from zoo.checkpoint.manifest import read_manifest
from zoo.data.loader import check_order
from zoo.errors import LOGGERS, InputError, Interrupted, Stop, quiet
from zoo.nn.batching import compile_in_place
from zoo.registry import build_options
from zoo.registry.resolution import named_options
from zoo.tasks.base import Task
from zoo.training.checkpoints import Checkpoints
from zoo.training.folder import (
    CHECKSUMS,
    RunFolder,
    claim_on_rank_0,
    finished_run,
    finite,
    read_run_config,
    write_config,
    write_summary,
)
from zoo.training.network import (
    build_network,
    build_task,
    load_teacher,
    model_config,
    network_keywords,
    print_summary,
    read_token_vectors,
    summarize,
)
from zoo.training.options import Fit, check_not_tickets
from zoo.training.processes import Processes, Signals, is_first_process, join
from zoo.training.quantization import evaluate_quantized
from zoo.training.resolve import NO_OBJECTS, Objects, Plan, check_data, plan_run, take_objects
from zoo.training.resume import Resumed, check_unchanged, checkpoint_files, position_of, read_checkpoint, resume, set_counters
from zoo.training.summary import Summary
from zoo.training.threads import choose_threads, restored_threads
from zoo.training.trainer import check_trainer, lightning_errors, make_trainer, restore_batch_size

NOTHING_SAVED = "no checkpoint was written yet, so nothing is saved"


def fit(*, verbose: bool = True, **options: Any) -> dict[str, Any]:
    """Train a network over an algebra, with the options, run folder and summary of ``zoo fit``.

    Args:
        verbose: Print progress, the table of results and the next commands, as the command line does.
        options: See `zoo.training.options.Fit`; ``optimizer`` and ``schedule`` are specs or dicts, ``trainer`` is a dict, as
            in ``zoo.fit(backbone="vit", algebra="real", optimizer="sgd(lr=0.1)", trainer={"max_epochs": 5})``. Objects may
            replace specs: ``algebra`` may be an `Algebra`, ``backbone`` a network or a factory ``(layers, **info)``, ``data`` a
            data module and ``task`` a `Task` or a subclass. A network is trained unchanged, so ``algebra`` can be left out.
            config.yaml cannot repeat a run with objects that have no spec, and `zoo.load` of the model needs them again.

    Returns:
        The content of summary.json.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
    """
    objects, named = take_objects(options)
    check_not_tickets(named.get("resume"))
    built = build_options(Fit, _merge_resumed(named))
    if not verbose:
        built.trainer = {"enable_progress_bar": False, **built.trainer}
    if built.folds is not None and objects != Objects():
        raise InputError("folds: use specs instead of objects, because every fold builds its own (zoo.register gives a name)")
    with quiet(*LOGGERS):
        summary = run_fit(built, objects)
    if verbose and is_first_process():
        print_summary(summary)
    return summary.to_json()


def lottery(**options: Any) -> dict[str, Any]:
    """Train rounds of lottery tickets, with the options, folder and results of ``zoo lottery``.

    Args:
        options: See `zoo_experiments.options.Lottery`; ``pruning`` is a dict, like those of `fit`. Only callbacks and
            loggers may be objects, and they are shared by all rounds; everything else is a spec.

    Returns:
        The content of lottery.json, and ``run_dir``.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
    """
    objects, named = take_objects(options)
    if objects != Objects():
        raise InputError("use specs instead of objects, because every round builds its own (zoo.register gives a name)")
    with quiet(*LOGGERS):
        experiment = registry.load(registry.resolve("zoo.experiments", "lottery")[0])
        return experiment(_merge_resumed(named))  # type: ignore[no-any-return]


def _merge_resumed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options into those of the run that ``resume`` names, if it names one."""
    if options.get("resume") in (None, "auto"):
        return dict(options)
    if options.get("run_dir") is not None:
        raise InputError("run_dir and resume exclude each other: a run resumes in its own folder", code="conflict")
    merged = read_run_config(Path(options["resume"]).expanduser())
    for name, value in options.items():
        value = named_options(value) if name in ("optimizer", "schedule") and isinstance(value, str) else value
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = {**merged[name], **value} if both else value
    return merged


@dataclass
class Run:
    """The parts of a run that is ready to train; ``files`` are the additional files of its model folder."""

    plan: Plan
    folder: Path
    task: Task
    trainer: pl.Trainer
    checkpoints: Checkpoints
    config: ModelConfig
    files: dict[str, str]
    summary: Summary
    sparse: bool


class Session(NamedTuple):
    """What all runs of a command share: checked Trainer arguments, processes and signal handlers."""

    settings: dict[str, Any]
    processes: Processes
    signals: Signals


class Extension:
    """Hooks of an experiment into one of its runs."""

    weight_seed: int | None = None
    """Seed of the initial weights; by default that of the run."""
    sparse = False
    """Whether to save only nonzero weights."""

    def prepare(self, run: Run) -> None:
        """Prepare a run before training."""

    def finish(self, run: Run, resumed: Resumed | None) -> dict[str, Any]:
        """Return fields of the summary to change, after training and before the model is saved."""
        return {}

    def resume_text(self, folder: Path, trained: bool) -> str | None:
        """Describe what is saved of an interrupted run and the command that resumes it; None if nothing is saved."""
        name, paths = shlex.quote(str(folder)), checkpoint_files(folder / "checkpoints")
        if trained and (folder / "model").exists():
            if read_manifest(folder / "model").get("metrics") and paths:
                return f"the model is saved and tested; finish the run with: zoo fit --resume {name}"
            return f"the model is saved but not tested; test it with: zoo test {name}"
        if not paths:
            return None
        return f"progress up to {position_of(paths[-1])} is saved; resume with: zoo fit --resume {name}"


def run_fit(options: Fit, objects: Objects = NO_OBJECTS, extension: Extension | None = None) -> Summary:
    """Train and test a network, and return its summary.

    The run folder contains config.yaml, metrics.csv, tensorboard/, checkpoints/, model/ (see `zoo.checkpoint`) and
    summary.json. The model has the weights of the best validation (`zoo.tasks.Task.monitor`). It is saved before the test, and
    again with the test metrics. Ctrl-C and SIGTERM raise `Interrupted` after a checkpoint is saved.
    """
    if options.folds is not None:
        return registry.load(registry.resolve("zoo.experiments", "folds")[0])(options)  # type: ignore[no-any-return]
    if options.jobs != 1:
        raise InputError("--jobs trains folds in parallel: add --folds", code="conflict")
    planned = plan_run(options, objects)
    if (summary := finished_run(planned.config, options.run_dir, options.resume)) is not None:
        return summary
    with start_session(planned) as session:
        return train_run(planned, session, extension or Extension())


@contextmanager
def start_session(planned: Plan) -> Iterator[Session]:
    """Start the processes of a command (`zoo.training.processes.join`), handle signals, and set the matmul precision."""
    settings, before = check_trainer(planned.options.trainer), torch.get_float32_matmul_precision()
    in_order = "token_stream" in planned.inputs or getattr(planned.objects.net, "has_memory", False)
    processes = join(settings, in_order, planned.options.ddp_timeout)
    torch.set_float32_matmul_precision(planned.options.matmul_precision or before)
    try:
        with Signals() as signals:
            yield Session(settings, processes, signals)
    finally:
        torch.set_float32_matmul_precision(before)
    processes.end()


def train_run(planned: Plan, session: Session, extension: Extension) -> Summary:
    """Train, save and test a run; return its summary."""
    options, (settings, processes, _) = planned.options, session
    with (
        claim_on_rank_0(planned.config, options.run_dir, options.resume, processes) as folder,
        quiet_event_writer(),
        restored_threads(),
        report_interruption(folder, extension.resume_text),
        processes.report_lost(lambda: extension.resume_text(folder.path, False) or NOTHING_SAVED),
    ):
        try:
            resumed = resume(planned.config, planned.fixed, folder.path, processes.count) if folder.resumed else None
            run = set_up(planned, session, resumed, folder.path, extension)
            extension.prepare(run)
        except BaseException:
            folder.discard()
            raise
        train(run, folder, resumed)
        for name, value in processes.first(lambda: extension.finish(run, resumed)).items():
            setattr(run.summary, name, value)
        with report_interruption(folder, extension.resume_text, trained=True):
            test(run)
        if settings.get("fast_dev_run"):
            folder.discard()
            run.summary.run_dir = None
    return run.summary


def set_up(planned: Plan, session: Session, resumed: Resumed | None, folder: Path, extension: Extension) -> Run:
    """Build the Trainer, data, network and task of a run, and write config.yaml."""
    options, data, (settings, processes, signals) = planned.options, planned.data, session
    intervals = options.keep, options.checkpoint_every
    checkpoints = Checkpoints(folder, planned.fixed, planned.task.monitor, signals, *intervals)
    trainer = make_trainer(settings, folder, checkpoints, resumed, options)
    signals.replace_lightning(trainer)
    pl.seed_everything(options.seed if extension.weight_seed is None else extension.weight_seed, verbose=False)
    restore_batch_size(data, settings, resumed)
    processes.prepare(data)
    vectors = None
    if getattr(data, "info", None) is not None:
        check_data(planned.inputs, options, data)
        vectors = read_token_vectors(data, options.vectors)
        check_unchanged(folder, resumed, getattr(data.info, "sha256", None))
    net = build_network(planned, vectors)
    task = build_task(planned, net)
    if trainer.strategy.root_device.type == "cpu":
        choose_threads(net, getattr(data, "info", None), options.batch_size)
    if task is not planned.objects.task:
        task.save_hyperparameters(dict(task.hparams), logger=False)  # the options of the run are logged below
    if options.teacher is not None:
        teacher = load_teacher(options.teacher, options.distillation, data)
        trainer.callbacks.append(teacher)  # type: ignore[attr-defined]
    check_order(getattr(net, "has_memory", False), trainer.world_size)
    config, files = model_config(planned, net), dict(getattr(data, "files", {}))
    summary = summarize(planned, net, vectors, str(folder), None if resumed is None else str(resumed.path))
    checkpoints.model = {"config": config.to_json(), "files": files, "network": network_keywords(planned)}
    checkpoints.model |= {"summary": summary.to_json()}
    if trainer.is_global_zero:
        for name in ("summary.json", CHECKSUMS):  # if a finished run is trained further
            (folder / name).unlink(missing_ok=True)
        write_config(folder, planned.config)
        for logger in trainer.loggers if resumed is None else ():
            logger.log_hyperparams(planned.config)
    if options.compile:
        compile_in_place(net)  # which keeps the names in its state_dict
    return Run(planned, folder, task, trainer, checkpoints, config, files, summary, extension.sparse)


def train(run: Run, folder: RunFolder, resumed: Resumed | None) -> None:
    """Run the training loop, unless the resumed checkpoint has finished it, and load the best weights."""
    checkpoints, checkpoint, summary = run.checkpoints, None, run.summary
    if resumed is not None and resumed.finished:
        checkpoints.best, checkpoint = resumed.state["best"], resumed.checkpoint
        summary.seconds, summary.epochs = round(resumed.state["seconds"], 2), resumed.state["epochs"]
    else:
        try:
            with lightning_errors():
                run.trainer.fit(run.task, run.plan.data, ckpt_path=None if resumed is None else str(resumed.path))
        except Exception:
            if not checkpoint_files(checkpoints.folder):
                folder.discard()
            raise
        summary.seconds, summary.epochs = round(checkpoints.seconds, 2), run.trainer.current_epoch
    if resumed is not None and not checkpoints.finished:  # no step was left to train
        set_counters(run.trainer, resumed.state["epochs"], resumed.state["logged_steps"])
    summary.device = device_name(run.trainer)
    if best := run.trainer.strategy.broadcast(checkpoints.best):
        checkpoint = read_checkpoint(checkpoints.folder / best["file"])
        summary.validation = {"metric": best["monitor"].removeprefix("val_"), "mode": checkpoints.mode}
        summary.validation |= {"value": finite(best["score"]), "epoch": best["epoch"], "step": best["step"]}
        summary.checkpoint = str(checkpoints.folder / best["file"])
    if checkpoint is not None:
        run.task.load_state_dict(checkpoint["state_dict"])


def test(run: Run) -> None:
    """Save the model, test it if there is a test split, save it again with the metrics, and write summary.json."""
    save_model(run)
    if getattr(run.plan.data, "has_test", True):
        with lightning_errors():
            measured = run.trainer.test(run.task, run.plan.data, verbose=False)
            for metrics in measured:  # empty with limit_test_batches=0
                run.summary.metrics = {name.removeprefix("test_"): finite(value) for name, value in metrics.items()}
                run.summary.undefined = run.task.test_metrics.undefined()
                if (format := run.plan.options.quantize_aware) is not None:
                    run.summary.quantized = evaluate_quantized(run.trainer, run.task, run.plan.data, format)
        save_model(run)
    if run.trainer.is_global_zero:
        write_summary(run.folder, run.summary)


def save_model(run: Run) -> None:
    """Save the model folder on rank 0."""
    if run.trainer.is_global_zero:
        save(run.folder / "model", run.task.net, run.config, run.summary.to_json(), run.files, run.sparse)


@contextmanager
def report_interruption(
    folder: RunFolder, resume_text: Callable[[Path, bool], str | None], trained: bool = False
) -> Iterator[None]:
    """Add what is saved and how to resume (see `Extension.resume_text`) to the error of a signal or a full disk."""
    try:
        yield
    except (Stop, SystemExit) as stop:
        text = resume_text(folder.path, trained)
        if text is None:
            folder.discard()
        raise Interrupted(f"stopped; {text or NOTHING_SAVED}", getattr(stop, "signum", signal.SIGINT)) from stop
    except OSError as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, OSError):  # stdout is closed, or already reported
            raise
        text, path = resume_text(folder.path, trained), error.filename or folder.path
        if text is None:
            error.filename = str(path)
            raise
        if trained and not (folder.path / "model").exists():
            text += f", or save the model with: zoo recover {shlex.quote(str(folder.path))}"
        raise OSError(error.errno, f"{error.strerror or error} ({path}); {text}") from error


@contextmanager
def quiet_event_writer() -> Iterator[None]:
    """Suppress tracebacks of an `OSError` in TensorBoard's writer thread; writing the next checkpoint raises it as well."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not (isinstance(args.exc_value, OSError) and type(args.thread).__module__.startswith("tensorboard")):
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def device_name(trainer: pl.Trainer) -> str:
    """Describe the devices of a Trainer, such as ``cpu`` or ``1 x NVIDIA H200``."""
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return device.type if trainer.world_size == 1 else f"{trainer.world_size} x {device.type}"
    return f"{trainer.world_size} x {torch.cuda.get_device_name(device)}"
