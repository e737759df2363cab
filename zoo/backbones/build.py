"""From specs to a network: building it, its real twin, counting its parameters, and checks before a run begins."""

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
"""A backbone's factory: takes a `Layers` by position and facts about the data by keyword, returns the network."""
WIDTHS = ("dim", "ffn", "hidden", "filters", "embedding_dim")
"""Options of backbones that count channels."""
MOST_TENSORS = 10_000
"""The most parameter tensors of a network."""
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
        spec: A spec such as ``"vit(dim=64)"`` or ``"timm/resnet18"``, from any installed plugin; or a factory, which is called
            as ``factory(layers, **info)`` with the keywords that it takes; or a network, which is returned as it is.
        algebra: A spec such as ``"quaternion"``, or an `Algebra`.
        scope: Which roles are hypercomplex, see `zoo.layers.factory.parse_scope`.
        init: Initialisation of the matrices, see `zoo.layers.init`.
        embedding: Spec of the word embedding; by default that of the algebra's ``defaults``, or ``table``.
        vectors: Width of the pretrained word vectors that the embedding's ``load_vectors`` will receive.
        info: Facts about the data, such as ``in_channels=1, image_size=28, num_classes=2``; those that a backbone does not
            take are left out, and options in the spec win.

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
        raise InputError(f"the factory of backbone '{spec}' returned {type(net).__name__}, not a torch.nn.Module")
    return net


def _call(factory: Factory, layers: Layers, info: Mapping[str, Any]) -> Any:
    if not callable(factory):
        raise InputError(f"a backbone is a spec, a function that builds a torch.nn.Module, or one; not {factory!r:.60}")
    taken = signature(factory).parameters
    if not any(p.kind is Parameter.VAR_KEYWORD for p in taken.values()):
        info = {name: value for name, value in info.items() if name in taken}
    return factory(layers, **info)


def real_twin(spec: str | Factory, **info: Any) -> nn.Module:
    """Build the same network over the reals to count it, without memory for its weights wherever possible."""
    spec = untrained(spec) if isinstance(spec, str) else spec
    try:
        with torch.device("meta"):
            return backbone(spec, reals(), **info)
    except Exception:  # A third-party network may compute with its weights while it is built, which needs memory.
        with torch.random.fork_rng(devices=[]):
            return backbone(spec, reals(), **info)


def equal_size(spec: str, total: int, **info: Any) -> tuple[str, int] | None:
    """Return the real network whose number of parameters is nearest to ``total``, as its spec and that number.

    Its widths (`WIDTHS`) are scaled together, in steps of the attention heads. None for a backbone without an option ``dim``,
    or if no such network can be built. See `backbone` for ``info``.
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
        narrower = str(registry.Spec(parsed.name, {**parsed.options, **options}))
        return narrower, count(real_twin(narrower, **info))["total"]

    try:
        first = bisect_left(range(1, 2 * widths["dim"] // step), total, key=lambda steps: scaled(steps)[1]) + 1
        return min((scaled(steps) for steps in (first - 1, first) if steps), key=lambda pair: abs(pair[1] - total))
    except InputError:  # such as heads of an odd width with rotary positions
        return None


def untrained(spec: str) -> str:
    """Return the spec without the option that loads pretrained weights, for when only the structure matters."""
    parsed = registry.Spec.parse(spec)
    return str(registry.Spec(parsed.name, {key: value for key, value in parsed.options.items() if key != "pretrained"}))


def count(net: nn.Module) -> dict[str, int]:
    """Count trainable parameters: all of them (``total``), and those in embedding tables (``embedding``)."""
    tables = [m for m in net.modules() if isinstance(m, (nn.Embedding, Embedding))]
    embedding = {id(p): p.numel() for table in tables for p in table.parameters() if p.requires_grad}
    return {"total": sum(p.numel() for p in net.parameters() if p.requires_grad), "embedding": sum(embedding.values())}


def check_spec(spec: str, algebra: str | Algebra, **options: Any) -> None:
    """Raise `InputError` for options that are wrong whatever the data, before any data are read.

    The network is built for example data, without memory for its weights. An error counts if it also occurs with data of
    another size. Networks of third parties that cannot be built this way pass.
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
                backbone(str(parsed), copy.deepcopy(algebra), **options, **info)  # a shared product would lose its values
            return
        except Exception as error:
            if isinstance(error, registry.PluginError) or not isinstance(error, InputError):
                return
            errors.append(error)
    if str(errors[0]) == str(errors[1]):
        raise InputError(str(errors[0]), code=errors[0].code)


@contextmanager
def limited_size(spec: str) -> Iterator[None]:
    """Raise `InputError` if a network that is built here needs more than the machine's memory or `MOST_TENSORS` tensors."""
    memory, size, tensors = machine_memory(), 0, 0

    def add(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal size, tensors
        if parameter is None:
            return
        size, tensors = size + parameter.numel() * parameter.element_size(), tensors + 1
        if size > memory:
            raise InputError(f"{spec}: its parameters need more than the {memory / 1e9:.0f} GB of memory of this machine")
        if tensors > MOST_TENSORS:
            raise InputError(f"{spec}: more than {MOST_TENSORS:,} layers and biases: use a smaller depth")

    hook = register_module_parameter_registration_hook(add)
    try:
        yield
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise InputError(f"{spec}: its parameters need more memory than this machine has") from error
    finally:
        hook.remove()


def machine_memory() -> float:
    """Return the bytes of main memory; infinity if the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def check_fit(net: nn.Module, spec: str, example: Tensor | tuple[Tensor, ...], outputs: int, every: bool = False) -> None:
    """Try one forward pass before a run begins, without changing the mode of any module.

    For every example of the inputs, [B, ...], the network must return ``outputs`` numbers, or as many for every token of the
    last input if ``every``; else an `InputError` names the backbone.
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
