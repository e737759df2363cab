"""From what the user asked for to a run that can begin: names checked, gaps filled."""

from dataclasses import replace
from typing import Any

from zoo import registry
from zoo.backbones import recipe_of
from zoo.errors import InputError
from zoo.options import Fit


def resolve(options: Fit) -> Fit:
    """Fill in what the user left to the backbone, and check names and limits, before anything is built.

    Raises:
        InputError: If a name is unknown, the seed is no seed, or a schedule has no end.
    """
    if not 0 <= options.seed < 2**32:
        raise InputError(f"seed={options.seed}: use a whole number from 0 to {2**32 - 1}")
    entry, _ = registry.resolve("zoo.backbones", options.backbone)
    registry.resolve("zoo.algebras", options.algebra)
    advice = recipe_of(registry.load(entry))
    data = canonical(options.data or advice.data)
    registry.resolve("zoo.datasets", data)
    return replace(
        options,
        backbone=canonical(options.backbone),
        algebra=canonical(options.algebra),
        data=data,
        optimizer=replace(options.optimizer, lr=advice.lr if options.optimizer.lr is None else options.optimizer.lr),
        trainer=with_end(options, advice.max_epochs),
    )


def with_end(options: Fit, max_epochs: int) -> dict[str, Any]:
    """Return the Trainer's arguments with a number of epochs, unless epochs or steps were given."""
    epochs, steps = options.trainer.get("max_epochs"), options.trainer.get("max_steps")
    endless = steps in (None, -1) and epochs == -1
    if endless and (options.schedule.name != "constant" or options.schedule.warmup):
        raise InputError("a schedule needs an end: give --trainer.max_steps, or --schedule.name constant --schedule.warmup 0")
    if epochs == 0 or steps == 0:
        raise InputError("--trainer.max_epochs and --trainer.max_steps begin at 1: a network that was not trained is no result")
    given = dict(options.trainer)
    return given if epochs is not None or steps is not None else {**given, "max_epochs": max_epochs}


def canonical(spec: str) -> str:
    """Write a spec as it was typed, in one way: spaces, quotes and the order of options do not matter."""
    return str(registry.Spec.parse(spec))


def load_data(options: Fit) -> Any:
    """Build the data module that the options name."""
    common = {"batch_size": options.batch_size, "num_workers": options.num_workers, "seed": options.seed}
    return registry.create("zoo.datasets", options.data or "", **common)
