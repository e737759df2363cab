"""Measure a trained model on a split of its data, or of other data."""

import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.utils.data import DataLoader

from zoo import registry
from zoo.data.info import ImageInfo
from zoo.data.loader import check_order
from zoo.errors import InputError, Interrupted, check_rules
from zoo.tasks import GenerativeTask, Task, task_type
from zoo.tasks.classification import AnswerRanking
from zoo.tasks.inputs import input_list, normalize_floats

CUTS = {"val": {"fold", "folds", "test", "val"}, "test": {"fold", "folds", "test"}}
"""Options that decide which rows a split has: rows for validation are held out of those that are not tested."""


def evaluate(
    model: Any,
    data: Any = None,
    split: str = "test",
    *,
    batch_size: int = 64,
    num_workers: int = 0,
    trainer: Mapping[str, Any] | None = None,
    normalized: bool = False,
    **decoding: Any,
) -> dict[str, float]:
    """Evaluate a model on a split of its data, or on other data of the same form and with the same classes.

    Args:
        model: A `zoo.Model`.
        data: Spec of the data, by default that of the training; a data module; data loaders; or a tuple of inputs, as
            `Model.predict` reads them, and their labels (class names or indices) or target vectors.
        split: ``val`` or ``test``.
        batch_size: Examples per step.
        num_workers: Processes that load data.
        trainer: Arguments of Lightning's Trainer; by default it computes on the device of the model.
        normalized: Whether images of data loaders and arrays are normalized already, not uint8 pixels or floats in [0, 1].
        decoding: For a generative model, how it chooses tokens; the defaults are those of its training.

    Raises:
        InputError: If the data do not fit the model, there is no such split, or an option is wrong.
    """
    if split not in ("val", "test"):
        raise InputError(f"split='{split}': use val or test")
    task = model.configured(decoding)
    runner = make_trainer(dict(trainer or {}), model.device, model.net)
    given = data if data is not None else model.config["data"]
    source = matching_data(model, given, split, batch_size, num_workers) if isinstance(given, str) else given
    if isinstance(source, LightningDataModule):
        source = checked_data(model, source, str(given) if isinstance(given, str) else type(given).__name__)
        if split == "test":
            source.test_dataloader()
        if given == model.config["data"]:
            warn_if_changed(model.info, getattr(source, "info", None))
        arguments: dict[str, Any] = {"datamodule": source}
    elif is_arrays(source):
        arguments = {"dataloaders": array_loader(model, task, source[0], source[1], batch_size, normalized)}
    elif isinstance(source, Iterable):
        arguments = {"dataloaders": source}
        if isinstance(model.info, ImageInfo) and not normalized:
            normalize_batches(task)
    else:
        subject = "the model was trained on data without a spec" if data is None else f"data={data!r:.60}"
        raise InputError(f"{subject}: give a spec, a data module, data loaders or (inputs, labels)")
    device = model.device
    try:
        measured = (runner.test if split == "test" else runner.validate)(task, verbose=False, **arguments)
    except SystemExit as stop:  # what Lightning makes of Ctrl-C and of SIGTERM
        number = signal.SIGTERM if runner.received_sigterm else signal.SIGINT
        raise Interrupted("stopped before everything was measured", number) from stop
    finally:
        model.to(device)
        model.net.eval()
    check_rules((bool(measured), f"limit_{split}_batches=0 leaves nothing to measure: leave it out"))
    return {name.removeprefix(f"{split}_"): float(value) for name, value in measured[0].items()}


def warn_if_changed(before: Any, now: Any) -> None:
    """Warn if the content of the training data has changed."""
    digests = [getattr(info, "sha256", None) for info in (before, now)]
    if None not in digests and digests[0] != digests[1]:
        text = "note: the data have changed since the training: rows that it has seen may be among those measured"
        print(text, file=sys.stderr)  # noqa: T201 (to be seen)


def is_arrays(data: Any) -> bool:
    """Return whether data are inputs and labels, not data loaders."""
    return isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, DataLoader) for part in data)


def array_loader(model: Any, task: Task, inputs: Any, labels: Any, batch_size: int, normalized: bool) -> DataLoader[Any]:
    """Return a data loader of inputs, as `Model.predict` reads them, and their labels."""
    options = {"normalized": True} if normalized else {}
    examples = list(task.read_inputs(model.info, input_list(inputs), None, **options))
    if isinstance(task, AnswerRanking | GenerativeTask):
        raise InputError(f"a model of {model.config['task']} cannot be evaluated on arrays: give a spec", code="unsupported")
    targets = label_tensor(labels, getattr(model.info, "classes", None))
    if len(examples) != len(targets):
        raise InputError(f"{len(examples)} inputs and {len(targets)} labels: give one label per input", code="mismatch")

    def collate(rows: list[Any]) -> tuple[Any, Tensor]:
        return task.collate([example for example, _ in rows])[0], torch.stack([target for _, target in rows])

    return DataLoader(list(zip(examples, targets, strict=True)), batch_size, collate_fn=collate)  # type: ignore[arg-type]


def label_tensor(labels: Any, classes: Sequence[str] | None) -> Tensor:
    """Return labels, class names or indices, as int64 [N]; without classes return the targets as float32."""
    if classes is None:
        return torch.as_tensor(labels, dtype=torch.float32)
    rows = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    index = {name: i for i, name in enumerate(classes)}
    indices = [index.get(label, -1) if isinstance(label, str) else label for label in rows]
    if wrong := [row for row, i in zip(rows, indices, strict=True) if type(i) is not int or not 0 <= i < len(classes)]:
        names = ", ".join(classes[:5])
        text = f"unknown label {wrong[0]!r:.60}: use the class names ({names}, ...) or indices from 0 to {len(classes) - 1}"
        raise InputError(text, code="unknown")
    return torch.tensor(indices)


def normalize_batches(task: Task) -> None:
    """Let a task normalize the images of its batches: uint8 pixels, or floats in [0, 1]."""
    step, info = task.step, task.info

    def normalized_step(batch: Any) -> Any:
        images, *rest = batch
        if images.dtype == torch.uint8:
            images = images / 255
        return step((normalize_floats(images, info, "a batch of the data loader"), *rest))

    task.step = normalized_step  # type: ignore[method-assign]


def matching_data(model: Any, spec: str, split: str, batch_size: int, num_workers: int) -> Any:
    """Make data of a spec for a trained model: what `DataModule.model_options` names is as in its training."""
    parsed = registry.Spec.parse(spec)
    trained = registry.Spec.parse(model.config["data"]) if model.config["data"] else None
    context: dict[str, Any] = {
        "batch_size": batch_size,
        "num_workers": num_workers,
        "stream": model.info.inputs == "token_stream",
    }
    data = registry.create("zoo.datasets", parsed, **context)
    decided, known = getattr(data, "model_options", ()), trained.options if trained else {}
    if taken := [key for key in decided if key in parsed.options and parsed.options[key] != known.get(key)]:
        owned = "value" if model.tokenizer is None else "tokenizer"
        raise InputError(f"data '{spec}' sets {', '.join(taken)}, but the model has a {owned} of its own: leave that out")
    context |= {key: known[key] for key in decided if key in known}
    names = getattr(data, "source_options", ())
    other = trained is None or origin(parsed, names) != origin(trained, names)
    if not other:
        context |= same_split(parsed, split, known)
    if model.tokenizer is not None:
        context |= {"tokenizer": model.tokenizer, "use_all": other, "classes": getattr(model.info, "classes", None)}
    options = {key: value for key, value in parsed.options.items() if key not in decided}
    return registry.create("zoo.datasets", replace(parsed, options=options), **context)


def same_split(spec: registry.Spec, split: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the training that cut its data; other ones would measure rows that were trained on.

    Raises:
        InputError: If the spec sets one of them otherwise.
    """
    taken = signature(registry.load(registry.resolve("zoo.datasets", spec.name)[0])).parameters
    for key in CUTS[split] & spec.options.keys() & taken.keys():
        if spec.options[key] != (before := known.get(key, taken[key].default)):
            cut = f"data '{spec}' are cut with {key}={spec.options[key]}, and the model was trained with {key}={before}"
            raise InputError(f"{cut}, so rows that it has seen would be measured: leave {key} out")
    return {key: known[key] for key in CUTS["val"] & known.keys() & taken.keys() - spec.options.keys()}


def origin(spec: registry.Spec, names: Iterable[str]) -> tuple[str, ...]:
    """Return what tells where data come from: other options of one origin leave the same rows to train on, not to measure."""
    places = (spec.options.get(name) for name in names)
    return spec.name, *("" if path is None else str(Path(str(path)).expanduser().resolve()) for path in places)


def checked_data(model: Any, data: Any, name: str) -> Any:
    """Set data up, check that their sizes and labels fit the model, and have them prepared as its training data were."""
    given, expected = getattr(data, "task", None), model.config.get("task")
    if given and expected and model.info is not None and model.info.inputs not in task_type(given)[0].inputs:
        raise InputError(f"data '{name}' has task = {given}, the model was trained with {expected}")
    data.prepare_data()
    data.setup(None)
    theirs = getattr(data, "info", None)
    if model.info is None or theirs is None:
        return data
    for key, value in fixed(model.info).items():
        if (other := fixed(theirs).get(key)) != value:
            raise InputError(f"data '{name}' has {key} = {other}, the model was trained with {value}")
    # Statistics of the training data, such as the mean of the pixels, are the model's.
    data.info = replace(model.info, sizes=theirs.sizes, sha256=theirs.sha256)
    return data


def fixed(info: Any) -> dict[str, Any]:
    """Return what must be the same in other data than a model was trained on: the form of the inputs, sizes and labels."""
    kwargs = {key: value for key, value in info.model_kwargs.items() if key != "max_length"}
    labels = {"classes": info.classes} if hasattr(info, "classes") else {}
    return {"inputs": info.inputs, **labels, **kwargs}


def make_trainer(arguments: dict[str, Any], device: Any, net: nn.Module) -> Trainer:
    """Build a Trainer that evaluates on a device, without loggers and checkpoints; a network with a memory has one process."""
    place = {"accelerator": "gpu" if device.type == "cuda" else device.type}
    if device.type == "cuda":
        place["devices"] = [device.index or 0]
    quiet = {"enable_model_summary": False, "enable_checkpointing": False, "enable_progress_bar": sys.stdout.isatty()}
    defaults: dict[str, Any] = {"logger": False, **quiet, **({} if "accelerator" in arguments else place)}
    try:
        trainer = Trainer(**defaults | {name: value for name, value in arguments.items() if value is not None})
    except (MisconfigurationException, ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"--trainer: {str(error).strip().splitlines()[0]}") from error
    check_order(getattr(net, "has_memory", False), trainer.world_size)
    return trainer
