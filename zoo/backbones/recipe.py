"""The defaults that a backbone brings: what it trains on and for how long, and its presets of sizes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from torch import nn

from zoo.errors import InputError
from zoo.layers import Layers

Factory = TypeVar("Factory", bound=Callable[..., object])


class Recipe(NamedTuple):
    """Defaults of a run; each of them can be overridden on the command line.

    Args:
        data: Spec of a data set that needs no network access.
        max_epochs: Epochs of training.
        lr: Peak learning rate.
        inputs: The values of `DataInfo.inputs` that the backbone can read: ``image``, ``text``, ``text_pair``, ``vector``,
            ``tokens`` (blocks of running text in any order), ``token_stream`` (running text in order, for networks with a
            memory), ``source_target``; empty if that is not known.
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


def preset_sizes(backbone: str, presets: Mapping[str, Mapping[str, Any]], variant: str, **given: Any) -> dict[str, Any]:
    """Return the sizes of a preset, with the given ones in their place.

    Args:
        backbone: Its name, for messages.
        presets: Sizes by the name of a preset.
        variant: The preset.
        given: Sizes by name; None for those of the preset.

    Raises:
        InputError: If there is no such preset, or a size is less than one.
    """
    if variant not in presets:
        names = ", ".join(f"{backbone}/{name}" for name in presets)
        raise InputError(f"unknown preset {backbone}/{variant}: use {names}")
    found = {**presets[variant]} | {name: value for name, value in given.items() if value is not None}
    for name in ("dim", "depth", "heads", "ffn"):
        if found[name] < 1:
            raise InputError(f"{name}={found[name]}: a {backbone} has at least one")
    return found


@recipe(data="hamilton", max_epochs=40, lr=1e-2, inputs=("vector",))
def linear(layers: Layers, *, in_features: int, out_features: int, bias: bool = False) -> nn.Module:
    """One layer over the algebra, for vectors: learns a rotation or a product from data (Zhang et al. 2021, Fig. 2).

    Args:
        layers: The factory that knows the algebra.
        in_features: Real channels of an input, [B, in_features].
        out_features: Real channels of a target, [B, out_features].
        bias: Whether to add one.
    """
    return layers.linear(in_features, out_features, bias, role="ffn")
