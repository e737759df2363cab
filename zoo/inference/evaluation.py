"""Evaluate a trained model on a split of its data, or on other data."""

import math
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from zoo import registry
from zoo.data.columns import is_frame, parse_cell
from zoo.data.info import ImageInfo, TableInfo, VectorInfo
from zoo.data.loader import check_order
from zoo.errors import LOGGERS, InputError, Interrupted, one_line, quiet
from zoo.inference.inputs import checked
from zoo.inference.predictions import collate, read_inputs
from zoo.tasks import GenerativeTask, Task, task_type
from zoo.tasks.supervised import AnswerRanking

SPLIT_OPTIONS = {"val": {"fold", "folds", "test", "val"}, "test": {"fold", "folds", "test"}}
"""Options that determine the rows of a split; validation rows are drawn from those outside the test split."""


@quiet(*LOGGERS)
def evaluate(
    model: Any,
    data: Any = None,
    split: str = "test",
    *,
    batch_size: int = 64,
    num_workers: int = 0,
    trainer: Mapping[str, object] | None = None,
    normalized: bool = False,
    **decoding: object,
) -> dict[str, float]:
    """Evaluate a model on a split of its data, or on other data with the same inputs and classes.

    Args:
        model: A `zoo.Model`.
        data: A spec, by default that of the training data; a data module; a tuple of inputs, as in `Model.predict`, and their
            targets; or a data set or data loader of torch with such rows. Targets are class names or indices, or numbers.
        split: ``val`` or ``test``.
        batch_size: Examples per step.
        num_workers: Processes that load data.
        trainer: Arguments of Lightning's Trainer; the default device is the model's.
        normalized: Whether images of arrays and loaders are already normalized, instead of uint8 or floats in [0, 1].
        decoding: See `zoo.tasks.decoding.Decoding`; the defaults are those of the training.

    Returns:
        The metrics by name; one that the targets leave undefined is NaN, and a note says why.

    Raises:
        InputError: If the data do not fit the model, the split does not exist, an option is invalid, or the loss is not finite.
    """
    if split not in ("val", "test"):
        raise InputError(f"split='{split}': use val or test")
    task, device = model.configured(decoding), model.device
    runner = make_trainer(dict(trainer or {}), device, model.net)
    arguments = _source(model, task, data, split, batch_size=batch_size, num_workers=num_workers, normalized=normalized)
    try:
        metrics = (runner.test if split == "test" else runner.validate)(task, verbose=False, **arguments)
    except SystemExit as stop:  # Lightning's response to SIGINT and SIGTERM
        number = signal.SIGTERM if runner.received_sigterm else signal.SIGINT
        raise Interrupted("the evaluation was interrupted", number) from stop
    finally:
        model.to(device)
        model.net.eval()
    for name, reason in getattr(task, f"{split}_metrics").undefined().items():
        print(f"note: {split} {name} is undefined: {reason}", file=sys.stderr)  # noqa: T201 (for the user)
    if not metrics:
        raise InputError(f"limit_{split}_batches=0: there is nothing to evaluate; leave it out")
    values = {name.removeprefix(f"{split}_"): float(value) for name, value in metrics[0].items()}
    if not math.isfinite(values.get("loss", 0.0)):
        raise InputError("the loss is NaN or infinite: the weights or targets are damaged, or training diverged", code="data")
    return values


def _source(model: Any, task: Task, data: object, split: str, *, normalized: bool, **sizes: int) -> dict[str, Any]:
    """Return the data as an argument of `Trainer.test` and `Trainer.validate`."""
    spec = data if data is not None else model.config.data
    source = matching_data(model, spec, split, **sizes) if isinstance(spec, str) else spec
    if normalized and not (is_arrays(source) and isinstance(model.info, ImageInfo)):
        raise InputError("normalized=True applies only to arrays of images: leave it out", code="conflict")
    if is_arrays(source):
        return {"dataloaders": array_batches(task, source, **sizes, normalized=normalized)}
    if not isinstance(source, LightningDataModule):
        subject = "the model was trained on data without a spec" if data is None else f"data={data!r:.60}"
        raise InputError(f"{subject}: use a spec, a data module, arrays (X, y), or a data set or data loader of torch")
    source = checked_data(model, source, spec if isinstance(spec, str) else type(spec).__name__)
    if split == "test":
        source.test_dataloader()  # raises for data without a test split
    if spec == model.config.data:
        warn_if_changed(model.info, getattr(source, "info", None))
    return {"datamodule": source}


def warn_if_changed(trained: object, current: object) -> None:
    """Warn if the content of the training data has changed."""
    digests = [getattr(info, "sha256", None) for info in (trained, current)]
    if None not in digests and digests[0] != digests[1]:
        text = "note: the data have changed since the training: this split may contain rows that the model was trained on"
        print(text, file=sys.stderr)  # noqa: T201 (for the user)


def is_arrays(data: object) -> bool:
    """Return whether data are a pair (inputs, targets), a data set or a data loader of torch."""
    return isinstance(data, DataLoader | Dataset) or (isinstance(data, tuple | list) and len(data) == 2)


def array_batches(
    task: Task, data: Any, *, batch_size: int, num_workers: int, normalized: bool
) -> Iterator[tuple[Any, Tensor]]:
    """Yield batches (inputs, targets) for the step of a task, prepared as `Model.predict` prepares its inputs."""
    if isinstance(task, AnswerRanking | GenerativeTask):
        raise InputError(
            f"{type(task).__name__} cannot be evaluated on arrays: use a spec or a data module", code="unsupported"
        )
    info, is_pair = task.info, isinstance(data, tuple | list)
    if is_pair:
        inputs, names = data[0], [*task.columns]
        if is_frame(inputs) and isinstance(info, TableInfo):
            inputs = inputs.to_dict("records")
        elif is_frame(inputs) and {*names} <= {*inputs.columns}:
            inputs = inputs[names]
        data = [inputs, data[1]]
        data = [part.to_numpy() if hasattr(part, "to_numpy") else part for part in data]  # of pandas
        if len(data[0]) != len(data[1]):
            raise InputError(f"got {len(data[0])} inputs and {len(data[1])} targets: use one per input", code="mismatch")
        data = list(zip(*data, strict=True))
    if not isinstance(data, DataLoader):
        data = DataLoader(data, batch_size, num_workers=num_workers, collate_fn=_columns)
    for batch in data:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise InputError(f"the data have rows of type {type(batch).__name__}: use pairs (input, target)")
        examples = checked(read_inputs(task, list(batch[0]), None, normalized))
        targets = target_tensor(batch[1], info, by_value=is_pair)
        if len(examples) != len(targets):
            raise InputError(f"got {len(examples)} inputs and {len(targets)} targets: use one per input", code="mismatch")
        yield collate(task, examples)[0], targets


def _columns(rows: list[Any]) -> Any:
    return tuple(zip(*rows, strict=True))


def target_tensor(targets: Sequence[object], info: object, by_value: bool = False) -> Tensor:
    """Return labels as int64 [B], and other targets as float32 [B, out_features], standardized for a table.

    Labels are class names or indices; with ``by_value``, numbers are names if all class names are numbers, as in `zoo.fit`.
    """
    if not (classes := getattr(info, "classes", ())):
        arrays = [target if isinstance(target, Tensor) else np.array(target) for target in targets]  # a read-only array warns
        try:
            numbers = torch.stack([torch.as_tensor(array, dtype=torch.float64, device="cpu").reshape(-1) for array in arrays])
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"the model predicts numbers, but a target is not one: {one_line(error, 120)}") from error
        if isinstance(info, VectorInfo) and numbers.shape[1] != info.out_features:
            raise InputError(f"targets of size {numbers.shape[1]}: the model has {info.out_features} outputs", code="mismatch")
        return ((numbers - info.target_mean) / info.target_std if isinstance(info, TableInfo) else numbers).float()
    index: dict[Any, int] = {name: i for i, name in enumerate(classes)}
    values = [parse_cell(name)[0] for name in classes]
    is_numeric = by_value and not any(map(math.isnan, values))
    index |= {value: i for i, value in enumerate(values if is_numeric else range(len(classes)))}
    labels = [target.tolist() if hasattr(target, "tolist") else target for target in targets]
    labels = [label[0] if isinstance(label, list) and len(label) == 1 else label for label in labels]
    if unknown := [label for label in labels if isinstance(label, list) or label not in index]:
        indices = "" if is_numeric else f" or an index up to {len(classes) - 1}"
        text = f"unknown label {unknown[0]!r:.60}: use a class of the model ({', '.join(classes[:5])}, ...){indices}"
        raise InputError(text, code="unknown")
    return torch.tensor([index[label] for label in labels])


def matching_data(model: Any, spec: str, split: str, batch_size: int, num_workers: int) -> Any:
    """Create data from a spec, with the options `DataModule.model_options` and the split of the model's training."""
    parsed = registry.Spec.parse(spec)
    trained = registry.Spec.parse(model.config.data) if model.config.data else None
    stream = model.info.inputs == "token_stream"
    context: dict[str, Any] = {"batch_size": batch_size, "num_workers": num_workers, "stream": stream}
    data = registry.create("zoo.datasets", parsed, **context)
    fixed, trained_options = getattr(data, "model_options", ()), trained.options if trained else {}
    if changed := [key for key in fixed if key in parsed.options and parsed.options[key] != trained_options.get(key)]:
        part = "value" if model.tokenizer is None else "tokenizer"
        raise InputError(f"data '{spec}' sets {', '.join(changed)}, but the model has its own {part}: leave it out")
    context |= {key: trained_options[key] for key in fixed if key in trained_options}
    names = getattr(data, "source_options", ())
    is_other = trained is None or origin(parsed, names) != origin(trained, names)
    context |= {"use_all": True} if is_other else same_split(parsed, split, trained_options)
    if model.tokenizer is not None:
        context |= {"tokenizer": model.tokenizer, "classes": getattr(model.info, "classes", None)}
    options = {key: value for key, value in parsed.options.items() if key not in fixed}
    return registry.create("zoo.datasets", replace(parsed, options=options), **context)


def same_split(spec: registry.Spec, split: str, trained_options: Mapping[str, object]) -> dict[str, Any]:
    """Return the split options of the training, since other splits would contain training rows."""
    parameters = signature(registry.load(registry.resolve("zoo.datasets", spec.name)[0])).parameters
    for key in SPLIT_OPTIONS[split] & spec.options.keys() & parameters.keys():
        if spec.options[key] != (trained := trained_options.get(key, parameters[key].default)):
            text = f"data '{spec}' are split with {key}={spec.options[key]}, but the model was trained with {key}={trained}"
            raise InputError(f"{text}, so the split would contain training rows: leave {key} out")
    return {
        key: trained_options[key]
        for key in SPLIT_OPTIONS["val"] & trained_options.keys() & parameters.keys() - spec.options.keys()
    }


def origin(spec: registry.Spec, names: Iterable[str]) -> tuple[str, ...]:
    """Return the name and the resolved paths of a spec; specs of the same origin share training rows."""
    paths = (spec.options.get(name) for name in names)
    return spec.name, *("" if path is None else str(Path(str(path)).expanduser().resolve()) for path in paths)


def checked_data(model: Any, data: Any, name: str) -> Any:
    """Set up data, check that their sizes and labels fit the model, and use the statistics of the training data."""
    task, expected = getattr(data, "task", None), model.config.task
    if task and expected and model.info is not None and model.info.inputs not in task_type(task)[0].inputs:
        raise InputError(f"data '{name}' has task = {task}, the model was trained with {expected}")
    data.prepare_data()
    data.setup(None)
    info = getattr(data, "info", None)
    if model.info is None or info is None:
        return data
    required = {} if isinstance(model.info, TableInfo) and model.info.encodes(info) else required_facts(model.info)
    for key, value in required.items():
        if (other := required_facts(info).get(key)) != value:
            raise InputError(f"data '{name}' has {key} = {other}, the model was trained with {value}")
    data.info = replace(model.info, sizes=info.sizes, sha256=info.sha256)
    return data


def required_facts(info: Any) -> dict[str, Any]:
    """Return the facts about training data that evaluation data must share: kind of inputs, sizes and labels."""
    kwargs = {key: value for key, value in info.model_kwargs.items() if key != "max_length"}
    labels = {"classes": info.classes} if hasattr(info, "classes") else {}
    return {"inputs": info.inputs, **labels, **kwargs}


def make_trainer(arguments: dict[str, Any], device: Any, net: nn.Module) -> Trainer:
    """Build a Trainer for evaluation on a device, without loggers and checkpoints."""
    defaults: dict[str, Any] = {"logger": False, "enable_model_summary": False, "enable_checkpointing": False}
    defaults["enable_progress_bar"] = sys.stdout.isatty()
    if "accelerator" not in arguments:
        is_cuda = device.type == "cuda"
        defaults |= {"accelerator": "gpu", "devices": [device.index or 0]} if is_cuda else {"accelerator": device.type}
    try:
        trainer = Trainer(**defaults | {name: value for name, value in arguments.items() if value is not None})
    except (MisconfigurationException, ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"--trainer: {str(error).strip().splitlines()[0]}") from error
    check_order(getattr(net, "has_memory", False), trainer.world_size)
    return trainer
