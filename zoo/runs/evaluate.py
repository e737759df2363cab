"""Measure a trained model again, and use it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from zoo import registry
from zoo.checkpoint import load, read_config
from zoo.data import ImageFacts
from zoo.data.preprocess import preprocess
from zoo.errors import InputError
from zoo.options import Optimizer, Schedule
from zoo.runs.trainer import check_trainer, make_trainer, quiet
from zoo.tasks import Classification


def evaluate(
    run: str | Path,
    stage: str,
    data: str | None = None,
    trainer: dict[str, Any] | None = None,
    batch_size: int = 64,
    num_workers: int = 0,
) -> dict[str, float]:
    """Measure the model of a run on the val or test split of its data, or of other data with the same classes.

    Args:
        run: A run or model folder.
        stage: ``val`` or ``test``.
        data: Spec of the data; by default what the model was trained on.
        trainer: Arguments of Lightning's Trainer.
        batch_size: Examples per step.
        num_workers: Processes that load data.

    Returns:
        The metrics by name.

    Raises:
        InputError: If the folder is damaged, the data does not fit the model, or there is no such split.
    """
    quiet()
    config = read_config(run)
    module, facts = matching_data(config, data, batch_size, num_workers)
    if stage == "test":
        module.test_dataloader()
    task = Classification(load(run, config), facts.num_classes, Optimizer(lr=1.0), Schedule())
    runner = make_trainer(check_trainer(trainer or {}))
    measure = runner.test if stage == "test" else runner.validate
    try:
        metrics = measure(task, module, verbose=False)[0]
    except SystemExit as stop:  # what Lightning makes of Ctrl-C
        raise KeyboardInterrupt("stopped before everything was measured") from stop
    return {name.removeprefix(f"{stage}_"): float(value) for name, value in metrics.items()}


def matching_data(config: dict[str, Any], spec: str | None, batch_size: int, num_workers: int) -> tuple[Any, ImageFacts]:
    """Build data for a trained model, prepared as its training data was; return it with the model's facts."""
    facts = ImageFacts.from_dict(config["facts"])
    spec = config["data"] if spec is None else spec
    module = registry.create("zoo.datasets", spec, batch_size=batch_size, num_workers=num_workers)
    for key in ("classes", "in_channels", "image_size"):
        ours, theirs = getattr(facts, key), getattr(module.facts, key)
        if ours != theirs:
            raise InputError(f"data '{spec}' has {key} = {theirs}, the model was trained with {ours}")
    module.facts = replace(module.facts, mean=facts.mean, std=facts.std)
    return module, facts


def predict(run: str | Path, images: Sequence[str | Path]) -> Iterator[dict[str, Any]]:
    """Classify image files with the model of a run.

    Yields:
        For each image its ``file``, the ``label`` and that label's ``probability``.

    Raises:
        InputError: If the folder is damaged, or a file is missing or no image.
    """
    config = read_config(run)
    facts, net = ImageFacts.from_dict(config["facts"]), load(run, config)
    for image in images:
        probabilities = classify(net, load_image(Path(image), facts))
        best = int(probabilities.argmax())
        yield {"file": str(image), "label": facts.classes[best], "probability": round(float(probabilities[best]), 6)}


def load_image(path: Path, facts: ImageFacts) -> Tensor:
    """Read an image file as the network expects it, [C, S, S].

    Raises:
        InputError: If the file is missing or no image.
    """
    try:
        with Image.open(path) as image:
            return preprocess(image, facts)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"cannot read the image {path}: {reason}") from error


@torch.inference_mode()
def classify(net: torch.nn.Module, image: Tensor) -> Tensor:
    """Class probabilities [num_classes] of one prepared image [C, S, S]."""
    probabilities: Tensor = net(image[None]).softmax(-1)[0]
    return probabilities
