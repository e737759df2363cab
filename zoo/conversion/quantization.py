"""Store the weights of a network as integers of 8 or 4 bits, and without zeros."""

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


class Sparse(nn.Module):
    r"""The numbers of a tensor that are not zero, and a bit for each number that says whether it is stored.

    Bit k of byte i stands for number 8 i + k. The stored numbers are floats, or those of `Int8` or `Int4`.
    """

    def __init__(self, w: Tensor, axes: int, bits: int | None) -> None:
        super().__init__()
        self.shape, self.dtype, self.bits = w.shape, w.dtype, bits
        self.numbers: Any = None if bits is None else FORMATS[bits](w if bits == 8 else _at_nonzero(w, w), axes)

    def right_inverse(self, w: Tensor) -> tuple[Tensor, ...]:
        """Return the bits, [bytes], and the stored numbers; for `Int8` and `Int4` their integers and scales."""
        is_stored = nn.functional.pad((w != 0).flatten().to(torch.uint8), (0, -w.numel() % 8)).view(-1, 8)
        mask = (is_stored << torch.arange(8, dtype=torch.uint8, device=w.device)).sum(1, dtype=torch.uint8)
        if self.bits == 8:
            q, scale = self.numbers.right_inverse(w)
            return mask, _at_nonzero(w, q), scale
        kept = _at_nonzero(w, w)
        return mask, *((kept,) if self.bits is None else self.numbers.right_inverse(kept))

    def forward(self, mask: Tensor, numbers: Tensor, scale: Tensor | None = None) -> Tensor:
        """Return w."""
        if self.bits == 4:
            numbers, scale = self.numbers(numbers, scale), None
        powers = 2.0 ** -torch.arange(8, device=mask.device)
        shifted = mask.unsqueeze(1).float() * powers
        is_stored = shifted.floor() - 2 * (shifted / 2).floor()
        is_stored = is_stored.flatten()[: math.prod(self.shape)]
        place = is_stored.long().cumsum(0).sub(1).clamp(0)
        w = (numbers.float()[place] * is_stored).view(self.shape)
        return (w if scale is None else w * scale).to(self.dtype)


def _at_nonzero(w: Tensor, q: Tensor) -> Tensor:
    """Return the entries of q where w is not zero, or the first one if there are none."""
    return q[w != 0] if w.any() else q.flatten()[:1]


FORMATS: dict[int, type[nn.Module]] = {8: Int8, 4: Int4}
"""The integers that store a weight, by their bits."""
SIZES = {None: 32, 8: 8, 4: 4.5}
"""Bits of a stored number, with its scale."""
BITS = {f"int{bits}": bits for bits in FORMATS}
"""Bits by the name of an option."""


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
    return store(model, bits)


def store(model: Model, bits: int | None, sparse: bool = False) -> Model:
    """Return a copy as `quantize`; with ``sparse``, weights with many zeros are stored as `Sparse`, also without ``bits``."""
    copied = copy.deepcopy(model)
    net: Any = copied if isinstance(copied, nn.Module) else copied.net  # type: ignore[attr-defined]
    if getattr(net, "is_quantized", False):
        raise InputError("the network is already quantized: quantize the original one", code="conflict")
    stored: dict[int, Any] = {}
    for name, module, key, w in list(_weights(net)):
        _check_range(name, w, bits)
        form = _form(w, _scaled_axes(module, w), bits, sparse)
        if form is None:
            continue
        w.requires_grad_(False)
        shared = stored.get(id(w))
        parametrize.register_parametrization(module, key, form)
        forms: Any = module.parametrizations
        parts = forms[key]
        if shared is not None:
            for original, part in shared.named_parameters():
                setattr(parts, original, part)
        stored[id(w)] = parts
        if isinstance(module, Weight):
            module.forget()
    if not isinstance(copied, nn.Module):
        copied.metrics = {}  # type: ignore[attr-defined]
    net.is_quantized = True
    return copied


def _form(w: Tensor, axes: int, bits: int | None, sparse: bool) -> nn.Module | None:
    """Return the form in which a weight is stored, or None to store it as it is."""
    if sparse and 1 + SIZES[bits] * w.count_nonzero() / w.numel() < SIZES[bits]:
        return Sparse(w, axes, bits)
    return None if bits is None else FORMATS[bits](w, axes)


def dequantized(net: nn.Module) -> nn.Module:
    """Replace the stored integers of a network by the floats that they stand for, and return the network."""
    for module in list(net.modules()):
        forms: Any = getattr(module, "parametrizations", {}) if parametrize.is_parametrized(module) else {}
        for key in list(forms):
            if isinstance(forms[key][0], (Sparse, *FORMATS.values())):
                parametrize.remove_parametrizations(module, key)
    return net


def _weights(net: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """Yield the name of the module, the module, the name in it and the tensor of all parameters with two axes longer than 1."""
    for name, module in net.named_modules():
        if isinstance(module, parametrize.ParametrizationList):
            raise InputError(f"'{name}' cannot be quantized: call remove_parametrizations of torch first", code="unsupported")
        if isinstance(module, Algebra):
            continue
        for key, w in module.named_parameters(recurse=False, remove_duplicate=False):
            if not w.is_floating_point() or sum(size > 1 for size in w.shape) < 2:
                continue
            yield name, module, key, w


def _check_range(name: str, w: Tensor, bits: int | None) -> None:
    """Raise `InputError` if a weight is not finite, or too large for the scales of `Int4`."""
    if not w.isfinite().all():
        raise InputError(f"'{name}' cannot be quantized: it has weights that are not finite", code="unsupported")
    if bits == 4 and not (w.float().abs().max() / 8).half().isfinite():
        raise InputError(f"'{name}' is too large for 4 bits and float16 scales: use bits=8", code="unsupported")


def _scaled_axes(module: nn.Module, w: Tensor) -> int:
    """Return the number of leading axes that have scales: the output channels, after the components of an algebra."""
    if isinstance(module, Weight) and module.inp.n > 1:
        return 2
    return 1 + next(axis for axis, size in enumerate(w.shape) if size > 1)


class RoundedWeights:
    """The weights of a network, which can be rounded in place to the numbers that `quantize` stores, and restored.

    `quantize` returns the same integers for the restored network.
    """

    def __init__(self, net: nn.Module, bits: int) -> None:
        weights = {id(w): (w, FORMATS[bits](w, _scaled_axes(module, w))) for _, module, _, w in reversed(list(_weights(net)))}
        self.weights: list[tuple[Tensor, Any]] = list(weights.values())  # shared ones have the form of the first
        self.originals: list[Tensor] = []

    @torch.no_grad()
    def round(self) -> None:
        """Round the weights, unless they are rounded."""
        if not self.originals:
            self.originals = [w.clone() for w, _ in self.weights]
            for w, form in self.weights:
                w.copy_(form(*form.right_inverse(w))).add_(0.0)  # -0.0 becomes 0.0, which a ticket does not store

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the weights, if they are rounded."""
        for (w, _), original in zip(self.weights, self.originals, strict=False):
            w.copy_(original)
        self.originals = []
