"""The options of training and evaluation, for the command line, configuration files and `zoo.fit`.

This module does not import torch, so that the command line can check options quickly.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from zoo.checkpoint.run_config import flat
from zoo.errors import InputError, check_choice, shorten
from zoo.registry.limits import LARGEST, bounded, check_processes
from zoo.registry.resolution import check_fields
from zoo.tasks.options import Decoding, DistillationOptions, Optimizer, Schedule

OBJECT = "(an object given in Python)"
"""Suffix of a name that replaces an object in stored options."""
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
"""The arguments of Lightning's Trainer, listed here because importing it is slow; a test compares them with its signature."""
# fmt: off
TRAINER_INTERVALS = {
    "devices": "[-1, 1024]", "num_nodes": "[1, 10000]", "fast_dev_run": "[0, 1e9]", "max_epochs": "[-1, 1e9]",
    "min_epochs": "[0, 1e9]", "max_steps": "[-1, 1e12]", "min_steps": "[0, 1e12]", "limit_train_batches": "[0, 1e9]",
    "limit_val_batches": "[0, 1e9]", "limit_test_batches": "[0, 1e9]", "limit_predict_batches": "[0, 1e9]",
    "overfit_batches": "[0, 1e9]", "val_check_interval": "(0, 1e9]", "check_val_every_n_epoch": "[1, 1e9]",
    "num_sanity_val_steps": "[-1, 1e9]", "log_every_n_steps": "[0, 1e9]", "accumulate_grad_batches": "[1, 1e6]",
    "gradient_clip_val": "[0, 1e12]", "reload_dataloaders_every_n_epochs": "[0, 1e9]",
}
# fmt: on
"""The intervals of the numbers among these arguments, which Lightning does not check or checks after the run has started."""
SPECS = {"backbone": "backbones", "algebra": "algebras", "embedding": "embeddings", "data": "datasets", "task": "tasks"}
"""Options that are specs, and their entry-point groups."""
MOST_PARAMETERS = 1e9
"""Default limit of the size of a network: 4 GB of float32 weights, 16 GB with gradients and the state of AdamW."""
_NETWORK = ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors", "task")
_TRAINING = ("init_from", "teacher", "distillation", "optimizer", "schedule", "label_smoothing", "ema", "quantize_aware")
FIXED = (*_NETWORK, *_TRAINING, "batch_size", "seed")
"""Options that must not change on resume."""


@dataclass
class Options:
    """Options of a command, which are checked when they are created."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value has the wrong type or is out of range."""
        check_fields(self)


@dataclass
class Fit(Options):
    """One training run.

    Args:
        backbone: Spec of the network, such as vit or "vit(dim=128, depth=6)".
        algebra: Spec of the algebra; zoo list algebras shows what is installed.
        data: Spec of the data set; by default the embedded one recommended by the backbone.
        scope: Which matrices are hypercomplex: all, or roles joined by +, such as attention or all+head.
        init: Initialization of the matrices: variance, glorot or polar.
        embedding: Spec of the word embedding; the default depends on the algebra, mostly table.
        vectors: File of pretrained word vectors (GloVe or word2vec) that initialize the embedding.
        init_from: Source of the initial weights, with the same backbone and algebra; --from for short.
        teacher: Source of a teacher for distillation: a run, a model folder or a name.
        distillation: Options of distillation.
        folds: Number of folds of a cross-validation, for data without a split; each fold is tested once.
        jobs: Parallel folds, each with its share of the cores.
        task: Spec of the task, such as seq2seq; the default depends on the data.
        optimizer: Options of the optimizer.
        schedule: Options of the learning rate schedule.
        label_smoothing: Label smoothing, from 0 to below 1; the default depends on the task.
        metrics: Additional metrics: names of torchmetrics classes, such as MulticlassCalibrationError.
        ema: Decay of an exponential moving average of the weights, such as 0.999; evaluation and saved model use it.
        quantize_aware: Train for zoo export --quantize: int8 or int4. Training and saved model round the weights.
        keep: Number of training checkpoints to keep for zoo average, the last ones.
        decoding: How texts are generated in tests.
        batch_size: Examples per step; the default depends on the backbone, mostly 32.
        num_workers: Worker processes that load data; 0 loads in the main process.
        seed: Random seed of initial weights, order and augmentation; it does not affect the data split.
        compile: Compile the network with torch.compile; the first steps take longer.
        kernel: auto chooses a kernel by shape; block, fused or factored use one wherever it can run.
        matmul_precision: Precision of float32 matrix products: highest, high (TF32 on GPUs that support it) or medium.
        ddp_timeout: Seconds that a process waits for the others before the run fails.
        max_parameters: Parameters of the largest network to build.
        run_dir: Folder of the run; by default a new folder in runs/.
        checkpoint_every: Interval of training checkpoints within an epoch: a time (30s, 10m, 1.5h), steps (500steps) or never.
        resume: Run to resume in place, such as runs/NAME; auto resumes the newest unfinished run of this configuration.
        trainer: Arguments of Lightning's Trainer, such as --trainer.max-epochs.
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
    folds: int | None = bounded("[2, 1e6]", None)
    jobs: int = bounded("[1, 1024]", 1)
    task: str | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    label_smoothing: float | None = None
    metrics: tuple[str, ...] = ()
    ema: float | None = bounded("(0, 1)", None)
    quantize_aware: str | None = None
    keep: int = bounded("[1, 1e6]", 1)
    decoding: Decoding = field(default_factory=Decoding)
    batch_size: int | None = bounded(f"[1, {LARGEST}]", None)
    num_workers: int = bounded("[0, 1024]", 0)
    seed: int = bounded(f"[0, {2**32 - 1}]", 0)
    compile: bool = False
    kernel: str = "auto"
    matmul_precision: str | None = None
    ddp_timeout: float = bounded("(0, 1e7]", 1800.0)
    max_parameters: float = bounded("(0, 1e15]", MOST_PARAMETERS)
    run_dir: str | None = None
    checkpoint_every: str = "10m"
    resume: str | None = None
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `InputError` if a value has the wrong type, is out of range or does not exist."""
        super().__post_init__()
        parse_interval(self.checkpoint_every)
        if self.matmul_precision is not None:
            check_choice("matmul_precision", self.matmul_precision, ("highest", "high", "medium"))
        check_processes("jobs", self.jobs)


@dataclass
class Measuring(Options):
    """How a new model is measured.

    Args:
        batch_size: Examples per step of the evaluation.
        num_workers: Worker processes that load data; 0 loads in the main process.
        trainer: Arguments of Lightning's Trainer, such as --trainer.accelerator.
    """

    batch_size: int = bounded(f"[1, {LARGEST}]", 64)
    num_workers: int = bounded("[0, 1024]", 0)
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass
class Average(Measuring):
    """Average of the last checkpoints of a run.

    Args:
        last: Number of checkpoints to average.
        out: Folder of the new model; by default the folder average of the run.
    """

    last: int = bounded("[1, 1e6]", 8)
    out: str | None = None


@dataclass
class Prune(Measuring):
    """Structured pruning of a trained network, with fine-tuning.

    Args:
        ratio: Fraction of heads, hidden units and channels to remove in each layer, between 0 and 1.
        data: Spec of the test data; by default the data of training.
        out: Folder of the smaller model; by default pruned-RATIO in the run's folder, or MODEL-pruned-RATIO.
        epochs: Epochs of fine-tuning with the data and recipe of the run; 0 for none.
        lr: Peak learning rate of fine-tuning; by default that of the run.
        run_dir: Folder of the fine-tuning run; by default RUN-pruned-RATIO.
    """

    ratio: float = bounded("(0, 1)", 0.5)
    data: str | None = None
    out: str | None = None
    epochs: int = bounded("[0, 1e9]", 0)
    lr: float | None = bounded("(0, 1e6]", None)
    run_dir: str | None = None


@dataclass
class Convert(Options):
    """Projection of a trained real network onto an algebra.

    Args:
        source: Trained network: timm/NAME, a run, a model folder, or a name from zoo list checkpoints; --from for short.
        algebra: Spec of the algebra.
        to: Folder of the new model.
        scope: Which matrices are hypercomplex: all, or roles joined by +; by default as in the trained network.
        data: Spec of the data set for a new head of a timm model; by default the head is kept.
        format: Spec of an importer for weights of another library, such as gpt2 or speechbrain; see zoo list importers.
    """

    source: str = ""
    algebra: str = ""
    to: str = ""
    scope: str | None = None
    data: str | None = None
    format: str | None = None


@dataclass
class Info(Options):
    """A network to count.

    Args:
        backbone: Spec of the network.
        algebra: Spec of the algebra.
        data: Spec of the data set that determines input and output sizes; by default that recommended by the backbone.
        scope: Which matrices are hypercomplex: all, or roles joined by +.
        embedding: Spec of the word embedding; the default depends on the algebra, mostly table.
        task: Spec of the task, such as seq2seq; the default depends on the data.
        max_parameters: Parameters of the largest network to build.
    """

    backbone: str = ""
    algebra: str = ""
    data: str | None = None
    scope: str = "all"
    embedding: str | None = None
    task: str | None = None
    max_parameters: float = bounded("(0, 1e15]", MOST_PARAMETERS)


@dataclass
class Bench(Info):
    """A network to time against the same network over the reals.

    Args:
        batch_size: Examples in the batch.
        kernel: auto chooses a kernel by shape; block, fused or factored use one wherever it can run.
        rounds: Number of timed steps of each network.
    """

    batch_size: int = bounded(f"[1, {LARGEST}]", 64)
    kernel: str = "auto"
    rounds: int = bounded("[2, 1e6]", 15)


def is_object(name: str | None) -> bool:
    """Return whether the name of an option stands for an object."""
    return name is not None and name.endswith(OBJECT)


def config_values(options: Any) -> dict[str, Any]:
    """Return the content of config.yaml for the options of a run or an experiment.

    Objects, such as callbacks, become the names of their types, which ``zoo fit -c`` refuses.
    """
    values = {key: value for key, value in asdict(options).items() if key not in ("run_dir", "resume") and value is not None}
    values["trainer"] = {key: value for key, value in options.trainer.items() if value is not None}
    return dict(_plain(values))


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return f"{type(value).__module__}.{type(value).__qualname__} {OBJECT}"


def fixed_options(options: Fit) -> dict[str, Any]:
    """Return the options that must not change on resume, by the names of their flags."""
    values = asdict(replace(options, trainer={}))  # may contain large objects
    return flat({name: values[name] for name in values if name in FIXED})


def check_not_tickets(run: str | None) -> None:
    """Raise `InputError` if a run is an experiment of lottery tickets or a round, EXPERIMENT/ALGEBRA/seed-N/round-N."""
    path = Path(run or "").expanduser()
    for folder in (path, *path.absolute().parents[2:3]) if run not in (None, "auto") else ():
        if (folder / "lottery.json").exists():
            raise InputError(f"'{run}' belongs to lottery tickets: use zoo lottery --resume {folder}", code="mismatch")


def parse_interval(text: str) -> tuple[float | None, int]:
    """Parse the interval between checkpoints into (seconds, steps), of which at most one is set.

    >>> parse_interval("10m"), parse_interval("500steps"), parse_interval("never")
    ((600.0, 0), (None, 500), (None, 0))
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|h|steps?)", text.strip())
    if text == "never":
        return None, 0
    if match is None or not float(match[1]) or (match[2].startswith("step") and "." in match[1]):
        advice = "use a time such as 30s, 10m or 1.5h, steps such as 500steps, or never"
        raise InputError(f"checkpoint_every={shorten(text)[1:-1]}: {advice}")
    if match[2].startswith("step"):
        return None, int(match[1])
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]], 0
