"""The defaults of a backbone: the data it trains on and for how long."""

from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

Factory = TypeVar("Factory", bound=Callable[..., object])


class Recipe(NamedTuple):
    """Defaults of a run; each can be overridden on the command line.

    Attributes:
        data: Spec of a data set that needs no network access.
        max_epochs: Epochs of training.
        lr: Peak learning rate.
        inputs: The values of `DataInfo.inputs` that the backbone reads: ``image``, ``text``, ``text_pair``, ``vector``,
            ``tokens`` (blocks of running text in any order), ``token_stream`` (running text in order, for networks with a
            memory), ``source_target``; empty if unknown.
        tasks: Recipes for other tasks, by name.
        batch_size: Examples per step.
    """

    data: str = "digits"
    max_epochs: int = 30
    lr: float = 2e-3
    inputs: tuple[str, ...] = ()
    tasks: Mapping[str, "Recipe"] = MappingProxyType({})
    batch_size: int = 32


def recipe(*args: Any, **defaults: Any) -> Callable[[Factory], Factory]:
    """Attach a `Recipe` with these arguments to a backbone's factory function."""

    def attach(factory: Factory) -> Factory:
        factory.recipe = Recipe(*args, **defaults)  # type: ignore[attr-defined]
        return factory

    return attach


def recipe_of(factory: Callable[..., object]) -> Recipe:
    """Return the recipe of a factory, or the default one."""
    attached = getattr(factory, "recipe", None)
    return attached if isinstance(attached, Recipe) else Recipe()


def passes_options_to(
    function: Callable[..., object], presets: Mapping[str, Any] | None = None
) -> Callable[[Factory], Factory]:
    """Add the keyword-only options of a function, to which a factory passes its ``**options``, to the factory's signature.

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
