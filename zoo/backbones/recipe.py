"""The defaults that a backbone brings: what it trains on and for how long."""

from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from torch import nn

from zoo.layers import Layers

Factory = TypeVar("Factory", bound=Callable[..., object])


class Recipe(NamedTuple):
    """Defaults of a run; each of them can be overridden on the command line.

    Attributes:
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


def recipe(*args: Any, **defaults: Any) -> Callable[[Factory], Factory]:
    """Attach a `Recipe`, made of its arguments, to a backbone's factory function."""
    made = Recipe(*args, **defaults)

    def attach(factory: Factory) -> Factory:
        factory.recipe = made  # type: ignore[attr-defined]
        return factory

    return attach


def recipe_of(factory: Callable[..., object]) -> Recipe:
    """Return the recipe of a factory, or the general one."""
    found = getattr(factory, "recipe", None)
    return found if isinstance(found, Recipe) else Recipe()


def passes_options_to(
    function: Callable[..., object], presets: Mapping[str, Any] | None = None
) -> Callable[[Factory], Factory]:
    """Put the keyword-only options of a function, to which a factory passes its ``**options``, into the factory's signature.

    ``presets`` are the sizes of its variants by name, the default first.
    """

    def attach(factory: Factory) -> Factory:
        form = signature(factory)
        own = {name: p for name, p in form.parameters.items() if p.kind is not p.VAR_KEYWORD}
        passed = {name: p for name, p in signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY}
        factory.__signature__ = form.replace(parameters=list((own | (passed | own)).values()))  # type: ignore[attr-defined]
        factory.__annotations__ = function.__annotations__ | factory.__annotations__
        if presets:
            factory.presets = presets  # type: ignore[attr-defined]
        return factory

    return attach


@recipe(data="hamilton", max_epochs=40, lr=1e-2, inputs=("vector",))
def linear(layers: Layers, *, in_features: int, out_features: int, bias: bool = False, rank: int | None = None) -> nn.Module:
    """One layer over the algebra, for vectors: learns a rotation or a product from data (Zhang et al. 2021, Fig. 2).

    Args:
        layers: The factory that knows the algebra.
        in_features: Real channels of an input, [B, in_features].
        out_features: Real channels of a target, [B, out_features].
        bias: Whether to add one.
        rank: Real channels between two layers whose product takes the place of the one; by default there is one layer.
    """
    if rank is not None:
        inner = layers.linear(in_features, rank, False, role="ffn")
        return nn.Sequential(inner, layers.linear(rank, out_features, bias, role="ffn"))
    return layers.linear(in_features, out_features, bias, role="ffn")
