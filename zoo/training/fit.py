"""Train and test a network in a run folder that can be repeated, resumed and shared."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from zoo import registry
from zoo.checkpoint import ModelConfig
from zoo.checkpoint import save as write_model
from zoo.checkpoint.manifest import read_manifest
from zoo.checkpoint.run_config import read_run_config
from zoo.data.loader import check_order
from zoo.errors import LOGGERS, InputError, quiet
from zoo.nn.batching import compile_in_place
from zoo.registry import build_options
from zoo.registry.resolution import named_options
from zoo.tasks.base import Task
from zoo.training.checkpoints import Checkpoints
from zoo.training.folder import (
    CHECKSUMS,
    RunFolder,
    finished_run,
    finite,
    write_config,
    write_summary,
)
from zoo.training.network import (
    RunData,
    build_network,
    build_task,
    model_config,
    read_data,
    summarize,
    training_mode,
)
from zoo.training.options import Fit, check_not_tickets
from zoo.training.processes import is_first_process
from zoo.training.quantization import rounded
from zoo.training.resolve import NO_OBJECTS, Objects, Plan, plan_run, take_objects
from zoo.training.resume import Resumed, check_unchanged, checkpoint_files, position_of, read_checkpoint, resume, set_counters
from zoo.training.session import Session, open_folder, report_interruption, start_session
from zoo.training.summary import Summary, print_summary
from zoo.training.threads import choose_threads
from zoo.training.trainer import callbacks_of, device_name, lightning_errors, make_trainer, restore_batch_size


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
    check_not_tickets(options.get("resume"))  # type: ignore[arg-type]
    stored = _resumed_options(options)
    objects, named = take_objects(options, stored)
    built = build_options(Fit, _merged(stored, named))
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
        options: See `zoo_experiments.options.Lottery`; ``pruning`` is a dict, like those of `fit`. Only callbacks
            without a state and loggers may be objects, and they are shared by all rounds; everything else is a spec.

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
        return experiment(_merged(_resumed_options(named), named))  # type: ignore[no-any-return]


def _resumed_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the run that ``resume`` names; none if it names no run."""
    if options.get("resume") in (None, "auto"):
        return {}
    if options.get("run_dir") is not None:
        raise InputError("run_dir and resume exclude each other: a run resumes in its own folder", code="conflict")
    return read_run_config(Path(options["resume"]).expanduser())


def _merged(stored: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options into those of a resumed run."""
    if not stored:
        return dict(options)
    merged = dict(stored)
    for name, value in options.items():
        value = named_options(value) if name in ("optimizer", "schedule") and isinstance(value, str) else value
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = {**merged[name], **value} if both else value
    return merged


@dataclass(frozen=True)
class Run:
    """The parts of a run that is ready to train, and the checkpoint that it resumes from."""

    plan: Plan
    folder: RunFolder
    resumed: Resumed | None
    data: RunData
    task: Task
    trainer: pl.Trainer
    checkpoints: Checkpoints
    config: ModelConfig
    sparse: bool = False


class Extension:
    """Hooks of an experiment into one of its runs."""

    weight_seed: int | None = None
    """Seed of the initial weights; by default that of the run."""
    sparse = False
    """Whether to save only nonzero weights."""

    def prepare(self, run: Run) -> None:
        """Prepare a run before training."""

    def finish(self, run: Run) -> dict[str, Any]:
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


def train_run(plan: Plan, session: Session, extension: Extension) -> Summary:
    """Load the data, build the network and its task, train, evaluate and save; return the summary."""
    options, processes = plan.options, session.processes
    with open_folder(plan.config, options.run_dir, options.resume, processes, extension.resume_text) as folder:
        with folder.discarded_on_error():
            resumed = resume(plan.config, plan.fixed, folder.path, processes.count) if folder.resumed else None
            checkpoints = Checkpoints(
                folder.path, plan.fixed, plan.task.monitor, session.signals, options.keep, options.checkpoint_every
            )
            trainer = make_trainer(session.settings, folder.path, checkpoints, callbacks_of(options), resumed)
            session.signals.replace_lightning(trainer)
            pl.seed_everything(options.seed if extension.weight_seed is None else extension.weight_seed, verbose=False)
            restore_batch_size(plan.data, session.settings, resumed)
            processes.prepare(plan.data)
            data = read_data(plan)
            check_unchanged(folder.path, resumed, data.sha256)
            net = build_network(plan, data)
            task = build_task(plan, data, net)
            if plan.teacher is not None:
                trainer.callbacks.append(plan.teacher.distillation(data.info, data.files))  # type: ignore[attr-defined]
            config = model_config(plan, data, task)
            run = Run(plan, folder, resumed, data, task, trainer, checkpoints, config, extension.sparse)
            summary = start(run, summarize(plan, data, net, config))
            extension.prepare(run)
        summary = train(run, summary)
        summary = replace(summary, **processes.first(lambda: extension.finish(run)))
        with report_interruption(folder, extension.resume_text, trained=True), rounded(task.net, options.quantize_aware):
            save_model(run, summary)  # before the test, which may fail
            summary = evaluate(run, summary)
            save(run, summary)
        if session.settings.get("fast_dev_run"):
            folder.discard()
            return replace(summary, run_dir=None)
    return summary


def start(run: Run, summary: Summary) -> Summary:
    """Start the files of a run, and set up the callbacks and threads for its network; return the summary with its folder."""
    plan, folder, net = run.plan, run.folder.path, run.task.net
    check_order(getattr(net, "has_memory", False), run.trainer.world_size)
    if run.trainer.strategy.root_device.type == "cpu":
        choose_threads(net, run.data.info, plan.options.batch_size)
    resumed_from = None if run.resumed is None else str(run.resumed.path)
    summary = replace(summary, run_dir=str(folder), resumed_from=resumed_from)
    sizes = plan.layers | run.data.sizes if plan.objects.have_specs else None
    model = {"config": run.config.to_json(), "files": run.data.files, "network": sizes, "summary": summary.to_json()}
    run.checkpoints.model = model
    if run.task is not plan.objects.task:
        run.task.save_hyperparameters(dict(run.task.hparams), logger=False)  # the options of the run are logged in their place
    if run.trainer.is_global_zero:
        for name in ("summary.json", CHECKSUMS):  # of a finished run
            (folder / name).unlink(missing_ok=True)
        write_config(folder, plan.config)
        for logger in run.trainer.loggers if run.resumed is None else ():
            logger.log_hyperparams(plan.config)
    if plan.options.compile:
        compile_in_place(net)  # which keeps the names in its state_dict
    return summary


def train(run: Run, summary: Summary) -> Summary:
    """Run the training loop, unless the resumed checkpoint has finished it, and load the best weights; return the summary."""
    checkpoints, checkpoint, resumed = run.checkpoints, None, run.resumed
    if resumed is not None and resumed.finished:
        checkpoints.best, checkpoint = resumed.state["best"], resumed.checkpoint
        seconds, epochs = resumed.state["seconds"], resumed.state["epochs"]
    else:
        try:
            with lightning_errors(), training_mode(run.task):
                run.trainer.fit(run.task, run.data.module, ckpt_path=None if resumed is None else str(resumed.path))
        except Exception:
            if not checkpoint_files(checkpoints.folder):
                run.folder.discard()
            raise
        seconds, epochs = checkpoints.seconds, run.trainer.current_epoch
    if resumed is not None and not checkpoints.finished:  # no step was left to train
        set_counters(run.trainer, resumed.state["epochs"], resumed.state["logged_steps"])
    summary = replace(summary, seconds=round(seconds, 2), epochs=epochs, device=device_name(run.trainer))
    if best := run.trainer.strategy.broadcast(checkpoints.best):
        checkpoint = read_checkpoint(checkpoints.folder / best["file"])
        chosen: dict[str, Any] = {"metric": best["monitor"].removeprefix("val_"), "mode": checkpoints.mode}
        chosen |= {"value": finite(best["score"]), "epoch": best["epoch"], "step": best["step"]}
        summary = replace(summary, validation=chosen, checkpoint=str(checkpoints.folder / best["file"]))
    if checkpoint is not None:
        run.task.load_state_dict(checkpoint["state_dict"])
    return summary


def evaluate(run: Run, summary: Summary) -> Summary:
    """Test the model if there is a test split; return the summary with its metrics."""
    if not getattr(run.data.module, "has_test", True):
        return summary
    with lightning_errors():
        for metrics in run.trainer.test(run.task, run.data.module, verbose=False):  # none with limit_test_batches=0
            values = {name.removeprefix("test_"): finite(value) for name, value in metrics.items()}
            summary = replace(summary, metrics=values, undefined=run.task.test_metrics.undefined())
    return summary


def save(run: Run, summary: Summary) -> None:
    """Save the model again with its test metrics, if any, and write the summary, which marks the run as finished."""
    if summary.metrics:
        save_model(run, summary)
    if run.trainer.is_global_zero:
        write_summary(run.folder.path, summary)


def save_model(run: Run, summary: Summary) -> None:
    """Save the model folder on rank 0."""
    if run.trainer.is_global_zero:
        write_model(run.folder.path / "model", run.task.net, run.config, summary.to_json(), run.data.files, run.sparse)
