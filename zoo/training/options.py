"""The options of the verbs that train and measure; the command line, config files and `zoo.fit` all read these classes.

This module imports no torch, so that the command line can check a call before it waits for one.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.errors import InputError
from zoo.registry.signatures import build_options as build
from zoo.registry.signatures import check_option as checked
from zoo.tasks.decoding.options import Decoding
from zoo.training.trainer_arguments import TRAINER_ARGUMENTS

__all__ = [
    "TRAINER_ARGUMENTS",
    "Average",
    "Decoding",
    "DistillationOptions",
    "Fit",
    "Info",
    "Optimizer",
    "Schedule",
    "build",
    "check_single",
    "checked",
    "parse_interval",
    "without_tuples",
]


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
    """Refuse to go on with rounds of lottery tickets as with a single run: it would train without the masks.

    Args:
        run: The folder of an experiment, or that of a round, three folders below it.

    Raises:
        InputError: If it is one of them.
    """
    folder = Path(run).expanduser().absolute()
    round_of = folder.parents[2:3] if re.fullmatch(r"round-\d+", folder.name) else ()
    for place in (folder, *round_of):
        if (place / "lottery.json").exists():
            whole = run if place == folder else place
            raise InputError(f"--resume {run}: these are rounds of lottery tickets, go on with zoo lottery --resume {whole}")


def without_tuples(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return options by name with lists for tuples, as they come out of a file."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in pairs}


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
