"""Python objects in place of the specs of a run."""

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
from zoo.data.arrays import from_arrays
from zoo.errors import InputError
from zoo.tasks.base import Task

MARK = "(an object given in Python)"
REALS = "real"
"""The algebra of a network in which no layer is over another one."""


@dataclass(frozen=True)
class Objects:
    """The objects that a run was given instead of specs; None where a spec was given.

    Attributes:
        algebra: An algebra; the network is built over this very object.
        backbone: A network, which is trained as it is, or a factory, called as ``factory(layers, **info)``.
        data: A data module; a pair of arrays has become one.
        task: A task with its network, or a subclass of `Task`.
    """

    algebra: Algebra | None = None
    backbone: nn.Module | Callable[..., nn.Module] | None = None
    data: LightningDataModule | None = None
    task: Task | type[Task] | None = None

    @property
    def net(self) -> nn.Module | None:
        """The network, if one was given, alone or in its task."""
        if isinstance(self.task, Task):
            return self.task.net
        return self.backbone if isinstance(self.backbone, nn.Module) else None


def take_objects(options: Mapping[str, Any]) -> tuple[Objects, dict[str, Any]]:
    """Separate objects from options, and leave in their place the spec that they stand for, or their type."""
    options = dict(options)
    if isinstance(data := options.get("data"), tuple | list):
        if len(data) != 2:
            raise InputError(f"data of {len(data)} parts: use a pair (X, y) of arrays, a spec or a data module")
        loading = {name: options.pop(name) for name in ("batch_size", "num_workers") if options.get(name) is not None}
        options["data"] = from_arrays(*data, seed=options.get("seed", 0), **loading)
    kinds: dict[str, tuple[Any, str]] = {
        "algebra": (lambda value: isinstance(value, Algebra), "an Algebra"),
        "backbone": (callable, "a torch.nn.Module or a factory"),
        "data": (lambda value: isinstance(value, LightningDataModule), "a LightningDataModule or a pair of arrays (X, y)"),
        "task": (lambda value: isinstance(value, Task) or (isinstance(value, type) and issubclass(value, Task)), "a Task"),
    }
    given = {name: options[name] for name in kinds if not isinstance(options.get(name), str | None)}
    named = dict(options)
    for name, value in given.items():
        fits, wanted = kinds[name]
        if not fits(value):
            raise InputError(f"{name}={value!r:.60} must be text (a spec) or {wanted}")
        named[name] = object_name(value)
    objects = Objects(**given)
    if isinstance(objects.task, Task):
        if options.get("backbone") is not None and objects.backbone is not objects.task.net:
            raise InputError("the task has a network: leave backbone out, or give the class of the task")
        named["backbone"] = object_name(objects.task.net)
    if objects.net is not None:
        own = {module.spec or f"that of the network {MARK}" for module in algebras_of(objects.net)} or {REALS}
        if named.get("algebra") is None:
            named["algebra"] = own.pop() if len(own) == 1 else f"{', '.join(sorted(own))} {MARK}"
        elif named["algebra"] not in own:
            found = (
                f"it is over {', '.join(sorted(own))}"
                if own != {REALS}
                else "no layer of it is: convert it first with zoo.convert"
            )
            raise InputError(f"algebra={named['algebra']}: a network is trained as it is, and {found}")
    return objects, named


def algebras_of(net: nn.Module) -> list[Algebra]:
    """Return the algebras of the layers of a network, but for the real numbers."""
    return [module for module in net.modules() if isinstance(module, Algebra) and module.n > 1]


def is_object(name: str | None) -> bool:
    """Return whether an option stands for an object that no spec names."""
    return name is not None and name.endswith(MARK)


def object_name(value: Any) -> str:
    """Return the spec that an object stands for, or its type and that it is an object."""
    if isinstance(value, Algebra) and stands_for_spec(value):
        return value.spec
    kind = value if isinstance(value, type) or not isinstance(value, nn.Module | LightningDataModule) else type(value)
    if isinstance(kind, type) and issubclass(kind, Task) and (name := registered_name(kind)):
        return name
    return f"{kind.__module__}.{getattr(kind, '__qualname__', type(kind).__qualname__)} {MARK}"


def stands_for_spec(algebra: Algebra) -> bool:
    """Return whether the spec of an algebra builds one with the same product, or one that is drawn as this one was."""
    if not algebra.spec:
        return False
    with torch.random.fork_rng(devices=[]):
        again = make_algebra(algebra.spec)
    kinds = [(one.learned, one.shared, one.drawn, one.structure.shape) for one in (algebra, again)]
    same = kinds[0] == kinds[1]
    return same and (algebra.drawn or torch.equal(algebra.structure.cpu().double(), again.structure.cpu().double()))


def registered_name(kind: type[Task]) -> str | None:
    """Return the name of a task class in the registry."""
    for entry in registry.entries("zoo.tasks"):
        try:
            if registry.load(entry) is kind:
                return entry.name
        except InputError:  # a broken plugin is no concern of this task
            continue
    return None
