"""Resolve the options of a run and the objects in them: fill in defaults, and check everything that does not require data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import nn

from zoo import registry
from zoo.algebras import Algebra
from zoo.algebras import algebra as make_algebra
from zoo.backbones import recipe_of
from zoo.backbones.build import Recipe, check_spec, state_sizes
from zoo.conversion.quantization import BITS
from zoo.data import ready
from zoo.data.tabular import from_arrays
from zoo.errors import InputError, check_choice
from zoo.kernels.base import check_kernel
from zoo.registry.limits import check_sizes
from zoo.tasks import GenerativeTask, task_type
from zoo.tasks.base import Task, check_task
from zoo.tasks.distillation import check_distilled
from zoo.tasks.optimization import check_optimizer
from zoo.tasks.options import Decoding, DistillationOptions
from zoo.training.options import (
    OBJECT,
    SPECS,
    Fit,
    config_values,
    fixed_options,
    is_object,
)
from zoo.training.sources import InitialWeights, Teacher

INPUTS = {
    "image": "images",
    "text": "texts",
    "text_pair": "pairs of texts",
    "vector": "vectors",
    "tokens": "running text",
    "token_stream": "running text in order",
    "source_target": "texts and their answers",
}
"""Names of input kinds in messages."""
_TASK_OPTIONS = ("optimizer", "schedule", "label_smoothing", "metrics", "decoding")
"""The options of a run that are arguments of its task."""
_LAYER_OPTIONS = ("scope", "init", "embedding")
"""The options of a run that choose the layers of its backbone."""
REALS = "real"
"""The algebra of a network without hypercomplex layers."""
KINDS: dict[str, Callable[[Any], bool]] = {
    "algebra": lambda value: isinstance(value, Algebra),
    "backbone": callable,
    "data": lambda value: isinstance(value, LightningDataModule),
    "task": lambda value: isinstance(value, Task) or (isinstance(value, type) and issubclass(value, Task)),
}
"""The options that may be objects, and a check of the object."""


@dataclass(frozen=True)
class Objects:
    """The objects in the options of a run; None for an option that is a spec.

    The backbone may be a network or a factory, and the task a `Task` with its network or a subclass.
    """

    algebra: Algebra | None = None
    backbone: nn.Module | Callable[..., nn.Module] | None = None
    data: LightningDataModule | None = None
    task: Task | type[Task] | None = None

    @property
    def net(self) -> nn.Module | None:
        """The network, if it is an object or part of a task."""
        if isinstance(self.task, Task):
            return self.task.net
        return self.backbone if isinstance(self.backbone, nn.Module) else None

    @property
    def have_specs(self) -> bool:
        """Whether a spec stands for the network, so that another process can build it again."""
        return self.net is None and self.backbone is None and (self.algebra is None or stands_for_spec(self.algebra))

    @property
    def task_type(self) -> type[Task] | None:
        """The class of the task, if it is an object."""
        return self.task if isinstance(self.task, type | None) else type(self.task)


NO_OBJECTS = Objects()


@dataclass(frozen=True)
class Plan:
    """The checked parts of a run, before its data are read."""

    options: Fit
    config: dict[str, Any]
    fixed: dict[str, Any]  # the options that must not change on resume, by the names of their flags
    objects: Objects
    inputs: tuple[str, ...]  # the input kinds of the backbone; empty if unknown
    data: Any
    task: type[Task]
    task_options: dict[str, Any]  # the checked arguments of the task
    initial: InitialWeights | None
    teacher: Teacher | None

    @property
    def names(self) -> dict[str, Any]:
        """The specs of the run, and the names of its objects."""
        names = {name: getattr(self.options, name) for name in ("backbone", "algebra", "data", "scope", "init", "embedding")}
        return names | {"task": self.options.task or getattr(self.data, "task", None)}

    @property
    def layers(self) -> dict[str, Any]:
        """The keywords of a backbone that choose its layers."""
        return {name: getattr(self.options, name) for name in _LAYER_OPTIONS}

    @property
    def needs_order(self) -> bool:
        """Whether the data are read in order, which only one process can do."""
        return "token_stream" in self.inputs or getattr(self.objects.net, "has_memory", False)


def plan_run(options: Fit, objects: Objects = NO_OBJECTS) -> Plan:
    """Resolve the options of a run into its parts and check its network, without reading data or writing files."""
    options = resolve(options, objects)
    algebra = objects.algebra or options.algebra
    if objects.backbone is None and objects.net is None:
        layers = {name: getattr(options, name) for name in _LAYER_OPTIONS}
        check_spec(options.backbone, algebra, options.max_parameters, **layers)
    initial, teacher = None, None
    if options.init_from is not None:
        initial = InitialWeights(options.init_from, options.backbone, algebra, options.scope, options.init)
    if options.teacher is not None:
        teacher = Teacher(options.teacher, options.distillation)
    inputs = _recipe_for(options.backbone, objects).inputs
    data = _make_data(options, objects, inputs)
    task, keywords = _resolve_task(options, objects, data)
    config, fixed = config_values(options), fixed_options(options)
    return Plan(options, config, fixed, objects, inputs, data, task, keywords, initial, teacher)


def _resolve_task(options: Fit, objects: Objects, data: object) -> tuple[type[Task], dict[str, Any]]:
    name = options.task or getattr(data, "task", None)
    if objects.task is None and name is None:
        raise InputError(f"missing --task: the data '{options.data}' have no default task", code="missing")
    task, implied = (objects.task_type, {}) if objects.task_type is not None else task_type(str(name))
    if options.teacher is not None:
        check_distilled(task)
    elif options.distillation != DistillationOptions():
        raise InputError("--distillation needs --teacher", code="conflict")
    if not isinstance(objects.task, Task):
        given = {name: getattr(options, name) for name in _TASK_OPTIONS}
        chosen = {name: value for name, value in given.items() if value not in (None, (), Decoding())}
        checked = check_task(task, chosen | implied)
        check_optimizer(checked["optimizer"])
        if issubclass(task, GenerativeTask) and "decoding" in checked:
            task.check_decoding(checked["decoding"])
        return task, checked
    unset = replace(options, optimizer=replace(options.optimizer, lr=None))  # which the recipe has filled in
    if changed := [name for name in _TASK_OPTIONS if getattr(unset, name) != getattr(Fit("", ""), name)]:
        raise InputError(f"{', '.join(changed)}: set these in the task object instead", code="conflict")
    return task, {}


def resolve(options: Fit, objects: Objects = NO_OBJECTS) -> Fit:
    """Fill in the defaults of the backbone, and check names and ranges, without reading data."""
    check_kernel(options.kernel)
    check_choice("quantize_aware", "int8" if options.quantize_aware is None else options.quantize_aware, BITS)
    if options.kernel == "triton" and options.trainer.get("accelerator") == "cpu":
        raise InputError("kernel='triton': the accelerator is cpu")
    if not _is_given(options, "backbone", objects):
        entry, backbone = registry.resolve("zoo.backbones", options.backbone)
        check_sizes(entry.name, backbone.options)
    recipe = _recipe_for(options.backbone, objects)
    if options.task is not None and not _is_given(options, "task", objects):
        task_type(options.task)
        recipe = recipe.tasks.get(options.task, recipe)
    if options.data is None and objects.net is not None:
        raise InputError("missing data: a network object has no default data; pass a spec or a data module", code="missing")
    ignored = [name for name in _LAYER_OPTIONS if getattr(options, name) != getattr(Fit("", ""), name)]
    if ignored and objects.net is not None:
        raise InputError(f"{', '.join(ignored)}: a network is trained unchanged: leave {ignored[0]} out", code="conflict")
    options = replace(options, data=options.data or recipe.data)
    specs: dict[str, Any] = {}
    for name, group in SPECS.items():
        spec = getattr(options, name)
        if name != "task" and spec is not None and not _is_given(options, name, objects):
            registry.resolve(group, spec)
            specs[name] = state_sizes(spec) if name == "backbone" else canonical(spec)
    batch_size = recipe.batch_size if objects.data is None else getattr(objects.data, "batch_size", None)
    if objects.data is not None and (options.batch_size not in (None, batch_size) or options.num_workers):
        text = f"batch_size and num_workers: set these in the data module instead, which has batch_size={batch_size}"
        raise InputError(text, code="conflict")
    return replace(
        options,
        **specs,
        optimizer=replace(options.optimizer, lr=recipe.lr if options.optimizer.lr is None else options.optimizer.lr),
        batch_size=batch_size if options.batch_size is None else options.batch_size,
        trainer=({} if options.folds is None else {"devices": 1}) | _with_end(options, recipe.max_epochs),
    )


def effective(options: Fit) -> Fit:
    """Resolve options, and fill in the default task of the data and the default word embedding of the algebra.

    The task remains None if files of the data are missing.
    """
    options = resolve(options)
    inputs = _recipe_for(options.backbone).inputs
    reads_words = bool(inputs) and inputs[0] not in ("image", "vector")
    embedding = default_embedding(options.algebra) if reads_words else None
    task = options.task
    if task is None:
        with suppress(InputError):
            task = _make_data(options, NO_OBJECTS, inputs).task
    return replace(options, task=task, embedding=options.embedding or embedding)


def default_embedding(algebra: str) -> str:
    """Return the spec of the default word embedding of an algebra."""
    return "table" if is_object(algebra) else str(make_algebra(algebra).defaults.get("embedding", "table"))


def _is_given(options: Fit, name: str, objects: Objects) -> bool:
    if getattr(objects, name, None) is not None or (name in ("backbone", "algebra") and objects.net is not None):
        return True
    if is_object(getattr(options, name)):
        text = f"{name}: {getattr(options, name)}: a file cannot store it; pass it to zoo.fit again"
        raise InputError(text, code="unsupported")
    return False


def _with_end(options: Fit, max_epochs: int) -> dict[str, Any]:
    """Return the Trainer's arguments, with a default number of epochs unless epochs or steps are given."""
    epochs, steps = options.trainer.get("max_epochs"), options.trainer.get("max_steps")
    if steps in (None, -1) and epochs == -1 and (options.schedule.name != "constant" or options.schedule.warmup):
        raise InputError("a schedule needs an end: use --trainer.max_steps, or --schedule.name constant --schedule.warmup 0")
    return dict(options.trainer) if epochs is not None or steps is not None else {**options.trainer, "max_epochs": max_epochs}


def canonical(spec: str) -> str:
    """Normalize the spaces, quotes and order of options of a spec."""
    return str(registry.Spec.parse(spec))


def _recipe_for(backbone: str, objects: Objects = NO_OBJECTS) -> Recipe:
    """Return the recipe of a backbone; the default recipe for a network object."""
    if objects.net is not None:
        return Recipe()
    return recipe_of(objects.backbone or registry.load(registry.resolve("zoo.backbones", backbone)[0]))


def _make_data(options: Fit, objects: Objects, inputs: tuple[str, ...]) -> Any:
    """Create the data module of the options for the input kinds of a backbone, without reading data."""
    if objects.data is not None:
        return objects.data
    common = {"batch_size": options.batch_size, "num_workers": options.num_workers, "seed": options.seed}
    data = registry.create("zoo.datasets", options.data or "", **common, stream="token_stream" in inputs)
    if objects.task is None and options.task is not None:
        wanted, available = (set(task_type(spec)[0].inputs) for spec in (options.task, data.task))
        if not wanted & available:
            text = f"--task {options.task}: '{options.data}' is for {data.task}; use other --data"
            raise InputError(text, code="mismatch")
    return data


def check_data(inputs: tuple[str, ...], options: Fit, data: Any) -> None:
    """Check after setup that the backbone and the options for text support the data."""
    kind, name = data.info.inputs, options.data
    content = INPUTS.get(kind, kind)
    if inputs and kind not in inputs:
        accepted = {kind, "token_stream"} if kind == "tokens" else {kind}  # the same text in another order
        entries = [entry for entry in registry.entries("zoo.backbones") if entry.ours]
        able = ", ".join(entry.name for entry in entries if accepted & {*recipe_of(registry.load(entry)).inputs})
        text = f"{options.backbone} reads {INPUTS.get(inputs[0], inputs[0])}, but '{name}' contains {content}"
        raise InputError(f"{text}; backbones that do: {able}", code="mismatch")
    for option, value, fits in (
        ("embedding", options.embedding, getattr(data, "tokenizer", None) is not None),
        ("vectors", options.vectors, hasattr(data.info, "vectors")),
    ):
        if value is not None and not fits:
            raise InputError(f"--{option} is for text, but '{name}' contains {content}", code="mismatch")


def load_data(options: Fit) -> Any:
    """Create, prepare and set up the data module of the options."""
    inputs = _recipe_for(options.backbone).inputs
    data = ready(_make_data(options, NO_OBJECTS, inputs))
    check_data(inputs, options, data)
    return data


def take_objects(options: Mapping[str, Any], stored: Mapping[str, Any] = {}) -> tuple[Objects, dict[str, Any]]:
    """Separate objects from options; in the options, replace them by their specs or by names that mark them as objects.

    ``stored`` are the options of a resumed run, whose arrays are read as before.
    """
    options = dict(options)
    if isinstance(data := options.get("data"), tuple | list):
        if len(data) != 2:
            raise InputError(f"data: a {type(data).__name__} of {len(data)} values: use (X, y), inputs and targets")
        values = {**stored, **options}
        loading = {name: values[name] for name in ("batch_size", "num_workers") if values.get(name) is not None}
        options = {name: value for name, value in options.items() if name not in loading}
        options["data"] = from_arrays(*data, seed=values.get("seed", 0), **loading)
    given = {name: options[name] for name in KINDS if not isinstance(options.get(name), str | None)}
    named = dict(options)
    for name, value in given.items():
        if not KINDS[name](value):
            kinds = "an Algebra, a network or factory, a LightningDataModule or a Task"
            raise InputError(f"{name}={value!r:.60} must be a spec, or {kinds}")
        named[name] = _object_name(value)
    objects = Objects(**given)
    if isinstance(objects.task, Task):
        if options.get("backbone") is not None and objects.backbone is not objects.task.net:
            text = "the task already has a network: leave backbone out, or pass the class of the task"
            raise InputError(text, code="conflict")
        named["backbone"] = _object_name(objects.task.net)
    if objects.net is not None:
        named["algebra"] = _algebra_name(objects.net, named.get("algebra"))
    return objects, named


def _algebra_name(net: nn.Module, given: str | None) -> str:
    """Return the name of the algebra of a network, and check it against the given one."""
    names = {module.spec or f"that of the network {OBJECT}" for module in algebras_of(net)} or {REALS}
    text = ", ".join(sorted(names))
    if given is None:
        return text if len(names) == 1 else f"{text} {OBJECT}"
    if given not in names:
        actual = f"is over {text}" if names != {REALS} else "has no hypercomplex layers: convert it with zoo.convert first"
        raise InputError(f"algebra={given}: a network is trained unchanged, and this one {actual}", code="conflict")
    return given


def algebras_of(net: nn.Module) -> list[Algebra]:
    """Return the algebras of the hypercomplex layers of a network."""
    return [module for module in net.modules() if isinstance(module, Algebra) and module.n > 1]


def _object_name(value: object) -> str:
    """Return the spec of an object, or its type marked as an object."""
    if isinstance(value, Algebra) and stands_for_spec(value):
        return value.spec
    kind = value if isinstance(value, type) or not isinstance(value, nn.Module | LightningDataModule) else type(value)
    for entry in registry.entries("zoo.tasks") if isinstance(kind, type) and issubclass(kind, Task) else ():
        try:
            if registry.load(entry) is kind:
                return entry.name
        except InputError:  # ignore broken plugins
            continue
    return f"{kind.__module__}.{getattr(kind, '__qualname__', type(kind).__qualname__)} {OBJECT}"


def stands_for_spec(algebra: Algebra) -> bool:
    """Return whether the spec of an algebra builds one with the same product, or with the same distribution of products."""
    if not algebra.spec:
        return False
    with torch.random.fork_rng(devices=[]):
        rebuilt = make_algebra(algebra.spec)
    kinds = [(item.kind, item.shared, item.drawn, item.structure.shape) for item in (algebra, rebuilt)]
    is_equal = algebra.drawn or torch.equal(algebra.structure.cpu().double(), rebuilt.structure.cpu().double())
    return is_equal and kinds[0] == kinds[1]
