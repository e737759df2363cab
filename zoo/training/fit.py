"""Train and test a network in a run folder that can be repeated, resumed and shared."""

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch

from zoo import registry
from zoo.checkpoint import ModelConfig, save
from zoo.checkpoint.folder import network_options
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
    RunData,
    build_network,
    build_task,
    load_teacher,
    model_config,
    read_data,
    summarize,
    with_network,
)
from zoo.training.options import Fit, check_not_tickets
from zoo.training.processes import Processes, Signals, is_first_process, join
from zoo.training.quantization import evaluate_quantized
from zoo.training.resolve import NO_OBJECTS, Objects, Plan, plan_run, take_objects
from zoo.training.resume import Resumed, check_unchanged, checkpoint_files, position_of, read_checkpoint, resume, set_counters
from zoo.training.summary import Summary, print_summary
from zoo.training.threads import choose_threads, restored_threads
from zoo.training.trainer import check_trainer, device_name, lightning_errors, make_trainer, restore_batch_size

NOTHING_SAVED = "no checkpoint was written yet, so nothing is saved"


def fit(*, verbose: bool = True, **options: object) -> dict[str, Any]:
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


def lottery(**options: object) -> dict[str, Any]:
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
    """The parts of a run that is ready to train."""

    plan: Plan
    folder: Path
    data: RunData
    task: Task
    trainer: pl.Trainer
    checkpoints: Checkpoints
    config: ModelConfig
    summary: Summary  # what is known before training
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
    plan = plan_run(options, objects)
    if (summary := finished_run(plan.config, options.run_dir, options.resume)) is not None:
        return summary
    with start_session(plan) as session:
        return train_run(plan, session, extension or Extension())


@contextmanager
def start_session(plan: Plan) -> Iterator[Session]:
    """Start the processes of a command (`zoo.training.processes.join`), handle signals, and set the matmul precision."""
    settings, before = check_trainer(plan.options.trainer), torch.get_float32_matmul_precision()
    processes = join(settings, plan.needs_order, plan.options.ddp_timeout)
    torch.set_float32_matmul_precision(plan.options.matmul_precision or before)
    try:
        with Signals() as signals:
            yield Session(settings, processes, signals)
    finally:
        torch.set_float32_matmul_precision(before)
    processes.end()


def train_run(plan: Plan, session: Session, extension: Extension) -> Summary:
    """Load the data, build the network and its task, train, and test; return the summary."""
    options, processes = plan.options, session.processes
    with (
        claim_on_rank_0(plan.config, options.run_dir, options.resume, processes) as folder,
        quiet_event_writer(),
        restored_threads(),
        report_interruption(folder, extension.resume_text),
        processes.report_lost(lambda: extension.resume_text(folder.path, False) or NOTHING_SAVED),
    ):
        try:
            resumed = resume(plan.config, plan.fixed, folder.path, processes.count) if folder.resumed else None
            run = set_up(plan, session, resumed, folder.path, extension)
            extension.prepare(run)
        except BaseException:
            folder.discard()
            raise
        summary = train(run, folder, resumed)
        summary = replace(summary, **processes.first(lambda: extension.finish(run, resumed)))
        with report_interruption(folder, extension.resume_text, trained=True):
            summary = test(run, summary)
        if session.settings.get("fast_dev_run"):
            folder.discard()
            return replace(summary, run_dir=None)
    return summary


def set_up(plan: Plan, session: Session, resumed: Resumed | None, folder: Path, extension: Extension) -> Run:
    """Load the data, build the network, its task and the Trainer, and write config.yaml."""
    options, (settings, processes, signals) = plan.options, session
    checkpoints = Checkpoints(folder, plan.fixed, plan.task.monitor, signals, options.keep, options.checkpoint_every)
    trainer = make_trainer(settings, folder, checkpoints, resumed, options)
    signals.replace_lightning(trainer)
    pl.seed_everything(options.seed if extension.weight_seed is None else extension.weight_seed, verbose=False)
    restore_batch_size(plan.data, settings, resumed)
    processes.prepare(plan.data)
    data = read_data(plan)
    check_unchanged(folder, resumed, getattr(data.info, "sha256", None))
    net = build_network(plan, data)
    task = build_task(plan, data, net)
    if plan.teacher is not None:
        trainer.callbacks.append(load_teacher(plan, plan.teacher, data))  # type: ignore[attr-defined]
    check_order(getattr(net, "has_memory", False), trainer.world_size)
    if trainer.strategy.root_device.type == "cpu":
        choose_threads(net, data.info, options.batch_size)
    config = with_network(model_config(plan, data), plan, net)
    resumed_from = None if resumed is None else str(resumed.path)
    summary = replace(summarize(plan, data, net, config), run_dir=str(folder), resumed_from=resumed_from)
    sizes = network_options(config, data.info) if plan.objects.have_specs else None
    checkpoints.model = {"config": config.to_json(), "files": data.files, "network": sizes, "summary": summary.to_json()}
    if task is not plan.objects.task:
        task.save_hyperparameters(dict(task.hparams), logger=False)  # the options of the run are logged in their place
    if trainer.is_global_zero:
        start_files(plan, folder, trainer if resumed is None else None)
    if options.compile:
        compile_in_place(net)  # which keeps the names in its state_dict
    return Run(plan, folder, data, task, trainer, checkpoints, config, summary, extension.sparse)


def start_files(plan: Plan, folder: Path, trainer: pl.Trainer | None) -> None:
    """Write config.yaml, remove the last files of a finished run, and log the options of a new run."""
    for name in ("summary.json", CHECKSUMS):
        (folder / name).unlink(missing_ok=True)
    write_config(folder, plan.config)
    for logger in () if trainer is None else trainer.loggers:
        logger.log_hyperparams(plan.config)


def train(run: Run, folder: RunFolder, resumed: Resumed | None) -> Summary:
    """Run the training loop, unless the resumed checkpoint has finished it, and load the best weights; return the summary."""
    checkpoints, checkpoint = run.checkpoints, None
    if resumed is not None and resumed.finished:
        checkpoints.best, checkpoint = resumed.state["best"], resumed.checkpoint
        seconds, epochs = resumed.state["seconds"], resumed.state["epochs"]
    else:
        try:
            with lightning_errors():
                run.trainer.fit(run.task, run.data.module, ckpt_path=None if resumed is None else str(resumed.path))
        except Exception:
            if not checkpoint_files(checkpoints.folder):
                folder.discard()
            raise
        seconds, epochs = checkpoints.seconds, run.trainer.current_epoch
    if resumed is not None and not checkpoints.finished:  # no step was left to train
        set_counters(run.trainer, resumed.state["epochs"], resumed.state["logged_steps"])
    summary = replace(run.summary, seconds=round(seconds, 2), epochs=epochs, device=device_name(run.trainer))
    if best := run.trainer.strategy.broadcast(checkpoints.best):
        checkpoint = read_checkpoint(checkpoints.folder / best["file"])
        chosen: dict[str, Any] = {"metric": best["monitor"].removeprefix("val_"), "mode": checkpoints.mode}
        chosen |= {"value": finite(best["score"]), "epoch": best["epoch"], "step": best["step"]}
        summary = replace(summary, validation=chosen, checkpoint=str(checkpoints.folder / best["file"]))
    if checkpoint is not None:
        run.task.load_state_dict(checkpoint["state_dict"])
    return summary


def test(run: Run, summary: Summary) -> Summary:
    """Save the model, test it if there is a test split, save it again with the metrics, and write summary.json."""
    save_model(run, summary)
    if getattr(run.data.module, "has_test", True):
        with lightning_errors():
            measured = run.trainer.test(run.task, run.data.module, verbose=False)
            for metrics in measured:  # empty with limit_test_batches=0
                values = {name.removeprefix("test_"): finite(value) for name, value in metrics.items()}
                summary = replace(summary, metrics=values, undefined=run.task.test_metrics.undefined())
                if (format := run.plan.options.quantize_aware) is not None:
                    summary = replace(summary, quantized=evaluate_quantized(run.trainer, run.task, run.data.module, format))
        save_model(run, summary)
    if run.trainer.is_global_zero:
        write_summary(run.folder, summary)
    return summary


def save_model(run: Run, summary: Summary) -> None:
    """Save the model folder on rank 0."""
    if run.trainer.is_global_zero:
        save(run.folder / "model", run.task.net, run.config, summary.to_json(), run.data.files, run.sparse)


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
