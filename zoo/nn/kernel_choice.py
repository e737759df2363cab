"""Multiply and convolve with the planned or requested kernel, or with the real matrix where no kernel applies."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling, is_exporting
from torch.nn import functional as F

from zoo.algebras import factors_of
from zoo.kernels import Geometry, Kernel, Operand, Work, fused
from zoo.kernels.base import AUTO, Call, check_kernel, plan
from zoo.kernels.internals import autocast_dtype, is_any_autocast_enabled, is_plain_mode
from zoo.nn.weight import Weight, version

FEW_ROWS = 64  # rows up to which the bound call of a kernel is cached: its preparation takes as long as the product
PLAIN = (Tensor, nn.Parameter)


def multiply(weight: Weight, x: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply rows by a weight and add a bias, [..., in] to [..., out]."""
    if weight.cache and (call := bound_call(weight, x, bias)) is not None:
        return call(x, bias)
    y = apply_kernel(weight, x, bias)
    return F.linear(x, weight(), bias) if y is None else y


def bound_call(weight: Weight, x: Tensor, bias: Tensor | None) -> Call | None:
    """Return the cached call of a kernel for inputs like x, unless the weight has changed or a gradient is recorded.

    A fast path: for one row the plan and its checks take as long as the product.
    """
    if is_compiling() or type(x) is not Tensor or x.layout != torch.strided or records_gradient(weight, x, bias):
        return None
    if is_any_autocast_enabled() or not is_plain_mode() or weight.needs_matrix:
        return None
    w, product, bound_bias, written, call = weight.cache.get(_call_key(weight, x), (None,) * 5)
    is_same = w is weight.components and product is weight.algebra.stored and bound_bias is bias
    return call if is_same and (written is None or written == version(w)) else None


def _call_key(weight: Weight, x: Tensor) -> tuple[object, ...]:
    return x.shape, x.dtype, x.device, torch.get_num_threads(), weight.kernel


def records_gradient(weight: Weight, x: Tensor, bias: Tensor | None) -> bool:
    """Return whether autograd records a product."""
    if not torch.is_grad_enabled():
        return False
    return x.requires_grad or weight.requires_gradient() or (bias is not None and bias.requires_grad)


def apply_kernel(weight: Weight, x: Tensor, bias: Tensor | None, geometry: Geometry | None = None) -> Tensor | None:
    """Multiply rows, or convolve if a geometry is given, with the planned kernel; return None to use the real matrix."""
    if weight.needs_matrix:
        return None
    if is_compiling():
        return _multiply_in_graph(weight, x, bias) if geometry is None else None
    cache, product = weight.cache, weight.algebra.stored  # before anything is computed: another thread may replace them
    w, cast = weight.components, None if x.dtype == torch.float64 else autocast_dtype(x.device)
    has_one_dtype = x.dtype == w.dtype and (bias is None or bias.dtype == w.dtype)
    if not _fits(weight, x, bias, geometry) or (cast is None and not has_one_dtype):
        return None
    kernel, prepared = _planned(weight, x, geometry, cast or x.dtype)
    if kernel is None or (cast is not None and not kernel.casts) or (geometry is not None and kernel.name == "block"):
        return None
    operand = Operand(w, weight.algebra, weight.out, weight.inp)
    written = version(w) if prepared else None
    value = None
    if prepared:
        value = weight.cached(kernel, lambda: kernel.prepare(operand._replace(components=w.to(cast or w.dtype))))
    if cast is not None:
        with torch.autocast(x.device.type, enabled=False):
            return kernel.apply(x.to(cast), operand, None if bias is None else bias.to(cast), value, geometry)
    has_few_rows = geometry is None and x.numel() <= FEW_ROWS * x.shape[-1]
    if (
        has_few_rows
        and weight.algebra.kind == "fixed"
        and not records_gradient(weight, x, bias)
        and (call := kernel.bind(operand, value))
    ):
        cache[_call_key(weight, x)] = w, product, bias, written, call
    return kernel.apply(x, operand, bias, value, geometry)


def _fits(weight: Weight, x: Tensor, bias: Tensor | None, geometry: Geometry | None) -> bool:
    """Return whether the tensors are plain dense tensors, neither traced nor transformed, with the shapes that are expected.

    All else is left to torch: it broadcasts a bias of other axes, and raises errors.
    """
    w, channels = weight.components, weight.inp.channels
    if type(x) not in PLAIN or type(w) not in PLAIN or x.layout != torch.strided or x.is_meta or not is_plain_mode():
        return False
    if x.device != w.device or (bias is not None and (bias.dim() != 1 or bias.device != w.device)):
        return False
    return x.shape[-1] == channels if geometry is None else x.dim() == w.dim() - 1 and x.shape[1] == channels


def _multiply_in_graph(weight: Weight, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """Multiply by the fused operator in a compiled graph; return None if the real matrix is required, as in exports."""
    if is_exporting() or weight.kernel not in (AUTO, "fused") or x.device.type != "cpu" or not weight.fits():
        return None
    w, factors = weight.components, factors_of(weight.algebra, weight.components)
    is_float = x.dtype in fused.DTYPES and x.dtype == w.dtype
    if factors is None or not is_float or not fused.is_worth_compiling(weight.out, weight.inp) or not fused.is_available():
        return None
    return fused.fused_linear(x, w, factors, weight.out, weight.inp, bias)


def _planned(weight: Weight, x: Tensor, geometry: Geometry | None, dtype: torch.dtype) -> tuple[Kernel | None, bool]:
    """Return the kernel for a product in a dtype, None if the weight does not fit, and whether its prepared form is cached."""
    trains_weight = torch.is_grad_enabled() and weight.requires_gradient()
    training = trains_weight or (torch.is_grad_enabled() and x.requires_grad)
    prepared = weight.is_cached and not trains_weight
    algebra, size = weight.algebra, x.shape if geometry else x.numel()
    product = algebra, algebra.stored if algebra.kind == "fixed" else algebra.stored.shape
    settings = training, prepared, dtype, x.device.type, torch.get_num_threads(), weight.kernel
    key = size, weight.components.shape, product, settings
    kernel: Kernel | None = weight.plans.get(key)
    if kernel is None and weight.fits():
        work = describe_work(weight, x, training, prepared, geometry)._replace(dtype=dtype)
        kernel = weight.plans[key] = plan(work, weight.kernel)
    return kernel, prepared


def describe_work(weight: Weight, x: Tensor, training: bool, prepared: bool = False, geometry: Geometry | None = None) -> Work:
    """Return the `Work` of multiplying an input by a weight."""
    factors = factors_of(weight.algebra, weight.components)
    rows, rank = x.numel() // max(1, weight.inp.channels), 0 if factors is None else factors.rank
    context = training, prepared, torch.get_num_threads(), x.dtype, x.device.type
    work = Work(rows, weight.out, weight.inp, weight.algebra.m, rank, *context, learned=weight.algebra.kind != "fixed")
    work = work._replace(instructions=torch.backends.cpu.get_cpu_capability())
    if geometry is None:
        return work
    space, kernel = x.shape[2:], weight.components.shape[3:]
    sizes = zip(space, kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    positions = [max(0, (size + 2 * pad - dilation * (k - 1) - 1) // stride + 1) for size, k, stride, pad, dilation in sizes]
    rows, inputs = len(x) * math.prod(positions), len(x) * math.prod(space)
    return work._replace(rows=rows, inputs=inputs, area=math.prod(kernel), convolution=True)


def set_kernel(modules: nn.Module | Iterable[nn.Module], kernel: str) -> None:
    """Set the kernel of every weight of a network, or among modules; ``auto`` plans it.

    Products that the kernel does not support (``factored`` without factors, ``thin`` in training) use
    ``block``.

    Raises:
        InputError: If the kernel does not exist or cannot run on this machine.
    """
    check_kernel(kernel)
    for module in modules.modules() if isinstance(modules, nn.Module) else modules:
        if isinstance(module, Weight):
            module.kernel = kernel
            module.forget()
