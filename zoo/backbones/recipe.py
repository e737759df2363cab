"""The training defaults of backbones."""

from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

Factory = TypeVar("Factory", bound=Callable[..., object])


class Recipe(NamedTuple):
    """Defaults of a run; each can be overridden on the command line.

    Attributes:
        data: Spec of a data set that is available offline.
        max_epochs: Number of training epochs.
        lr: Peak learning rate.
        inputs: The supported values of `DataInfo.inputs`: ``image``, ``text``, ``text_pair``, ``vector``, ``tokens`` (shuffled
            blocks of running text), ``token_stream`` (running text in order, for networks with a memory), ``source_target``;
            empty if unknown.
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
    """Attach a `Recipe` with these arguments to the factory function of a backbone."""

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
    """Add the keyword-only options of a function, which receives the factory's ``**options``, to the factory's signature.

    ``presets`` are the sizes of its variants by name, the default first.
    """

    def attach(factory: Factory) -> Factory:
        original = signature(factory)
        named = {name: p for name, p in original.parameters.items() if p.kind is not p.VAR_KEYWORD}
        passed = {name: p for name, p in signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY}
        parameters = list((named | (passed | named)).values())
        factory.__signature__ = original.replace(parameters=parameters)  # type: ignore[attr-defined]
        factory.__annotations__ = function.__annotations__ | factory.__annotations__
        if presets:
            factory.presets = presets  # type: ignore[attr-defined]
        return factory

    return attach
