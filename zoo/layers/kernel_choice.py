"""Multiply and convolve with the planned or requested kernel, or with the real matrix where no kernel applies."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling, is_exporting
from torch.nn import functional as F

from zoo.kernels import Factors, Geometry, Kernel, Work, factors_of, fused
from zoo.kernels.internals import autocast_dtype, is_plain_mode
from zoo.kernels.plan import AUTO, check_kernel, plan
from zoo.layers.weight import Weight

FEW_ROWS = 64
"""Rows up to which the bound call of a kernel is cached: its preparation takes as long as the product."""
PLAIN = (Tensor, nn.Parameter)


def multiply(weight: Weight, x: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply rows by a weight and add a bias, [..., in] to [..., out]."""
    y = None if weight.needs_matrix else _multiply(weight, x, bias)
    return F.linear(x, weight.matrix(), bias) if y is None else y


def _multiply(weight: Weight, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """Multiply with the planned kernel, or return None if the real matrix is required."""
    if is_compiling():
        return _multiply_in_graph(weight, x, bias)
    if not is_plain(x, weight.components) or x.shape[-1] != weight.inp.channels:
        return None
    if (dtype := autocast_dtype(x.device)) is not None and x.dtype != torch.float64:
        return _multiply_cast(weight, x, bias, dtype)
    return _apply(weight, x, bias, None) if have_one_dtype(x, weight.components, bias) else None


def _multiply_in_graph(weight: Weight, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """Multiply by the fused operator in a compiled graph; return None if the real matrix is required, as in exports."""
    if is_exporting() or weight.kernel not in (AUTO, "fused") or x.device.type != "cpu":
        return None
    # The graph should not contain the factorization of a fixed product.
    factors = weight.algebra.derived("factors", weight.components) if weight.algebra.known else weight.factors()
    is_float = x.dtype in fused.DTYPES and x.dtype == weight.components.dtype
    if factors is None or not is_float or not fused.is_worth_compiling(weight.out, weight.inp) or not fused.is_available():
        return None
    return fused.fused_linear(x, weight.components, factors, weight.out, weight.inp, bias)


class _Cast:
    """A weight in the dtype of autocast."""

    def __init__(self, weight: Weight, dtype: torch.dtype) -> None:
        self.components, self.algebra = weight.components.to(dtype), weight.algebra
        self.out, self.inp = weight.out, weight.inp

    def action(self) -> Tensor:
        return self.algebra.action(self.components)

    def factors(self) -> Factors | None:
        return factors_of(self.algebra, self.components)


def _multiply_cast(weight: Weight, x: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Multiply with a kernel that supports autocast, or return None: torch then casts the real matrix."""
    kernel, prepared = _planned(weight, x, None, dtype)
    if not kernel.casts:
        return None
    matrices = weight.cached(kernel, lambda weight: kernel.prepare(_Cast(weight, dtype))) if prepared else None
    with torch.autocast(x.device.type, enabled=False):
        return kernel.apply(x.to(dtype), _Cast(weight, dtype), None if bias is None else bias.to(dtype), matrices)


def convolve(weight: Weight, x: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor | None:
    """Convolve [N, in, *space] and add a bias; return None if torch's convolution is required or planned."""
    w = weight.components
    if weight.needs_matrix or is_compiling() or not is_plain(x, w) or autocast_dtype(x.device) is not None:
        return None
    fits = x.dim() == w.dim() - 1 and x.shape[1] == weight.inp.channels and have_one_dtype(x, w, bias)
    return _apply(weight, x, bias, geometry) if fits else None


def _apply(weight: Weight, x: Tensor, bias: Tensor | None, geometry: Geometry | None) -> Tensor | None:
    kernel, prepared = _planned(weight, x, geometry, x.dtype)
    if geometry is not None and kernel.name == "block":
        return None
    value = weight.cached(kernel, kernel.prepare) if prepared else None
    if geometry is None and weight.algebra.known and not torch.is_grad_enabled() and x.numel() <= FEW_ROWS * x.shape[-1]:
        weight.remember(x, kernel.bind(weight, value))
    return kernel.apply(x, weight, bias, value, geometry)


def _planned(weight: Weight, x: Tensor, geometry: Geometry | None, dtype: torch.dtype) -> tuple[Kernel, bool]:
    """Return the kernel for a product in a dtype, and whether its prepared weight is cached."""
    trains_weight = torch.is_grad_enabled() and weight.requires_gradient()
    training = trains_weight or (torch.is_grad_enabled() and x.requires_grad)
    prepared = weight.is_cached and not trains_weight
    key = x.shape if geometry else x.numel(), training, prepared, dtype, x.device.type, torch.get_num_threads()
    kernel: Kernel | None = weight.plans.get(key)
    if kernel is None:
        work = describe_work(weight, x, training, prepared, geometry)._replace(dtype=dtype)
        kernel = weight.plans[key] = plan(work, weight.kernel)
    return kernel, prepared


def describe_work(weight: Weight, x: Tensor, training: bool, prepared: bool = False, geometry: Geometry | None = None) -> Work:
    """Return the `Work` of multiplying an input by a weight."""
    factors = weight.factors()
    rows, rank = x.numel() // max(1, weight.inp.channels), None if factors is None else factors.rank
    context = training, prepared, torch.get_num_threads(), x.dtype, x.device.type
    work = Work(rows, weight.out, weight.inp, weight.algebra.m, rank, *context, learned=not weight.algebra.known)
    if geometry is None:
        return work
    space, kernel = x.shape[2:], weight.components.shape[3:]
    sizes = zip(space, kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    positions = [max(0, (size + 2 * pad - dilation * (k - 1) - 1) // stride + 1) for size, k, stride, pad, dilation in sizes]
    rows, inputs = len(x) * math.prod(positions), len(x) * math.prod(space)
    return work._replace(rows=rows, inputs=inputs, area=math.prod(kernel), convolution=True)


def set_kernel(modules: nn.Module | Iterable[nn.Module], kernel: str) -> None:
    """Set the kernel of every weight of a network, or among modules; ``auto`` plans it.

    Products that the kernel does not support (``factored`` without factors, ``thin`` in training, ``triton`` on a CPU) use
    ``block``.

    Raises:
        InputError: If the kernel does not exist or cannot run on this machine.
    """
    check_kernel(kernel)
    for module in modules.modules() if isinstance(modules, nn.Module) else modules:
        if isinstance(module, Weight):
            module.kernel = kernel
            module.forget()


def is_plain(x: Tensor, w: Tensor) -> bool:
    """Return whether the tensors are plain dense tensors, neither traced nor transformed."""
    are_plain = type(x) in PLAIN and type(w) in PLAIN and x.layout == torch.strided and not x.is_meta
    return are_plain and is_plain_mode()


def have_one_dtype(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    """Return whether an input, components and a bias have the same dtype and device."""
    return x.dtype == w.dtype and x.device == w.device and (bias is None or bias.dtype == w.dtype)
