"""Measure a trained model again."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.checkpoint import load, read_config
from zoo.data import DataInfo, ImageInfo, ready
from zoo.errors import InputError
from zoo.inference.predict import tokenizer_of
from zoo.tasks import info_of, make_task
from zoo.training.options import Decoding, build
from zoo.training.resolve import TEXTS
from zoo.training.trainer import check_ranks, check_trainer, make_trainer

# How texts become tokens is the model's own affair.
READING = ("tokenizer", "vocab", "min_count", "lowercase")
PLACES = ("path", "source", "target")
# What must be the same in other data than the model was trained on.
FIXED = ("classes", "in_channels", "image_size", "in_features", "out_features")


def evaluate(
    run: str | Path,
    stage: str,
    data: str | None = None,
    trainer: dict[str, Any] | None = None,
    batch_size: int = 64,
    num_workers: int = 0,
    decoding: Decoding | Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Measure the model of a run on the val or test split of its data, or of other data with the same classes.

    Args:
        run: A run or model folder.
        stage: ``val`` or ``test``.
        data: Spec of the data; by default what the model was trained on.
        trainer: Arguments of Lightning's Trainer.
        batch_size: Examples per step.
        num_workers: Processes that load data.
        decoding: How texts are written, by a model that writes; by default as when it was trained, also those options that a
            mapping leaves out.

    Returns:
        The metrics by name.

    Raises:
        InputError: If the folder is damaged, the data does not fit the model, or there is no such split.
    """
    config = read_config(run)
    module, info = matching_data(run, config, data, batch_size, num_workers)
    if stage == "test":
        module.test_dataloader()
    trained = config.get("decoding") or {}
    chosen = asdict(decoding) if isinstance(decoding, Decoding) else {**trained, **(decoding or {})}
    decoding = build(Decoding, chosen)
    own = {} if decoding == Decoding() else {"decoding": decoding}
    task = make_task(config["task"], load(run, config), info, getattr(module, "tokenizer", None), **own)
    runner = make_trainer(check_trainer(trainer or {}))
    check_ranks(runner, task.net)
    measure = runner.test if stage == "test" else runner.validate
    try:
        metrics = measure(task, module, verbose=False)[0]
    except SystemExit as stop:  # what Lightning makes of Ctrl-C
        raise KeyboardInterrupt("stopped before everything was measured") from stop
    return {name.removeprefix(f"{stage}_"): float(value) for name, value in metrics.items()}


def matching_data(
    run: str | Path, config: dict[str, Any], spec: str | None, batch_size: int, num_workers: int
) -> tuple[Any, DataInfo]:
    """Build data for a trained model, prepared as its training data was; return it with the model's info."""
    info = info_of(config["task"], config["info"])
    other = spec is not None and source(spec) != source(config["data"])
    spec = config["data"] if spec is None else spec
    context: dict[str, Any] = {"batch_size": batch_size, "num_workers": num_workers}
    if info.inputs in TEXTS:
        trained, asked = (registry.Spec.parse(text).options for text in (config["data"], spec))
        if taken := [key for key in READING if key in asked and asked[key] != trained.get(key)]:
            raise InputError(
                f"data '{spec}' sets {', '.join(taken)}, but the model reads with its own vocabulary: leave that out"
            )
        context |= {"tokenizer": tokenizer_of(run, info), "use_all": other}
        context |= {"stream": info.inputs == "token_stream", "classes": getattr(info, "classes", None)}
    parsed = registry.Spec.parse(spec)
    if "tokenizer" in context:  # an option in the spec would win
        parsed = replace(parsed, options={key: value for key, value in parsed.options.items() if key != "tokenizer"})
    module = ready(registry.create("zoo.datasets", parsed, **context))
    if module.task != config["task"]:
        raise InputError(f"data '{spec}' has task = {module.task}, the model was trained with {config['task']}")
    for key in FIXED:
        ours, theirs = getattr(info, key, None), getattr(module.info, key, None)
        if ours != theirs:
            raise InputError(f"data '{spec}' has {key} = {theirs}, the model was trained with {ours}")
    if isinstance(info, ImageInfo):
        module.info = replace(module.info, mean=info.mean, std=info.std)
    return module, info


def source(spec: str) -> tuple[str, ...]:
    """Where data come from: other options of the same source leave the same rows to train on, which must not be measured."""
    parsed = registry.Spec.parse(spec)
    places = (parsed.options.get(name) for name in PLACES)
    return parsed.name, *("" if place is None else str(Path(str(place)).expanduser().resolve()) for place in places)
