"""What a backbone trains on, and for how long, when the user does not say."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

Factory = TypeVar("Factory", bound=Callable[..., object])


class Recipe(NamedTuple):
    """Defaults of a run; every one of them can be overridden on the command line.

    Args:
        data: Spec of a data set that needs no network.
        max_epochs: Epochs of training.
        lr: Peak learning rate.
        inputs: The kinds of data it can read: ``image``, ``text``, ``pair``, ``vector``, ``corpus``, ``stream`` (running text
            in order, for networks with a memory), ``parallel``; empty if that is not known.
        tasks: Other recipes, by the name of the task that the user asks for.
        batch_size: Examples per step.
    """

    data: str = "digits"
    max_epochs: int = 30
    lr: float = 2e-3
    inputs: tuple[str, ...] = ()
    tasks: Mapping[str, "Recipe"] = MappingProxyType({})
    batch_size: int = 32


def recipe(
    data: str = "digits",
    max_epochs: int = 30,
    lr: float = 2e-3,
    inputs: tuple[str, ...] = (),
    tasks: Mapping[str, Recipe] = MappingProxyType({}),
    batch_size: int = 32,
) -> Callable[[Factory], Factory]:
    """Attach a `Recipe` to a backbone's factory function."""

    def attach(factory: Factory) -> Factory:
        factory.recipe = Recipe(data, max_epochs, lr, inputs, tasks, batch_size)  # type: ignore[attr-defined]
        return factory

    return attach


def recipe_of(factory: Callable[..., object]) -> Recipe:
    """Return the recipe of a factory, or the general one."""
    found = getattr(factory, "recipe", None)
    return found if isinstance(found, Recipe) else Recipe()
