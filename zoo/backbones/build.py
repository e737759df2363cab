"""Build networks from specs, with the training defaults of backbones, and check them before a run."""

import math
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from zoo import registry
from zoo.algebras import Algebra, reals
from zoo.errors import InputError, one_line
from zoo.nn import Embedding, Layers, batch_matrices, keep_matrices

Decorated = TypeVar("Decorated", bound=Callable[..., object])


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
        presets: Sizes of the variants of the backbone by name, the default first.
    """

    data: str = "digits"
    max_epochs: int = 30
    lr: float = 2e-3
    inputs: tuple[str, ...] = ()
    tasks: Mapping[str, "Recipe"] = MappingProxyType({})
    batch_size: int = 32
    presets: Mapping[str, Any] = MappingProxyType({})


def recipe(*args: Any, **defaults: Any) -> Callable[[Decorated], Decorated]:
    """Attach a `Recipe` with these arguments to the factory function of a backbone."""

    def attach(factory: Decorated) -> Decorated:
        factory.recipe = Recipe(*args, **defaults)  # type: ignore[attr-defined]
        return factory

    return attach


def recipe_of(factory: Callable[..., object]) -> Recipe:
    """Return the recipe of a factory, or the default one."""
    attached = getattr(factory, "recipe", None)
    return attached if isinstance(attached, Recipe) else Recipe()


def describe(net: nn.Module, **facts: Any) -> nn.Module:
    """Add facts to timm's description of a network, ``pretrained_cfg``, which `timm.data.resolve_model_data_config` reads."""
    net.pretrained_cfg = dict(getattr(net, "pretrained_cfg", {})) | facts  # type: ignore[assignment]
    net.default_cfg = net.pretrained_cfg  # timm's older name
    return net


Factory = Callable[..., nn.Module]  # maps a `Layers` (positional) and facts about the data (keywords) to a network
WIDTHS = ("dim", "ffn", "hidden", "filters", "embedding_dim")  # options of backbones that are numbers of channels
SMALLEST = 200_000
"""Mean number of parameters of a tensor below which the number of tensors limits a network, not that of its parameters."""
_EXAMPLE = {"in_channels": 3, "image_size": 32, "in_features": 8, "out_features": 8, "vocab_size": 11, "max_length": 7}


def backbone(
    spec: str | Factory | nn.Module,
    algebra: str | Algebra,
    *,
    scope: str = "all",
    init: str = "variance",
    embedding: str | None = None,
    vectors: int | None = None,
    **info: object,
) -> nn.Module:
    """Build a network over an algebra.

    Args:
        spec: A spec such as ``"vit(dim=64)"`` or ``"timm/resnet18"`` of any installed plugin; a factory, called as
            ``factory(layers, **info)`` with the keywords that it accepts; or a network, which is returned unchanged.
        algebra: A spec such as ``"quaternion"``, or an `Algebra`.
        scope: Which roles are hypercomplex, see `zoo.nn.factory.parse_scope`.
        init: Initialization of the matrices, see `zoo.nn.weight.draw_components`.
        embedding: Spec of the token embedding; by default that of the algebra's ``defaults``, or ``table``.
        vectors: Size of the pretrained word vectors that ``load_vectors`` of the embedding will receive.
        info: Facts about the data, such as ``in_channels=1, image_size=28, num_classes=2``; unsupported ones are ignored, and
            options in the spec override them.

    Example:
        >>> net = backbone("vit(dim=32, depth=1)", reals(), in_channels=1, image_size=8, num_classes=10)
        >>> net(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    if isinstance(spec, nn.Module):
        return spec
    layers = Layers(algebra, scope, init, embedding, vectors)
    try:
        if isinstance(spec, str):
            net = registry.create("zoo.backbones", spec, layers, **info)
        else:
            accepted = signature(spec).parameters
            takes_all = any(p.kind is Parameter.VAR_KEYWORD for p in accepted.values())
            net = spec(layers, **{name: value for name, value in info.items() if takes_all or name in accepted})
    except (RuntimeError, InputError) as error:
        if "allocate memory" not in str(error):
            raise
        raise InputError(f"{spec}: the parameters exceed the memory of this machine") from error
    if not isinstance(net, nn.Module):
        raise InputError(f"backbone {spec}: returned a {type(net).__name__}, expected a torch.nn.Module")
    return batch_matrices(net)


def real_twin(spec: str | Factory, **info: Any) -> nn.Module:
    """Build the same network over the reals to count its parameters, on the meta device if possible."""
    spec = untrained(spec) if isinstance(spec, str) else spec
    try:
        with torch.device("meta"):
            return backbone(spec, reals(), **info)
    except Exception:  # a third-party network may compute with its weights when it is built
        with torch.random.fork_rng(devices=[]):
            return backbone(spec, reals(), **info)


def equal_size(spec: str, total: int, **info: object) -> tuple[str, int] | None:
    """Return the spec and size of the real network whose number of parameters is nearest to ``total``.

    Scales all widths (`WIDTHS`) together, in steps of the attention heads. Returns None for backbones without an option
    ``dim``, or if no such network can be built. See `backbone` for ``info``.
    """
    parsed, factory = registry.Spec.parse(untrained(spec)), registry.load(registry.resolve("zoo.backbones", spec)[0])
    preset = _preset_of(spec)
    sizes = {name: p.default for name, p in signature(factory).parameters.items()} | preset | parsed.options
    widths = {name: sizes[name] for name in WIDTHS if isinstance(sizes.get(name), int)}
    if "dim" not in widths:
        return None
    step = sizes.get("heads") or 1
    fixed = parsed.options | ({"heads": step} if preset else {})  # or they would follow dim

    def scaled(steps: int) -> tuple[str, int]:
        options = {name: round(width * steps * step / widths["dim"]) for name, width in widths.items()}
        scaled_spec = str(registry.Spec(parsed.name, {**fixed, **options}))
        return scaled_spec, count(real_twin(scaled_spec, **info))["total"]

    try:
        first = bisect_left(range(1, 2 * widths["dim"] // step), total, key=lambda steps: scaled(steps)[1]) + 1
        return min((scaled(steps) for steps in (first - 1, first) if steps), key=lambda pair: abs(pair[1] - total))
    except InputError:  # such as heads of odd size with rotary positions
        return None


def state_sizes(spec: str) -> str:
    """Return the canonical text of a spec, with the sizes that follow its option ``dim``.

    A stored spec states them, so that it builds the same network wherever it is read.
    """
    parsed = registry.Spec.parse(spec)
    preset = _preset_of(spec) if "dim" in parsed.options else {}
    return str(registry.Spec(parsed.name, {name: preset[name] for name in ("ffn", "heads") if name in preset} | parsed.options))


def _preset_of(spec: str) -> dict[str, Any]:
    """Return the sizes of a spec by option; empty for a backbone without presets, or if an option is invalid."""
    entry, long = registry.resolve("zoo.backbones", spec)
    presets = recipe_of(registry.load(entry)).presets
    preset = presets.get(str(long.options.get("variant") or next(iter(presets), "")))
    if preset is None:
        return {}
    given = {name: value for name, value in long.options.items() if name in preset._fields and value is not None}
    return dict(preset.resize(**given)._asdict()) if isinstance(given.get("dim", 1), int) else {}


def untrained(spec: str) -> str:
    """Return a spec without the option ``pretrained``."""
    parsed = registry.Spec.parse(spec)
    return str(registry.Spec(parsed.name, {key: value for key, value in parsed.options.items() if key != "pretrained"}))


def count(net: nn.Module) -> dict[str, int]:
    """Count all trainable parameters (``total``) and those of embedding tables (``embedding``)."""
    tables = [m for m in net.modules() if isinstance(m, (nn.Embedding, Embedding))]
    embedding = {id(p): p.numel() for table in tables for p in table.parameters() if p.requires_grad}
    return {"total": sum(p.numel() for p in net.parameters() if p.requires_grad), "embedding": sum(embedding.values())}


def check_spec(spec: str, algebra: str | Algebra, most: float = math.inf, **options: object) -> None:
    """Raise `InputError` for options of our backbones that are invalid for all data, before data are loaded.

    Checks the network (`check_size`) for two sizes of example data; an error that occurs for both is raised.
    """
    if not registry.resolve("zoo.backbones", spec)[0].ours:
        return
    if isinstance(algebra, str):  # the runs of a sweep often have the same network
        _check_named(spec, algebra, most, tuple(options.items()))
    else:
        _check_examples(spec, algebra, most, options)


@lru_cache(1024)
def _check_named(spec: str, algebra: str, most: float, options: tuple[tuple[str, Any], ...]) -> None:
    _check_examples(spec, algebra, most, dict(options))


def _check_examples(spec: str, algebra: str | Algebra, most: float, options: dict[str, Any]) -> None:
    errors: list[InputError] = []
    for scale in (1, 3):
        info: dict[str, Any] = {name: scale * value for name, value in _EXAMPLE.items()}
        try:
            check_size(spec, algebra, most, num_classes=3, **options, **info)
            return
        except SizeError:
            raise
        except InputError as error:
            errors.append(error)
    if str(errors[0]) == str(errors[1]):
        raise errors[0]


class SizeError(InputError):
    """Raised for a network that exceeds a limit."""


def check_size(spec: str, algebra: str | Algebra, most: float, **options: Any) -> None:
    """Raise `InputError` if a network cannot be built or has more than ``most`` parameters; allocates no memory.

    The network is built on the meta device, and no more than ``most`` / `SMALLEST` tensors of it. A network that computes with
    its weights when it is built is not checked.
    """
    advice = "use a smaller network, or raise --max-parameters"
    tensors = max(1000, int(min(most / SMALLEST, sys.maxsize)))
    text = f"{spec}: more than {tensors:,} parameter tensors, the limit for {most:,.0f} parameters: {advice}"
    given = deepcopy(algebra)  # a given algebra would be moved
    try:
        with torch.random.fork_rng(devices=[]), outlined(tensors, text):
            net = backbone(untrained(spec), given, **options)
    except InputError as error:
        if isinstance(error, registry.PluginError) or "meta" in str(error).lower():  # this device does not support the network
            return
        raise
    size = sum(tensor.numel() for tensor in (*net.parameters(), *net.buffers()))
    if size > most:
        raise SizeError(f"{spec}: {size:,} parameters, the limit is {most:,.0f}: {advice}")


@contextmanager
def outlined(most: int, message: str) -> Iterator[None]:
    """Build networks on the meta device, and raise `SizeError` with a message as soon as one registers too many parameters.

    The limit must be generous because timm models first build their real layers, which are then converted.
    """
    count = 0

    def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        count += threading.get_ident() == thread
        if count > most:
            raise SizeError(message)

    thread = threading.get_ident()  # networks of other threads are not counted
    hook = register_module_parameter_registration_hook(register)
    try:
        with torch.device("meta"):
            yield
    finally:
        hook.remove()


def check_fit(net: nn.Module, spec: str, example: Tensor | tuple[Tensor, ...], outputs: int, every: bool = False) -> None:
    """Check that a network returns ``outputs`` numbers for each example of inputs [B, ...].

    With ``every`` it must return them for each token of the last input. The mode of modules is preserved. Matrices are kept, as
    in validation, because the plan would otherwise compile an operator for two examples.
    """
    inputs = example if isinstance(example, tuple) else (example,)
    modes = {module: module.training for module in net.modules()}
    try:
        with torch.no_grad(), keep_matrices(net):
            y = net.eval()(*inputs)
    except InputError:
        raise
    except (RuntimeError, ValueError, AssertionError, IndexError, TypeError, AttributeError) as error:
        shape = " and ".join("x".join(map(str, part.shape[1:])) for part in inputs)
        hint = "; try a larger size, as in --data 'digits(size=32)'" if inputs[0].ndim == 4 else ""
        if isinstance(error, IndexError) and not inputs[0].is_floating_point():
            hint = f"; the vocabulary must have at least {int(inputs[0].max()) + 1} tokens"
        raise InputError(f"{spec} cannot read inputs of shape {shape}: {one_line(error)}{hint}", code="mismatch") from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not isinstance(y, Tensor) or y.shape != (*inputs[-1].shape[: 2 if every else 1], outputs):
        got = list(y.shape[1:]) if isinstance(y, Tensor) else type(y).__name__
        expected = f"{outputs} numbers for every token" if every else f"{outputs} numbers"
        raise InputError(f"{spec} returns {got} for each input, expected {expected}", code="mismatch")
