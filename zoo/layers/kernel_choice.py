"""The product of a weight with rows of features: which kernel computes it, and when only the real matrix will do."""

import math
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._C import _is_any_autocast_enabled as is_any_autocast_enabled
from torch._C import _is_tracing as is_tracing
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from zoo.algebras import Algebra, Factors, TrackedParameter
from zoo.errors import InputError, shorten
from zoo.kernels import AxisLayout, block_linear, factored_linear, factorize, thin_linear
from zoo.kernels.factored_conv import Geometry, factored_conv
from zoo.kernels.plan import KERNELS, Work, choose, choose_on_gpu, convolves_factored
from zoo.kernels.triton_linear import Constants, can_compute, constants, missing, triton_linear

PLAIN = (Tensor, nn.Parameter, TrackedParameter)
MOST_CHOICES = 1000
PLANNED = (torch.float32, torch.float64)


class Components(Protocol):
    """What is multiplied with: the components of a `zoo.layers.weight.Weight`, their product and their layouts."""

    components: nn.Parameter
    algebra: Algebra
    out: AxisLayout
    inp: AxisLayout


class KernelChoice:
    """The kernels of one weight: the one that was asked for, the choices that were made, and the factors of a known product."""

    def __init__(self) -> None:
        self.kernel = "auto"
        self._choices: dict[tuple[Any, ...], str] = {}
        self._factors: dict[tuple[Any, ...], Factors | None] = {}
        self._constants: Constants | None = None

    def forget(self) -> None:
        """Choose anew: the device or the type of the weight may have changed."""
        self._choices.clear()
        self._factors.clear()
        self._constants = None

    def __call__(self, weight: Components, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """Multiply rows [..., in] by the weight, and add a bias; None where the real matrix, kept or not, does it best."""
        if is_compiling():
            return None
        w = weight.components
        training = torch.is_grad_enabled() and (x.requires_grad or w.requires_grad)
        if self.kernel == "triton" or x.is_cuda:
            y = self._by_triton(weight, x, bias, training)
            if y is not None:
                return y
        key = x.numel(), training, torch.get_num_threads()
        kernel = self._choices.get(key)
        if (kernel == "block" and not training) or not _is_plain(x, w, bias) or x.shape[-1] != weight.inp.channels:
            return None
        if kernel is None:
            if len(self._choices) >= MOST_CHOICES:
                self._choices.clear()
            kernel = self._choices[key] = self.choose(weight, x.numel() // max(1, weight.inp.channels), training, x)
            if kernel == "block" and not training:
                return None
        if kernel == "factored" and (factors := self.factors(weight, x)) is not None:
            return factored_linear(x, w, factors, weight.out, weight.inp, bias)
        if kernel == "thin" and not training:
            return thin_linear(x, w, weight.algebra.action, weight.out, weight.inp, bias)
        return block_linear(x, w, weight.algebra.action, weight.out, weight.inp, bias)

    def convolution(self, weight: Components, x: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor | None:
        """Convolve [N, in, *space] by factors and add a bias; None where the convolution with the real kernel does it best."""
        w, algebra = weight.components, weight.algebra
        if is_compiling() or self.kernel not in ("auto", "factored") or not algebra.known or not _is_plain(x, w, bias):
            return None
        whole = all(axis.blocks == 1 and axis.channels == axis.n * axis.width for axis in (weight.inp, weight.out))
        if not whole or x.dim() != w.dim() - 1 or x.shape[1] != weight.inp.channels or not x.is_contiguous():
            return None
        factors = self.factors(weight, x)
        if factors is None:
            return None
        if self.kernel == "auto":
            training = torch.is_grad_enabled() and (x.requires_grad or w.requires_grad)
            key = x.shape, training, torch.get_num_threads()
            if key not in self._choices:
                if len(self._choices) >= MOST_CHOICES:
                    self._choices.clear()
                self._choices[key] = self._planned_convolution(weight, x, training, geometry)
            if self._choices[key] != "factored":
                return None
        return factored_conv(x, w, factors, geometry, bias)

    def _planned_convolution(self, weight: Components, x: Tensor, training: bool, geometry: Geometry) -> str:
        if x.device.type != "cpu" or x.dtype not in PLANNED:
            return "block"
        kernel, space = weight.components.shape[3:], x.shape[2:]
        reach = [dilation * (size - 1) for dilation, size in zip(geometry.dilation, kernel, strict=True)]
        ends = zip(space, geometry.padding, reach, geometry.stride, strict=True)
        places = len(x) * math.prod(max(0, (size + 2 * padding - far - 1) // stride + 1) for size, padding, far, stride in ends)
        work = self.work(weight, places, training, x)
        return "factored" if convolves_factored(work, len(x) * math.prod(space), math.prod(kernel)) else "block"

    def _by_triton(self, weight: Components, x: Tensor, bias: Tensor | None, training: bool) -> Tensor | None:
        """Multiply by Triton's kernel, in the type of autocast if that is on; None where it cannot, or is not planned."""
        w, algebra, device = weight.components, weight.algebra, x.device
        if self.kernel not in ("auto", "triton") or not algebra.known or not _is_untransformed(x, w):
            return None
        if x.shape[-1] != weight.inp.channels:
            return None
        casts = is_any_autocast_enabled() and torch.is_autocast_enabled(device.type)
        dtype = torch.get_autocast_dtype(device.type) if casts else x.dtype
        if not can_compute(device, dtype) or w.device != device:
            return None
        if not casts and (w.dtype != dtype or (bias is not None and bias.dtype != dtype)):
            return None
        if self.kernel == "auto" and self._planned_on_gpu(weight, x, training, dtype) != "triton":
            return None
        if self._constants is None:
            factors = self.factors(weight, torch.empty(0, dtype=torch.float64))
            if factors is None:
                return None
            self._constants = constants(factors)
        shift = None if bias is None else bias.to(dtype)
        return triton_linear(x.to(dtype), w.to(dtype), self._constants, weight.out, weight.inp, shift)

    def _planned_on_gpu(self, weight: Components, x: Tensor, training: bool, dtype: torch.dtype) -> str:
        key = x.numel(), training, dtype
        if key not in self._choices:
            if len(self._choices) >= MOST_CHOICES:
                self._choices.clear()
            work = self.work(weight, x.numel() // max(1, weight.inp.channels), training, torch.empty(0, dtype=torch.float64))
            self._choices[key] = choose_on_gpu(work, dtype)
        return self._choices[key]

    def factors(self, weight: Components, like: Tensor) -> Factors | None:
        """Return the factors of the product, of the dtype and device of a tensor; None if they are no fewer than its pairs."""
        algebra = weight.algebra
        if not algebra.known:
            found = algebra.factors
        else:
            key = like.dtype, like.device
            if key not in self._factors:
                self._factors[key] = _known_factors(algebra, like)
            found = self._factors[key]
        if found is None or algebra.left is None:
            return found
        return found._replace(left=found.left @ algebra.left.to(like).T)

    def choose(self, weight: Components, rows: int, training: bool, like: Tensor) -> str:
        """Return the kernel that was asked for, or the one that is planned for so many rows of a type and on a device."""
        if self.kernel != "auto":
            return "block" if self.kernel == "triton" else self.kernel  # where Triton's kernel cannot
        if like.device.type != "cpu" or like.dtype not in PLANNED:
            return "block"
        return choose(self.work(weight, rows, training, like))

    def work(self, weight: Components, rows: int, training: bool, like: Tensor) -> Work:
        """Describe a product of so many rows to the plan."""
        factors = self.factors(weight, like)
        rank = None if factors is None else len(factors.left)
        learned = factors is not None and factors.left.requires_grad
        return Work(rows, weight.out, weight.inp, weight.algebra.m, rank, training, torch.get_num_threads(), learned)


def set_kernel(modules: nn.Module | Iterable[nn.Module], kernel: str) -> None:
    """Let every weight of a network, or among modules, use one kernel where it can: auto, block, factored, thin or triton.

    A kernel that cannot compute a product (``factored`` without factors, ``thin`` in training, ``triton`` off CUDA) leaves it
    to ``block``.

    Raises:
        InputError: If there is no kernel of this name, or it cannot run on this machine.
    """
    check_kernel(kernel, KERNELS)
    for module in modules.modules() if isinstance(modules, nn.Module) else modules:
        choice = getattr(module, "kernel_choice", None)
        if isinstance(choice, KernelChoice):
            choice.kernel = kernel
            choice.forget()


def check_kernel(kernel: str, kernels: Iterable[str]) -> None:
    """Raise `InputError` if a kernel is none of these, or cannot run on this machine."""
    if kernel not in kernels:
        *most, last = kernels
        raise InputError(f"kernel={shorten(kernel)}: use {', '.join(most)} or {last}")
    if kernel == "triton" and (lack := missing()):
        raise InputError(f"kernel='triton' is for CUDA devices, and {lack}: use auto, block or factored")


def _is_untransformed(x: Tensor, w: Tensor) -> bool:
    """Whether plain tensors are computed with here and now, by no transformation of torch."""
    if type(x) not in PLAIN or type(w) not in PLAIN or is_tracing():
        return False
    if x.layout != torch.strided or x.is_meta or torch._C._are_functorch_transforms_active():
        return False
    return int(forward_ad._current_level) < 0


def _is_plain(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    """Whether nothing but plain tensors of one type is computed with here and now, as the kernels do it."""
    if not _is_untransformed(x, w):
        return False
    if x.dtype != w.dtype or x.device != w.device or (bias is not None and bias.dtype != w.dtype):
        return False
    return not (is_any_autocast_enabled() and torch.is_autocast_enabled(x.device.type))


def _known_factors(algebra: Algebra, like: Tensor) -> Factors | None:
    if algebra.structure.is_meta:
        return None
    found = factorize(algebra.structure)
    return Factors(*(f.to(like) for f in found)) if found.rank < algebra.m * algebra.n else None
