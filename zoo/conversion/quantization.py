"""Store the weights of a network as integers of 8 or 4 bits."""

import copy
import math
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.nn.weight import Weight

Model = TypeVar("Model")


class Int8(nn.Module):
    r"""A tensor as int8, w = s q with q in [-127, 127] and one float32 scale s for each slice of the first ``axes`` axes."""

    def __init__(self, w: Tensor, axes: int) -> None:
        super().__init__()
        self.axes, self.dtype = axes, w.dtype

    def right_inverse(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return q and s."""
        w = w.float()
        scale = w.abs().amax(tuple(range(self.axes, w.dim())), keepdim=True) / 127
        q = (w / scale.where(scale > 0, 1)).round().clamp(-127, 127)
        return q.to(torch.int8), scale

    def forward(self, q: Tensor, scale: Tensor) -> Tensor:
        """Return w."""
        return (q * scale).to(self.dtype)


class Int4(nn.Module):
    r"""A tensor as 4-bit integers, w = s (q - 8) with q in [0, 15] and one float16 scale s for each group of 32 numbers.

    This is the format Q4_0 of llama.cpp: s is the number of the largest magnitude divided by -8, and byte i of a group contains
    number i in its low and number i + 16 in its high bits. Groups are contiguous in memory; the last one is padded.
    """

    group = 32

    def __init__(self, w: Tensor, axes: int) -> None:
        super().__init__()
        self.shape, self.dtype = w.shape, w.dtype

    def right_inverse(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the packed q, [groups, 16], and s, [groups, 1]."""
        flat = w.float().flatten()
        groups = nn.functional.pad(flat, (0, -len(flat) % self.group)).view(-1, self.group)
        scale = (groups.gather(1, groups.abs().argmax(1, keepdim=True)) / -8).half()
        rounded = scale.float()
        q = (groups / rounded.where(rounded != 0, 1)).round().add(8).clamp(0, 15).to(torch.uint8)
        low, high = q.chunk(2, 1)
        return low | high << 4, scale

    def forward(self, q: Tensor, scale: Tensor) -> Tensor:
        """Return w; in float operations, because exporters and runtimes support bits of integers badly."""
        both = q.float()
        high = (both * (1 / 16)).floor()
        w = (torch.cat([both - 16 * high, high], 1) - 8) * scale.float()
        size = math.prod(self.shape)
        w = w if w.numel() == size else w.flatten()[:size]
        return w.view(self.shape).to(self.dtype)


FORMATS: dict[int, type[nn.Module]] = {8: Int8, 4: Int4}
"""The integers that store a weight, by their bits."""


def quantize(model: Model, bits: int = 8) -> Model:
    r"""Return a copy whose weights are stored as integers of 8 or 4 bits, and computed from them when they are used.

    Over an algebra the components are quantized, so that both savings multiply: the real matrix is assembled from the
    dequantized components. Every parameter with two axes longer than 1 is quantized, real or not: linear layers, convolutions,
    LSTMs, embedding and position tables. Biases, norms and learned products remain floating-point numbers. ``bits=8`` has one
    scale for each output channel of a component (1/4 of the bytes of float32), ``bits=4`` one float16 scale for 32 numbers
    (1/7).

    The copy can predict, generate and evaluate, and be exported, but not be trained or saved as a model folder. The stored
    integers are parametrizations of torch: `torch.nn.utils.parametrize.remove_parametrizations` makes them floats again.

    Args:
        model: A network, or a `zoo.Model`; the metrics of the copy are empty, because they have to be measured again.
        bits: 8 or 4.

    Raises:
        InputError: If a weight is not finite or already parametrized, or the number of bits is not supported.

    Example:
        >>> small = quantize(nn.Linear(64, 2), bits=8)
        >>> small.parametrizations.weight.original0.dtype
        torch.int8
    """
    if bits not in FORMATS:
        raise InputError(f"bits={bits!r}: use 8 or 4")
    copied = copy.deepcopy(model)
    net: Any = copied if isinstance(copied, nn.Module) else copied.net  # type: ignore[attr-defined]
    if getattr(net, "is_quantized", False):
        raise InputError("the network is already quantized: quantize the original one", code="conflict")
    stored: dict[int, Any] = {}
    for module, key, w in list(_weights(net)):
        shared = stored.get(id(w))
        w.requires_grad_(False)
        parametrize.register_parametrization(module, key, FORMATS[bits](w, _scaled_axes(module, w)))
        parts: Any = module.parametrizations[key]
        if shared is not None:
            parts.original0, parts.original1 = shared.original0, shared.original1
        stored[id(w)] = parts
        if isinstance(module, Weight):
            module.forget()
    if not isinstance(copied, nn.Module):
        copied.metrics = {}  # type: ignore[attr-defined]
    net.is_quantized = True
    return copied


def dequantized(net: nn.Module) -> nn.Module:
    """Replace the stored integers of a network by the floats that they stand for, and return the network."""
    for module in list(net.modules()):
        for key in list(getattr(module, "parametrizations", ())) if parametrize.is_parametrized(module) else ():
            if isinstance(module.parametrizations[key][0], tuple(FORMATS.values())):  # type: ignore[index]
                parametrize.remove_parametrizations(module, key)
    return net


def _weights(net: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Yield the module, the name in it and the tensor of all parameters with two axes longer than 1."""
    for name, module in net.named_modules():
        if isinstance(module, parametrize.ParametrizationList):
            raise InputError(f"'{name}' cannot be quantized: call remove_parametrizations of torch first", code="unsupported")
        if isinstance(module, Algebra):
            continue
        for key, w in module.named_parameters(recurse=False, remove_duplicate=False):
            if not w.is_floating_point() or sum(size > 1 for size in w.shape) < 2:
                continue
            if not w.isfinite().all():
                raise InputError(f"'{name}' cannot be quantized: it has weights that are not finite", code="unsupported")
            yield module, key, w


def _scaled_axes(module: nn.Module, w: Tensor) -> int:
    """Return the number of leading axes that have scales: the output channels, after the components of an algebra."""
    if isinstance(module, Weight) and module.inp.n > 1:
        return 2
    return 1 + next(axis for axis, size in enumerate(w.shape) if size > 1)
