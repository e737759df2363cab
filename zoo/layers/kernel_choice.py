"""The product of a weight with rows of features: which kernel computes it, and when only the real matrix will do."""

from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._C import _is_any_autocast_enabled as is_any_autocast_enabled
from torch._C import _is_tracing as is_tracing
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from zoo.algebras import Algebra, Factors, TrackedParameter
from zoo.errors import InputError
from zoo.kernels import AxisLayout, block_linear, factored_linear, factorize, thin_linear
from zoo.kernels.plan import KERNELS, Work, choose

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

    def forget(self) -> None:
        """Choose anew: the device or the type of the weight may have changed."""
        self._choices.clear()
        self._factors.clear()

    def __call__(self, weight: Components, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """Multiply rows [..., in] by the weight, and add a bias; None where the real matrix, kept or not, does it best."""
        if is_compiling():
            return None
        w = weight.components
        training = torch.is_grad_enabled() and (x.requires_grad or w.requires_grad)
        key = x.numel(), training, torch.get_num_threads()
        kernel = self._choices.get(key)
        if (kernel == "block" and not training) or not _is_plain(x, w, bias):
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
            return self.kernel
        if like.device.type != "cpu" or like.dtype not in PLANNED:
            return "block"
        return choose(self.work(weight, rows, training, like))

    def work(self, weight: Components, rows: int, training: bool, like: Tensor) -> Work:
        """Describe a product of so many rows to the plan."""
        factors = self.factors(weight, like)
        rank = None if factors is None else len(factors.left)
        learned = factors is not None and factors.left.requires_grad
        return Work(rows, weight.out, weight.inp, weight.algebra.m, rank, training, torch.get_num_threads(), learned)


def set_kernel(modules: Iterable[nn.Module], kernel: str) -> None:
    """Let every weight among these modules use one kernel where it can: ``auto``, ``block``, ``factored`` or ``thin``.

    A kernel that cannot compute a product (``factored`` without factors, ``thin`` in training) leaves it to ``block``.

    Raises:
        InputError: If there is no kernel of this name.
    """
    if kernel not in KERNELS:
        raise InputError(f"there is no kernel '{kernel}': use {', '.join(KERNELS)}")
    for module in modules:
        choice = getattr(module, "kernel_choice", None)
        if isinstance(choice, KernelChoice):
            choice.kernel = kernel
            choice.forget()


def _is_plain(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    """Whether nothing but plain tensors is computed with here and now, as the kernels do it."""
    if type(x) not in PLAIN or type(w) not in PLAIN or is_tracing():
        return False
    if x.dtype != w.dtype or x.device != w.device or (bias is not None and bias.dtype != w.dtype):
        return False
    if x.layout != torch.strided or x.is_meta or torch._C._are_functorch_transforms_active():
        return False
    if is_any_autocast_enabled() and torch.is_autocast_enabled(x.device.type):
        return False
    return int(forward_ad._current_level) < 0


def _known_factors(algebra: Algebra, like: Tensor) -> Factors | None:
    if algebra.structure.is_meta:
        return None
    found = factorize(algebra.structure)
    return Factors(*(f.to(like) for f in found)) if found.rank < algebra.m * algebra.n else None
