"""Python objects in place of specs in the options of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import nn

from zoo import registry
from zoo.algebras import Algebra
from zoo.algebras import algebra as make_algebra
from zoo.data.tabular import from_arrays
from zoo.errors import InputError, check_rules
from zoo.tasks.base import Task
from zoo.training.options import OBJECT

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
    def task_type(self) -> type[Task] | None:
        """The class of the task, if it is an object."""
        return self.task if isinstance(self.task, type | None) else type(self.task)


def take_objects(options: Mapping[str, Any]) -> tuple[Objects, dict[str, Any]]:
    """Separate objects from options; in the options, replace them by their specs or by names that mark them as objects."""
    options = dict(options)
    if isinstance(data := options.get("data"), tuple | list):
        loading = {name: options.pop(name) for name in ("batch_size", "num_workers") if options.get(name) is not None}
        options["data"] = from_arrays(*data, seed=options.get("seed", 0), **loading)
    given = {name: options[name] for name in KINDS if not isinstance(options.get(name), str | None)}
    named = dict(options)
    for name, value in given.items():
        text = f"{name}={value!r:.60} must be a spec, or an Algebra, a network or factory, a LightningDataModule or a Task"
        check_rules((KINDS[name](value), text))
        named[name] = object_name(value)
    objects = Objects(**given)
    if isinstance(objects.task, Task):
        is_twice = options.get("backbone") is not None and objects.backbone is not objects.task.net
        text = "the task already has a network: leave backbone out, or pass the class of the task"
        check_rules((not is_twice, text), code="conflict")
        named["backbone"] = object_name(objects.task.net)
    if objects.net is not None:
        named["algebra"] = algebra_name(objects.net, named.get("algebra"))
    return objects, named


def algebra_name(net: nn.Module, given: str | None) -> str:
    """Return the name of the algebra of a network, and check it against the given one."""
    names = {module.spec or f"that of the network {OBJECT}" for module in algebras_of(net)} or {REALS}
    text = ", ".join(sorted(names))
    if given is None:
        return text if len(names) == 1 else f"{text} {OBJECT}"
    if given not in names:
        actual = f"is over {text}" if names != {REALS} else "has no hypercomplex layers: convert it with zoo.convert first"
        raise InputError(f"algebra={given}: a network is trained as it is, and this one {actual}", code="conflict")
    return given


def algebras_of(net: nn.Module) -> list[Algebra]:
    """Return the algebras of the hypercomplex layers of a network."""
    return [module for module in net.modules() if isinstance(module, Algebra) and module.n > 1]


def object_name(value: Any) -> str:
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
    kinds = [(item.learned, item.shared, item.drawn, item.structure.shape) for item in (algebra, rebuilt)]
    is_equal = algebra.drawn or torch.equal(algebra.structure.cpu().double(), rebuilt.structure.cpu().double())
    return is_equal and kinds[0] == kinds[1]
