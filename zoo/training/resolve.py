"""From what the user asked for to a run that can begin: names checked, gaps filled, options checked before data are read."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.algebras import algebra as make_algebra
from zoo.backbones import recipe_of
from zoo.backbones.build import check_spec
from zoo.backbones.recipe import Recipe
from zoo.checkpoint import read_config as read_model_config
from zoo.data import ready
from zoo.errors import InputError
from zoo.hub.sources import locate
from zoo.kernels.plan import check_kernel
from zoo.registry.signatures import check_sizes
from zoo.tasks import task_type
from zoo.tasks.base import Task
from zoo.tasks.decoding.options import Decoding
from zoo.tasks.optimization import check_optimizer, check_schedule
from zoo.training.objects import Objects, is_object
from zoo.training.options import Fit, parse_interval
from zoo.training.teacher import check_teacher

INPUTS = {
    "image": "images",
    "text": "texts",
    "text_pair": "pairs of texts",
    "vector": "vectors",
    "tokens": "running text",
    "token_stream": "running text in order",
    "source_target": "texts and their answers",
}
"""How messages call the kinds of input that the zoo has; others are called by their name."""


@dataclass(frozen=True)
class Plan:
    """A run that has passed every check that needs no data.

    Attributes:
        options: The options, with everything filled in.
        objects: The objects that stand in the place of specs.
        recipe: What the backbone recommends.
        data: The data module, not set up.
        task: The class of the task.
        task_options: The keywords of the task.
    """

    options: Fit
    objects: Objects
    recipe: Recipe
    data: Any
    task: type[Task]
    task_options: dict[str, Any]


def plan(options: Fit, objects: Objects | None = None, *, try_network: bool = False) -> Plan:
    """Fill in and check everything about a run that needs no data; nothing is written and no data are read.

    Args:
        options: The options of the run.
        objects: Objects in place of specs.
        try_network: Also build the network without memory for imaginary data, see `zoo.backbones.build.check_spec`: for
            experiments, in which it may be hours until the network of this run is built.
    """
    objects = objects or Objects()
    options, recipe = resolve(options, objects), recipe_for(options.backbone, objects)
    if try_network:
        layers = {"scope": options.scope, "init": options.init, "embedding": options.embedding}
        check_spec(options.backbone, objects.algebra or options.algebra, **layers)
    if options.init_from is not None:
        read_model_config(locate(options.init_from))
    if options.vectors is not None and not Path(options.vectors).expanduser().is_file():
        raise InputError(f"--vectors: the file '{options.vectors}' does not exist")
    data = make_data(options, objects)
    name = options.task or getattr(data, "task", None)
    if objects.task is None and name is None:
        raise InputError(f"{options.data} does not say what it is for: give a task")
    kind, own = (type_of(objects.task), {}) if objects.task is not None else task_type(str(name))
    given = task_options(options) | own
    check_teacher(options, kind)
    if not isinstance(objects.task, Task):
        kind.check_options(**given)
    elif changed := chosen(options):
        raise InputError(f"{', '.join(changed)}: the task that was given has its own; leave it out")
    return Plan(options, objects, recipe, data, kind, given)


def type_of(task: Task | type[Task]) -> type[Task]:
    """Return the class of a task."""
    return task if isinstance(task, type) else type(task)


def chosen(options: Fit) -> list[str]:
    """Return the options of the task that were given; a learning rate that was filled in was not."""
    options = replace(options, optimizer=replace(options.optimizer, lr=None))
    defaults = Fit("", "")
    names = ("optimizer", "schedule", "label_smoothing", "decoding", "metrics")
    return [name for name in names if getattr(options, name) != getattr(defaults, name)]


def resolve(options: Fit, objects: Objects | None = None) -> Fit:
    """Fill in what the user left to the backbone and check names and limits, without reading data."""
    objects = objects or Objects()
    check_numbers(options)
    groups = {"backbone": "zoo.backbones", "algebra": "zoo.algebras", "embedding": "zoo.embeddings", "data": "zoo.datasets"}
    if not stands(options, "backbone", objects):
        entry, spec = registry.resolve("zoo.backbones", options.backbone)
        check_sizes(entry.name, spec.options)
    recipe = recipe_for(options.backbone, objects)
    if options.task is not None and not stands(options, "task", objects):
        task_type(options.task)
        recipe = recipe.tasks.get(options.task, recipe)
    if options.data is None and objects.net is not None:
        raise InputError("a network recommends no data: give data, a spec or a data module")
    options = replace(options, data=options.data or recipe.data)
    for name, group in groups.items():
        text = getattr(options, name)
        if text is not None and not stands(options, name, objects):
            registry.resolve(group, text)
            named: dict[str, Any] = {name: canonical(text)}
            options = replace(options, **named)
    if objects.data is not None and (options.batch_size is not None or options.num_workers):
        raise InputError("batch_size and num_workers are those of the data module that was given: leave them out")
    batch_size = recipe.batch_size if objects.data is None else getattr(objects.data, "batch_size", None)
    return replace(
        options,
        optimizer=replace(options.optimizer, lr=recipe.lr if options.optimizer.lr is None else options.optimizer.lr),
        batch_size=batch_size if options.batch_size is None else options.batch_size,
        trainer=({} if options.folds is None else {"devices": 1}) | with_end(options, recipe.max_epochs),
    )


def effective(options: Fit) -> Fit:
    """Resolve options, and fill in the task that the data are for and the word embedding that the algebra advises.

    The task stays open if files of the data are missing: a configuration may be written before them.
    """
    options = resolve(options)
    inputs = recipe_for(options.backbone).inputs
    reads_words = bool(inputs) and inputs[0] not in ("image", "vector")
    advised = advised_embedding(options.algebra) if reads_words else None
    task = options.task
    if task is None:
        with suppress(InputError):
            task = make_data(options).task
    return replace(options, task=task, embedding=options.embedding or advised)


def advised_embedding(algebra: str) -> str:
    """Return the spec of the word embedding that an algebra advises, the table for one that advises none."""
    return "table" if is_object(algebra) else str(make_algebra(algebra).defaults.get("embedding", "table"))


def stands(options: Fit, name: str, objects: Objects) -> bool:
    """Return whether an option stands for an object that was given."""
    if getattr(objects, name, None) is not None or (name in ("backbone", "algebra") and objects.net is not None):
        return True
    if is_object(getattr(options, name)):
        raise InputError(f"{name}: {getattr(options, name)}: a file cannot hold it; give it to zoo.fit again")
    return False


def check_numbers(options: Fit) -> None:
    """Check the numbers of a run that are no task's and no data module's."""
    if not 0 <= options.seed < 2**32:
        raise InputError(f"seed={options.seed}: use a whole number from 0 to {2**32 - 1}")
    if options.matmul_precision not in (None, "highest", "high", "medium"):
        raise InputError(f"matmul_precision={options.matmul_precision}: use highest, high or medium")
    check_kernel(options.kernel)
    if options.kernel == "triton" and options.trainer.get("accelerator") == "cpu":
        raise InputError("kernel='triton' is for CUDA devices, and the accelerator is cpu: use auto, block or factored")
    if options.keep < 1:
        raise InputError(f"keep={options.keep}: use a whole number from 1, the last epoch is always kept")
    parse_interval(options.checkpoint_every)
    if options.ema is not None and not 0 < options.ema < 1:
        raise InputError(f"ema={options.ema} is the decay of a mean: use a number between 0 and 1, such as 0.999")


def with_end(options: Fit, max_epochs: int) -> dict[str, Any]:
    """Return the Trainer's arguments with a number of epochs, unless epochs or steps were given."""
    epochs, steps = options.trainer.get("max_epochs"), options.trainer.get("max_steps")
    endless = steps in (None, -1) and epochs == -1
    if endless and (options.schedule.name != "constant" or options.schedule.warmup):
        raise InputError("a schedule needs an end: give --trainer.max_steps, or --schedule.name constant --schedule.warmup 0")
    if epochs == 0 or steps == 0:
        raise InputError("--trainer.max_epochs and --trainer.max_steps begin at 1: a network that was not trained is no result")
    if options.trainer.get("limit_train_batches") == 0:
        raise InputError("--trainer.limit_train_batches begins at 1: a network that was not trained is no result")
    given = dict(options.trainer)
    return given if epochs is not None or steps is not None else {**given, "max_epochs": max_epochs}


def canonical(spec: str) -> str:
    """Write a spec as it was typed, in one way: spaces, quotes and the order of options do not matter."""
    return str(registry.Spec.parse(spec))


def recipe_for(backbone: str, objects: Objects | None = None) -> Recipe:
    """Return the recipe of a backbone's factory; the general one of a network that was given."""
    if objects is not None and (objects.net is not None or objects.backbone is not None):
        return Recipe() if objects.net is not None else recipe_of(objects.backbone)  # type: ignore[arg-type]
    return recipe_of(registry.load(registry.resolve("zoo.backbones", backbone)[0]))


def make_data(options: Fit, objects: Objects | None = None) -> Any:
    """Make the data module that the options name, without touching any data."""
    objects = objects or Objects()
    if objects.data is not None:
        return objects.data
    recipe = recipe_for(options.backbone, objects)
    common = {"batch_size": options.batch_size, "num_workers": options.num_workers, "seed": options.seed}
    data = registry.create("zoo.datasets", options.data or "", **common, stream="token_stream" in recipe.inputs)
    if objects.task is None and options.task is not None and not shares_inputs(options.task, data.task):
        other = recipe.tasks.get(options.task)
        able = [entry.name for entry in registry.entries("zoo.backbones") if entry.ours and options.task in tasks_of(entry)]
        hint = f"use --data '{other.data}', say" if other else f"{', '.join(able)} can" if able else "give other --data"
        raise InputError(f"--task {options.task}: '{options.data}' is for {data.task}; {hint}")
    return data


def shares_inputs(task: str, other: str) -> bool:
    """Tell whether two tasks learn from the same kind of data, so that one can take the place of the other."""
    kinds = [set(task_type(spec)[0].inputs) for spec in (task, other)]
    return bool(kinds[0] & kinds[1])


def check_data(options: Fit, recipe: Recipe, data: Any) -> None:
    """Compare what the data hold, once they are set up, with what the backbone reads and with the options for text."""
    kind = data.info.inputs
    held = INPUTS.get(kind, kind)
    if recipe.inputs and kind not in recipe.inputs:
        wanted = {kind, "token_stream"} if kind == "tokens" else {kind}  # which is the same text, handed out in another order
        others = [entry.name for entry in registry.entries("zoo.backbones") if entry.ours and wanted & {*inputs_of(entry)}]
        hint = f"; {', '.join(others)} can" if others else ""
        reads = INPUTS.get(recipe.inputs[0], recipe.inputs[0])
        raise InputError(f"{options.backbone} reads {reads}, and '{options.data}' holds {held}{hint}")
    takes = {"embedding": getattr(data, "tokenizer", None) is not None, "vectors": hasattr(data.info, "vectors")}
    for name, fits in takes.items():
        if getattr(options, name) is not None and not fits:
            raise InputError(f"--{name} is for text, and '{options.data}' holds {held}")


def load_data(options: Fit) -> Any:
    """Make, prepare and set up the data module that the options name."""
    data = ready(make_data(options))
    check_data(options, recipe_for(options.backbone), data)
    return data


def task_options(options: Fit) -> dict[str, Any]:
    """Return the keywords of the task that the options of a run stand for."""
    o, s = options.optimizer, options.schedule
    check_optimizer(o.name, o.lr, o.weight_decay, o.betas, o.eps, o.mup_base_width, prefix="optimizer.")
    check_schedule(s.name, s.warmup, s.floor, prefix="schedule.")
    found: dict[str, Any] = {"optimizer": o.name, "lr": o.lr, "weight_decay": o.weight_decay, "betas": o.betas, "eps": o.eps}
    found |= {"schedule": s.name, "warmup": s.warmup, "floor": s.floor}
    if o.mup_base_width is not None:
        found["mup_base_width"] = o.mup_base_width
    if options.label_smoothing is not None:
        found["label_smoothing"] = options.label_smoothing
    if options.decoding != Decoding():
        found["decoding"] = options.decoding
    if options.metrics:
        found["metrics"] = options.metrics
    return found


def inputs_of(entry: registry.Entry) -> tuple[str, ...]:
    """Return the kinds of input that a backbone says it reads."""
    return recipe_of(registry.load(entry)).inputs


def tasks_of(entry: registry.Entry) -> Mapping[str, Recipe]:
    """Return the tasks, beside its first, that a backbone has a recipe for."""
    return recipe_of(registry.load(entry)).tasks
