"""Build networks from specs, count their parameters, and check them before a run."""

import copy
import math
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from zoo import registry
from zoo.algebras import Algebra, reals
from zoo.backbones.recipe import recipe_of
from zoo.errors import InputError, one_line
from zoo.layers import Embedding, Layers

Factory = Callable[..., nn.Module]
"""The factory of a backbone: maps a `Layers` (positional) and facts about the data (keywords) to a network."""
WIDTHS = ("dim", "ffn", "hidden", "filters", "embedding_dim")
"""Options of backbones that are numbers of channels."""
MAX_TENSORS = 10_000
"""The maximum number of parameter tensors of a network."""
_TEXT = {"vocab_size": 11, "max_length": 7, "num_classes": 3}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "image": {"in_channels": 3, "image_size": 32, "num_classes": 3},
    "vector": {"in_features": 8, "out_features": 8},
    "text": _TEXT,
    "text_pair": _TEXT | {"pair": True},
    "tokens": _TEXT,
    "token_stream": _TEXT,
    "source_target": _TEXT | {"seq2seq": True},
}
"""Facts about example data, by `DataInfo.inputs`."""


def backbone(
    spec: str | Factory | nn.Module,
    algebra: str | Algebra,
    *,
    scope: str = "all",
    init: str = "variance",
    embedding: str | None = None,
    vectors: int | None = None,
    **info: Any,
) -> nn.Module:
    """Build a network over an algebra.

    Args:
        spec: A spec such as ``"vit(dim=64)"`` or ``"timm/resnet18"`` of any installed plugin; a factory, called as
            ``factory(layers, **info)`` with the keywords that it accepts; or a network, which is returned unchanged.
        algebra: A spec such as ``"quaternion"``, or an `Algebra`.
        scope: Which roles are hypercomplex, see `zoo.layers.factory.parse_scope`.
        init: Initialisation of the matrices, see `zoo.layers.init`.
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
    with limited_size(str(spec)):
        net = registry.create("zoo.backbones", spec, layers, **info) if isinstance(spec, str) else _call(spec, layers, info)
    if not isinstance(net, nn.Module):
        raise InputError(f"the factory of backbone '{spec}' returned {type(net).__name__}, expected a torch.nn.Module")
    return net


def _call(factory: Factory, layers: Layers, info: Mapping[str, Any]) -> Any:
    if not callable(factory):
        raise InputError(f"expected a spec, a factory or a torch.nn.Module as backbone, got {factory!r:.60}")
    accepted = signature(factory).parameters
    if not any(p.kind is Parameter.VAR_KEYWORD for p in accepted.values()):
        info = {name: value for name, value in info.items() if name in accepted}
    return factory(layers, **info)


def real_twin(spec: str | Factory, **info: Any) -> nn.Module:
    """Build the same network over the reals to count its parameters, on the meta device if possible."""
    spec = untrained(spec) if isinstance(spec, str) else spec
    try:
        with torch.device("meta"):
            return backbone(spec, reals(), **info)
    except Exception:  # a third-party network may compute with its weights when it is built
        with torch.random.fork_rng(devices=[]):
            return backbone(spec, reals(), **info)


def equal_size(spec: str, total: int, **info: Any) -> tuple[str, int] | None:
    """Return the spec and size of the real network whose number of parameters is nearest to ``total``.

    Scales all widths (`WIDTHS`) together, in steps of the attention heads. Returns None for backbones without an option
    ``dim``, or if no such network can be built. See `backbone` for ``info``.
    """
    parsed, factory = registry.Spec.parse(untrained(spec)), registry.load(registry.resolve("zoo.backbones", spec)[0])
    presets = getattr(factory, "presets", {})
    variant = parsed.name.partition("/")[2] or next(iter(presets), "")
    sizes = {name: p.default for name, p in signature(factory).parameters.items()}
    sizes |= (presets[variant]._asdict() if variant in presets else {}) | parsed.options
    widths = {name: sizes[name] for name in WIDTHS if isinstance(sizes.get(name), int)}
    if "dim" not in widths:
        return None
    step = sizes.get("heads") or 1

    def scaled(steps: int) -> tuple[str, int]:
        options = {name: round(width * steps * step / widths["dim"]) for name, width in widths.items()}
        scaled_spec = str(registry.Spec(parsed.name, {**parsed.options, **options}))
        return scaled_spec, count(real_twin(scaled_spec, **info))["total"]

    try:
        first = bisect_left(range(1, 2 * widths["dim"] // step), total, key=lambda steps: scaled(steps)[1]) + 1
        return min((scaled(steps) for steps in (first - 1, first) if steps), key=lambda pair: abs(pair[1] - total))
    except InputError:  # such as heads of odd size with rotary positions
        return None


def untrained(spec: str) -> str:
    """Return a spec without the option ``pretrained``."""
    parsed = registry.Spec.parse(spec)
    return str(registry.Spec(parsed.name, {key: value for key, value in parsed.options.items() if key != "pretrained"}))


def count(net: nn.Module) -> dict[str, int]:
    """Count all trainable parameters (``total``) and those of embedding tables (``embedding``)."""
    tables = [m for m in net.modules() if isinstance(m, (nn.Embedding, Embedding))]
    embedding = {id(p): p.numel() for table in tables for p in table.parameters() if p.requires_grad}
    return {"total": sum(p.numel() for p in net.parameters() if p.requires_grad), "embedding": sum(embedding.values())}


def check_spec(spec: str, algebra: str | Algebra, **options: Any) -> None:
    """Raise `InputError` for options that are invalid for all data, before data are loaded.

    Builds the network for two sizes of example data on the meta device; an error that occurs for both is raised. Third-party
    networks that cannot be built in this way are not checked.
    """
    entry, parsed = registry.resolve("zoo.backbones", untrained(spec))
    factory = registry.load(entry)
    inputs = next((name for name in recipe_of(factory).inputs if name in _EXAMPLES), None)
    required = {p.name for p in signature(factory).parameters.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty}
    if inputs is None or not required <= _EXAMPLES[inputs].keys() | parsed.options.keys():
        return
    errors: list[InputError] = []
    for scale in (1, 3):
        info: dict[str, Any] = {
            name: scale * value if type(value) is int else value for name, value in _EXAMPLES[inputs].items()
        }
        try:
            with torch.random.fork_rng(devices=[]), torch.device("meta"):
                backbone(str(parsed), copy.deepcopy(algebra), **options, **info)  # do not change a shared product
            return
        except Exception as error:
            if isinstance(error, registry.PluginError) or not isinstance(error, InputError):
                return
            errors.append(error)
    if str(errors[0]) == str(errors[1]):
        raise InputError(str(errors[0]), code=errors[0].code)


@contextmanager
def limited_size(spec: str) -> Iterator[None]:
    """Raise `InputError` if building a network needs more than the machine's memory or `MAX_TENSORS` parameter tensors."""
    memory, size, tensors = machine_memory(), 0, 0

    def add(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal size, tensors
        if parameter is None:
            return
        size, tensors = size + parameter.numel() * parameter.element_size(), tensors + 1
        if size > memory:
            raise InputError(f"{spec}: the parameters exceed the {memory / 1e9:.0f} GB of memory of this machine")
        if tensors > MAX_TENSORS:
            raise InputError(f"{spec}: more than {MAX_TENSORS:,} parameter tensors: use a smaller depth")

    hook = register_module_parameter_registration_hook(add)
    try:
        yield
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise InputError(f"{spec}: the parameters exceed the memory of this machine") from error
    finally:
        hook.remove()


def machine_memory() -> float:
    """Return the bytes of main memory, or infinity if unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def check_fit(net: nn.Module, spec: str, example: Tensor | tuple[Tensor, ...], outputs: int, every: bool = False) -> None:
    """Check a forward pass on example inputs [B, ...]; the mode of modules is preserved.

    Raises:
        InputError: If the forward pass fails, or the network does not return ``outputs`` numbers for each example, or with
            ``every`` for each token of the last input.
    """
    inputs = example if isinstance(example, tuple) else (example,)
    modes = {module: module.training for module in net.modules()}
    try:
        with torch.no_grad():
            y = net.eval()(*inputs)
    except InputError:
        raise
    except (RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
        shape = " and ".join("x".join(map(str, part.shape[1:])) for part in inputs)
        hint = "; try a larger size, as in --data 'digits(size=32)'" if inputs[0].ndim == 4 else ""
        raise InputError(f"{spec} cannot read inputs of shape {shape}: {one_line(error)}{hint}", code="mismatch") from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not isinstance(y, Tensor) or y.shape != (*inputs[-1].shape[: 2 if every else 1], outputs):
        got = list(y.shape[1:]) if isinstance(y, Tensor) else type(y).__name__
        expected = f"{outputs} numbers for every token" if every else f"{outputs} numbers"
        raise InputError(f"{spec} returns {got} for each input, expected {expected}", code="mismatch")
