"""What a run can be told, in one place: the command line, config files and `zoo.fit` all read these classes.

This module imports no torch, so that the command line can check a call before it waits for one.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, TypeVar, get_origin

from zoo.errors import InputError
from zoo.registry.annotations import expected

Options = TypeVar("Options")


@dataclass
class Optimizer:
    """How weights are updated.

    Args:
        name: Any optimizer timm knows, such as adamw, sgd or lion.
        lr: Peak learning rate; by default what the backbone recommends.
        weight_decay: Decay of matrices; norms and biases are not decayed.
    """

    name: str = "adamw"
    lr: float | None = None
    weight_decay: float = 0.05


@dataclass
class Schedule:
    """How the learning rate moves, step by step.

    Args:
        name: cosine, linear (both fall to zero) or constant.
        warmup: Share of all steps in which it first rises from zero.
    """

    name: str = "cosine"
    warmup: float = 0.1


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
        folds: Cross-validate in so many runs, for data without a split; each fold is tested once.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
        batch_size: Examples per step.
        num_workers: Processes that load data; 0 loads in the main one.
        seed: Decides weights, order and augmentation; never the split of the data.
        run_dir: Folder of the run; by default a new one in runs/ with a telling name.
        ckpt_path: A training checkpoint (checkpoints/last.ckpt of a run) to go on from.
        trainer: Arguments of Lightning's Trainer, such as --trainer.max_epochs.
    """

    backbone: str
    algebra: str
    data: str | None = None
    scope: str = "all"
    init: str = "variance"
    embedding: str | None = None
    vectors: str | None = None
    folds: int | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    batch_size: int = 32
    num_workers: int = 0
    seed: int = 0
    run_dir: str | None = None
    ckpt_path: str | None = None
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass
class Evaluate:
    """One measurement of a trained model.

    Args:
        data: Spec of the data set; by default what the model was trained on.
        batch_size: Examples per step.
        num_workers: Processes that load data; 0 loads in the main one.
        trainer: Arguments of Lightning's Trainer, such as --trainer.accelerator.
    """

    data: str | None = None
    batch_size: int = 64
    num_workers: int = 0
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass
class Info:
    """A network to count.

    Args:
        backbone: Spec of the network.
        algebra: Spec of the algebra.
        data: Spec of the data set that decides input and output sizes; by default the one the backbone recommends.
        scope: Which matrices are hypercomplex: all, or roles joined by +.
        embedding: Spec of the word embedding; by default what the algebra advises, or table.
    """

    backbone: str
    algebra: str
    data: str | None = None
    scope: str = "all"
    embedding: str | None = None


def build(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Build an options object from nested mappings.

    Raises:
        InputError: If there is no such option, a value is of another kind, or a required one is missing.

    Example:
        >>> build(Fit, {"backbone": "vit", "algebra": "phm-4", "optimizer": {"lr": 0.01}}).optimizer.lr
        0.01
    """
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f": did you mean '{close[0]}'?" if close else f": use {', '.join(known)}"
            raise InputError(f"unknown option '{name}'{hint}")
    made = {name: checked(name, known[name].type, value) for name, value in values.items()}
    try:
        return kind(**made)
    except TypeError as error:
        raise InputError(f"{kind.__name__}: {str(error).partition(') ')[2]}") from error


def checked(name: str, kind: Any, value: Any) -> Any:
    """Return the value of an option, built if it has parts of its own.

    Raises:
        InputError: If it is of another kind than the annotation says.
    """
    if is_dataclass(kind) or get_origin(kind) is dict:
        if not isinstance(value, Mapping | kind if is_dataclass(kind) else Mapping):
            raise InputError(f"{name}={value!r} must be a dict of options by name")
        return build(kind, value) if is_dataclass(kind) and isinstance(value, Mapping) else value  # type: ignore[arg-type]
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if wanted := expected(kind, value):
        raise InputError(f"{name}={value!r} must be {wanted}")
    return value


def one_line(text: str) -> str:
    """Fold a message of jsonargparse into one line in the words of the command line."""
    text = " ".join(line.strip() for line in text.splitlines() if line.strip())
    text = re.sub(r"<class '(\w+)'>", r"\1", text).replace("NoneType", "null").replace('Parser key "', 'option "')
    text = text.replace("Expected a ", "expected ").replace("Expected an ", "expected ")
    if missing := re.search(r"the following arguments are required: (.*)", text):
        text = f"missing {', '.join(f'--{name}' for name in missing[1].split(', '))} (see --help)"
    text = re.sub(
        r"Does not validate .* Subtypes: \[(.*?)\] Errors: .* Given value: ", r"Expected one of \1. Got value: ", text
    )
    return text[:400]
