"""The options of the verbs that train and measure; the command line, config files and `zoo.fit` all read these classes.

This module imports no torch, so that the command line can check a call before it waits for one.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from zoo.errors import InputError
from zoo.registry.signatures import build_options as build
from zoo.tasks.decoding.options import Decoding

__all__ = ["TRAINER_ARGUMENTS", "Average", "Decoding", "DistillationOptions", "Fit", "Info", "Optimizer", "Schedule", "build"]

OBJECT = "(an object given in Python)"
"""The end of the name that stands for an object in place of a spec."""
# fmt: off
TRAINER_ARGUMENTS = (
    "accelerator", "strategy", "devices", "num_nodes", "precision", "logger", "callbacks", "fast_dev_run", "max_epochs",
    "min_epochs", "max_steps", "min_steps", "max_time", "limit_train_batches", "limit_val_batches", "limit_test_batches",
    "limit_predict_batches", "overfit_batches", "val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps",
    "log_every_n_steps", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "accumulate_grad_batches",
    "gradient_clip_val", "gradient_clip_algorithm", "deterministic", "benchmark", "inference_mode", "use_distributed_sampler",
    "profiler", "detect_anomaly", "barebones", "plugins", "sync_batchnorm", "reload_dataloaders_every_n_epochs",
    "default_root_dir", "enable_autolog_hparams", "model_registry",
)
# fmt: on
"""The arguments of Lightning's Trainer, listed because importing it takes seconds; a test compares them with its signature."""
FREE = {"num_workers", "ddp_timeout", "checkpoint_every", "trainer.enable_progress_bar", "jobs", "on", "cpus", "gpus"}
"""Options that do not affect results, by the names of their flags."""
_NETWORK = ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors", "task")
_TRAINING = ("init_from", "teacher", "distillation", "optimizer", "schedule", "label_smoothing", "ema", "batch_size", "seed")
FIXED = (*_NETWORK, *_TRAINING)
"""Options that must not change on resume."""


@dataclass
class Optimizer:
    """How weights are updated.

    Args:
        name: Any optimizer timm knows, such as adamw, sgd or lion.
        lr: Peak learning rate; by default what the backbone recommends.
        weight_decay: Decay of matrices; norms and biases are not decayed.
        betas: Decay of the running means of gradients and of their squares, two numbers; by default the optimizer's own.
        eps: What is added to a denominator; by default the optimizer's own.
        mup_base_width: Fan-in at which real matrices have the rate lr; other matrices follow their fan-in and algebra.
    """

    name: str = "adamw"
    lr: float | None = None
    weight_decay: float = 0.05
    betas: tuple[float, float] | None = None
    eps: float | None = None
    mup_base_width: int | None = None


@dataclass
class Schedule:
    """How the learning rate moves, step by step.

    Args:
        name: cosine, linear (both fall to the floor), inverse_sqrt or constant.
        warmup: Share of all steps in which it first rises from zero.
        floor: Share of the peak that cosine and linear end at.
    """

    name: str = "cosine"
    warmup: float = 0.1
    floor: float = 0.0


@dataclass
class DistillationOptions:
    """How a network learns from a teacher (Hinton, Vinyals and Dean 2015).

    Args:
        temperature: Divides the logits of both; above 1 the teacher's small probabilities count more.
        weight: Share of the teacher in the loss, from 0 to 1; the rest is that of the labels.
    """

    temperature: float = 4.0
    weight: float = 0.9


@dataclass
class Fit:
    """One training run.

    Args:
        backbone: Spec of the network, such as vit or "vit(dim=128, depth=6)".
        algebra: Spec of the algebra; zoo list algebras shows what is installed.
        data: Spec of the data set; by default the embedded one the backbone recommends.
        scope: Which matrices are hypercomplex: all, or roles joined by +, such as attention or all+head.
        init: Initialisation of the matrices: variance, glorot or polar.
        embedding: Spec of the word embedding; by default what the algebra advises, or table.
        vectors: File of pretrained word vectors (GloVe or word2vec) that the embedding starts from.
        init_from: Source of the weights that training starts from, of the same backbone and algebra; --from for short.
        teacher: Source of a trained model whose probabilities are learned beside the labels: a run, a model folder, a name.
        distillation: How a network learns from a teacher.
        folds: Cross-validate in so many runs, for data without a split; each fold is tested once.
        task: What to learn, such as seq2seq, where a backbone can learn several; by default what the data are for.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
        label_smoothing: Share of the probability that training spreads over all answers; by default what the task advises.
        metrics: Further metrics, by the names of torchmetrics classes, such as MulticlassCalibrationError.
        ema: Decay, such as 0.999, of a running mean of the weights, which is what is measured and kept.
        keep: Training checkpoints that stay for zoo average: the last so many, of every epoch, validation or number of steps.
        decoding: How texts are written when they are tested.
        batch_size: Examples per step; by default what the backbone recommends, mostly 32.
        num_workers: Processes that load data; 0 loads in the main one.
        seed: Decides weights, order and augmentation; never the split of the data.
        compile: Compile the network with torch.compile; the first steps take longer.
        kernel: auto, or block, factored or (on CUDA) triton for all matrices; auto is planned from numbers of the machine.
        matmul_precision: Of float32 matrix products: highest, high (TF32 on GPUs that have it) or medium.
        ddp_timeout: Seconds that one of several processes waits for the others, before it ends the run.
        run_dir: Folder of the run; by default a new one in runs/ with a telling name.
        checkpoint_every: Time between training checkpoints within an epoch (30s, 10m, 1.5h), or steps (500steps), or never.
        resume: Run to go on with, such as runs/NAME, in its folder; or auto, the newest unfinished one of this configuration.
        trainer: Arguments of Lightning's Trainer, such as --trainer.max_epochs.
    """

    backbone: str
    algebra: str
    data: str | None = None
    scope: str = "all"
    init: str = "variance"
    embedding: str | None = None
    vectors: str | None = None
    init_from: str | None = None
    teacher: str | None = None
    distillation: DistillationOptions = field(default_factory=DistillationOptions)
    folds: int | None = None
    task: str | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    label_smoothing: float | None = None
    metrics: tuple[str, ...] = ()
    ema: float | None = None
    keep: int = 1
    decoding: Decoding = field(default_factory=Decoding)
    batch_size: int | None = None
    num_workers: int = 0
    seed: int = 0
    compile: bool = False
    kernel: str = "auto"
    matmul_precision: str | None = None
    ddp_timeout: float = 1800.0
    run_dir: str | None = None
    checkpoint_every: str = "10m"
    resume: str | None = None
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass
class Average:
    """The mean of a run's last weights.

    Args:
        last: Training checkpoints, the last so many, that the mean is taken of.
        out: Folder of the new model; by default average in the run's folder.
        batch_size: Examples per step when it is measured.
        num_workers: Processes that load data; 0 loads in the main one.
        trainer: Arguments of Lightning's Trainer, such as --trainer.accelerator.
    """

    last: int = 8
    out: str | None = None
    batch_size: int = 64
    num_workers: int = 0
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass
class Prune:
    """A trained network made smaller, and trained further.

    Args:
        ratio: Share of the heads, hidden units and channels that every layer loses, between 0 and 1.
        data: Spec of the data set to measure on; by default what the model was trained on.
        out: Folder of the smaller model; by default pruned-RATIO in the run's folder, or MODEL-pruned-RATIO.
        epochs: Epochs of fine-tuning, with the data and the recipe of the run; 0 for none.
        lr: Peak learning rate of fine-tuning; by default that of the run.
        run_dir: Folder of the run that fine-tunes; by default RUN-pruned-RATIO.
        batch_size: Examples per step when a model is measured.
        num_workers: Processes that load data; 0 loads in the main one.
        trainer: Arguments of Lightning's Trainer, such as --trainer.accelerator.
    """

    ratio: float = 0.5
    data: str | None = None
    out: str | None = None
    epochs: int = 0
    lr: float | None = None
    run_dir: str | None = None
    batch_size: int = 64
    num_workers: int = 0
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass
class Convert:
    """A trained network over the reals, projected onto an algebra.

    Args:
        source: The trained network: timm/NAME, a run, a model folder, or a name of zoo list checkpoints; --from for short.
        algebra: Spec of the algebra.
        to: Folder of the new model.
        scope: Which matrices are hypercomplex: all, or roles joined by +; by default as in the trained network.
        data: Spec of the data set that a model of timm gets a new head for; by default it keeps its own.
        format: Spec of an importer for weights of another library, such as gpt2 or speechbrain; see zoo list importers.
    """

    source: str = ""
    algebra: str = ""
    to: str = ""
    scope: str | None = None
    data: str | None = None
    format: str | None = None


@dataclass
class Info:
    """A network to count.

    Args:
        backbone: Spec of the network.
        algebra: Spec of the algebra.
        data: Spec of the data set that decides input and output sizes; by default the one the backbone recommends.
        scope: Which matrices are hypercomplex: all, or roles joined by +.
        embedding: Spec of the word embedding; by default what the algebra advises, or table.
        task: What it is to learn, such as seq2seq, where a backbone can learn several.
    """

    backbone: str
    algebra: str
    data: str | None = None
    scope: str = "all"
    embedding: str | None = None
    task: str | None = None


@dataclass
class Bench(Info):
    """A network to time beside its twin over the reals.

    Args:
        batch_size: Examples in the batch.
        kernel: auto, or block, factored or (on CUDA) triton for all matrices.
        rounds: Steps of each network, in turns.
    """

    backbone: str = ""
    algebra: str = ""
    batch_size: int = 64
    kernel: str = "auto"
    rounds: int = 15


def check_single(run: str) -> None:
    """Refuse to resume a lottery experiment, or one of its rounds, as a single run: it would train without the masks."""
    folder = Path(run).expanduser().absolute()
    for experiment in (folder, *folder.parents[2:3]):  # a round is three folders below its experiment
        if (experiment / "lottery.json").exists():
            text = f"--resume {run}: this is a lottery experiment; resume it with zoo lottery --resume {experiment}"
            raise InputError(text, code="conflict")


def is_object(name: str | None) -> bool:
    """Return whether an option stands for an object that no spec names."""
    return name is not None and name.endswith(OBJECT)


def config_values(options: Any) -> dict[str, Any]:
    """Return the content of config.yaml for the options of a run or an experiment."""
    values = {key: value for key, value in asdict(options).items() if key not in ("run_dir", "resume") and value is not None}
    values["trainer"] = {key: value for key, value in options.trainer.items() if value is not None}
    return dict(yaml.safe_load(yaml.dump(values, Dumper=_Dumper, sort_keys=False)))


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names of their flags."""
    named: dict[str, Any] = {}
    for name, value in values.items():
        named |= {f"{name}.{part}": item for part, item in value.items()} if isinstance(value, Mapping) else {name: value}
    return named


def decisive(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that affect results, by the names of their flags."""
    return {name: value for name, value in flat(values).items() if name not in FREE}


def fixed_options(options: Fit) -> dict[str, Any]:
    """Return the options that must not change on resume, by the names of their flags."""
    values = asdict(replace(options, trainer={}))  # the Trainer's may be objects, and large
    return flat({name: values[name] for name in values if name in FIXED})


def parse_interval(text: str) -> tuple[float | None, int]:
    """Return the seconds, or else the steps, between two checkpoints; neither for ``never``.

    Raises:
        InputError: If it is neither a time nor a number of steps.

    >>> parse_interval("10m"), parse_interval("500steps"), parse_interval("never")
    ((600.0, 0), (None, 500), (None, 0))
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|steps?)", text.strip())
    if text == "never":
        return None, 0
    if match is None or not float(match[1]) or (match[2].startswith("step") and "." in match[1]):
        raise InputError(f"checkpoint_every={text}: use a time such as 30s, 10m or 1.5h, steps such as 500steps, or never")
    if match[2].startswith("step"):
        return None, int(match[1])
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]], 0


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Write an object that Python gave, such as a callback, as its type: to be read, and refused by ``zoo fit -c``."""

    def represent_object(self, value: object) -> yaml.Node:
        return self.represent_str(f"{type(value).__module__}.{type(value).__qualname__} {OBJECT}")


_Dumper.add_multi_representer(object, _Dumper.represent_object)
