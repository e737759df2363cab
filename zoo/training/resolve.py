"""From what the user asked for to a run that can begin: names checked, gaps filled."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zoo import registry
from zoo.backbones import recipe_of
from zoo.backbones.recipe import Recipe
from zoo.data import ready
from zoo.errors import InputError
from zoo.tasks import task_type
from zoo.tasks.decoding.options import Decoding
from zoo.tasks.optimization import check_optimizer, check_schedule
from zoo.training.options import Fit

KINDS = {
    "image": "images",
    "text": "texts",
    "text_pair": "pairs of texts",
    "vector": "vectors",
    "tokens": "running text",
    "token_stream": "running text in order",
    "source_target": "texts and their answers",
}
GENERATED = ("tokens", "token_stream", "source_target")
TEXTS = ("text", "text_pair", *GENERATED)


def resolve(options: Fit) -> Fit:
    """Fill in what the user left to the backbone, and check names and limits, before anything is built.

    Raises:
        InputError: If a name is unknown, the seed is no seed, or a schedule has no end.
    """
    if not 0 <= options.seed < 2**32:
        raise InputError(f"seed={options.seed}: use a whole number from 0 to {2**32 - 1}")
    if options.matmul_precision not in (None, "highest", "high", "medium"):
        raise InputError(f"matmul_precision={options.matmul_precision}: use highest, high or medium")
    entry, _ = registry.resolve("zoo.backbones", options.backbone)
    registry.resolve("zoo.algebras", options.algebra)
    if options.embedding is not None:
        registry.resolve("zoo.embeddings", options.embedding)
    advice = recipe_of(registry.load(entry))
    if options.task is not None:
        task_type(options.task)
        advice = advice.tasks.get(options.task, advice)
    data = canonical(options.data or advice.data)
    registry.resolve("zoo.datasets", data)
    return replace(
        options,
        backbone=canonical(options.backbone),
        algebra=canonical(options.algebra),
        data=data,
        embedding=None if options.embedding is None else canonical(options.embedding),
        optimizer=replace(options.optimizer, lr=advice.lr if options.optimizer.lr is None else options.optimizer.lr),
        batch_size=advice.batch_size if options.batch_size is None else options.batch_size,
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


def make_data(options: Fit) -> Any:
    """Make the data module that the options name, without touching any data.

    Raises:
        InputError: If an option of it is wrong, or the data are not for the task.
    """
    advice = recipe_for(options.backbone)
    common = {"batch_size": options.batch_size, "num_workers": options.num_workers, "seed": options.seed}
    data = registry.create("zoo.datasets", options.data or "", **common, stream="token_stream" in advice.inputs)
    if options.task not in (None, data.task):
        other = advice.tasks.get(options.task or "")
        able = [entry.name for entry in registry.entries("zoo.backbones") if entry.ours and options.task in tasks_of(entry)]
        hint = f"use --data '{other.data}', say" if other else f"{', '.join(able)} can" if able else "give other --data"
        raise InputError(f"--task {options.task}: '{options.data}' is for {data.task}; {hint}")
    return data


def check_data(options: Fit, data: Any) -> None:
    """Compare what the data hold, once they are set up, with what the backbone reads and with the options for text.

    Raises:
        InputError: If they do not fit together.
    """
    reads, kind = recipe_for(options.backbone).inputs, data.info.inputs
    if reads and kind not in reads:
        wanted = {kind, "token_stream"} if kind == "tokens" else {kind}  # which is the same text, handed out in another order
        others = [entry.name for entry in registry.entries("zoo.backbones") if entry.ours and wanted & {*reads_of(entry)}]
        hint = f"; {', '.join(others)} can" if others else ""
        raise InputError(f"{options.backbone} reads {KINDS[reads[0]]}, and '{options.data}' holds {KINDS[kind]}{hint}")
    for name, kinds in (("embedding", TEXTS), ("vectors", ("text", "text_pair"))):
        if getattr(options, name) is not None and kind not in kinds:
            raise InputError(f"--{name} is for text, and '{options.data}' holds {KINDS[kind]}")


def load_data(options: Fit) -> Any:
    """Make, prepare and set up the data module that the options name.

    Raises:
        InputError: If the data are wrong, or do not fit the backbone.
    """
    data = ready(make_data(options))
    check_data(options, data)
    return data


def recipe_for(backbone: str) -> Recipe:
    """Return the recipe of the backbone that a spec names."""
    return recipe_of(registry.load(registry.resolve("zoo.backbones", backbone)[0]))


def task_options(options: Fit) -> dict[str, Any]:
    """Return the keywords of the task that the options of a run stand for.

    Raises:
        InputError: If the optimizer or the schedule is unknown, or a number is out of range.
    """
    o, s = options.optimizer, options.schedule
    check_optimizer(o.name, o.lr, o.weight_decay, o.betas, o.eps, prefix="optimizer.")
    check_schedule(s.name, s.warmup, s.floor, prefix="schedule.")
    found: dict[str, Any] = {"optimizer": o.name, "lr": o.lr, "weight_decay": o.weight_decay, "betas": o.betas, "eps": o.eps}
    found |= {"schedule": s.name, "warmup": s.warmup, "floor": s.floor}
    if options.label_smoothing is not None:
        found["label_smoothing"] = options.label_smoothing
    if options.decoding != Decoding():
        found["decoding"] = options.decoding
    return found


def reads_of(entry: registry.Entry) -> tuple[str, ...]:
    """The kinds of data that a backbone says it reads."""
    return recipe_of(registry.load(entry)).inputs


def tasks_of(entry: registry.Entry) -> Mapping[str, Recipe]:
    """The tasks, beside its first, that a backbone has a recipe for."""
    return recipe_of(registry.load(entry)).tasks
