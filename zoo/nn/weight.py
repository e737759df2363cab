"""The weight of a layer over an algebra: its components, their initialization, its real matrix, and their caches."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling, is_exporting

from zoo.algebras import Algebra, action, factors_of, is_reals, literal
from zoo.algebras import algebra as named
from zoo.errors import InputError, check_choice
from zoo.kernels import AxisLayout, Kernel, Operand, Part, Work, assembled, axis_layout, matrix_by_product, real_matrix
from zoo.kernels.base import AUTO, plan
from zoo.kernels.internals import autocast_dtype, is_plain_mode, is_recording

Made = TypeVar("Made")
_LOCK = Lock()
MANY_ROWS = 2**14
BATCHED = ("cuda",)  # types of devices where training assembles all matrices of a network at once


class Weight(nn.Module):
    r"""The components of a weight over an algebra, and their real matrix.

    Over an algebra of dimension n the parameter is w, [m, out elements, in elements / groups, *kernel], with m = n unless the
    weights lie in a subspace, and the matrix is computed (`zoo.kernels.real_matrix`). Over the reals (n = 1) the parameter has
    the shape of the matrix and is the matrix (``is_matrix``), unless the product is scaled or learned.

    Functions of the weight are cached only inside `zoo.keep_matrices`, and only if no gradient is needed.

    Args:
        algebra: The product, of dimension n, or its spec; the weight takes a copy, see `Algebra.for_layer`.
        kernel_size: Additional axes of the matrix, for convolutions.
        groups: Groups of a convolution; each takes a slice of every component.
        blocks: Number of vectors side by side on the input and the output axis.
        transposed: Whether the matrix is [in, out] instead of [out, in], as in an embedding table.
        init: Initialization with a factor ``gain``, see `zoo.nn.weight.draw_components`.
        fans: Fan-in and fan-out of the initialization; by default computed from the axes.

    Example:
        >>> weight = Weight(Algebra(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])), 6, 4)
        >>> weight.components.shape, weight().shape
        (torch.Size([2, 2, 3]), torch.Size([4, 6]))
    """

    components: nn.Parameter
    plans: dict[object, Kernel]
    cache: dict[object, tuple[Any, ...]]

    def __init__(
        self,
        algebra: Algebra | str,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...] = (),
        *,
        groups: int = 1,
        blocks: tuple[int, int] = (1, 1),
        transposed: bool = False,
        init: str = "variance",
        gain: float = 1.0,
        fans: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        algebra = named(algebra)
        n = algebra.n
        self.algebra, self.transposed, self.init, self.gain = algebra.for_layer(), transposed, init, gain
        self.inp, self.out = _layouts(n, in_channels, out_channels, groups, blocks)
        self._fans = fans or _fans(n, (in_channels, self.inp), (out_channels, self.out), groups, kernel_size)
        shape = (self.out.elements, self.inp.elements, *kernel_size)
        shape = (shape[::-1] if transposed else shape) if n == 1 else (algebra.m, *shape)
        self.components = nn.Parameter(torch.empty(shape))
        self.kernel = "auto"
        self._scopes = 0
        self._opened: tuple[Tensor, Tensor, Tensor, tuple[int | None, ...]] | None = None
        self.forget()
        self.reset_parameters()
        if n > 1 and algebra.kind == "fixed":
            with torch.device("cpu"):
                factors_of(self.algebra, self.components)  # cache them for compiled graphs
            literal(self.algebra)

    def reset_parameters(self) -> None:
        """Redraw the components; `torch.manual_seed` determines the result."""
        with torch.no_grad():
            # The order of random numbers is the same for a transposed matrix.
            drawn = torch.empty_like(self.elements, memory_format=torch.contiguous_format)
            draw_components(drawn, self.action(), *self._fans, init=self.init, gain=self.gain)
            self.elements.copy_(drawn)

    @property
    def is_matrix(self) -> bool:
        """Whether the parameter is the matrix; false if another product has been assigned."""
        return self.inp.n == 1 and is_reals(self.algebra)

    @property
    def elements(self) -> Tensor:
        """The components as w [m, out elements, in elements, *kernel]; over the reals a view with m = 1."""
        w = self.components
        if self.inp.n > 1:
            return w
        return (w.mT if self.transposed else w)[None]

    def action(self) -> Tensor:
        """Return the product of a weight and an input, [m, n, n], see `zoo.algebras.action` and `check_fits`."""
        self.check_fits()
        return action(self.algebra, self.components)

    def check_fits(self) -> None:
        """Raise `InputError` if the components, the product and the layouts do not fit, because one has been replaced."""
        if not is_recording(self.components) and not self.fits():  # a trace would contain the comparison
            w, n = self.components, self.algebra.n
            layer = f"layer from {self.inp.channels} to {self.out.channels} channels over n={self.inp.n}"
            raise InputError(f"components {list(w.shape)} over an algebra of n={n} do not fit a {layer}", code="mismatch")

    def fits(self) -> bool:
        """Return whether the components, the product and the layouts have matching sizes."""
        algebra, inp = self.algebra, self.inp
        return algebra.n == inp.n and self.elements.shape[:3] == (algebra.m, self.out.elements, inp.elements)

    def forward(self) -> Tensor:
        """Return the real matrix, [out, in / groups, *kernel], or [in, out] if transposed; callers must not write to it."""
        if self.is_matrix:
            return self.components
        if (opened := self.opened()) is not None:
            return opened
        if is_compiling() or not self.is_cached or (torch.is_grad_enabled() and self.requires_gradient()):
            return self._assemble()
        return self.cached("matrix", lambda: self._assemble().contiguous())

    def _assemble(self) -> Tensor:
        if is_exporting() if is_compiling() else not is_plain_mode():
            assemble = matrix_by_product if is_exporting() else real_matrix
            matrix = assemble(self.action(), self.elements, self.out, self.inp)
        else:
            matrix = assembled(self.part(), self.product_dtype())
        return matrix.mT if self.transposed else matrix

    def part(self) -> Part:
        """Return this weight as one whose matrix is to be assembled, see `check_fits`."""
        self.check_fits()
        return Operand(self.elements, self.algebra, self.out, self.inp).part()

    def product_dtype(self) -> torch.dtype:
        """Return the dtype of products with this weight: that of autocast, or of the components."""
        dtype = self.components.dtype
        return dtype if dtype == torch.float64 else autocast_dtype(self.components.device) or dtype

    def open(self, matrix: Tensor | None) -> None:
        """Set the matrix that a forward pass of the network uses, see `zoo.batch_matrices`; None ends it."""
        w, product = self.components, self.algebra.stored
        self._opened = None if matrix is None else (matrix, w, product, _versions(w, product))

    def opened(self) -> Tensor | None:
        """Return the matrix set by `open`, unless its dtype does not fit or the components were replaced or written to."""
        if self._opened is None:
            return None
        matrix, w, product, versions = self._opened
        is_same = w is self.components and product is self.algebra.stored
        is_unchanged = is_same and (is_compiling() or versions == _versions(w, product))
        return matrix if is_unchanged and matrix.dtype in (w.dtype, self.product_dtype()) else None

    @property
    def is_batched(self) -> bool:
        """Whether the matrix is assembled by itself or with those of other weights: in training, where no kernel is faster."""
        w = self.components
        if w.device.type not in BATCHED:
            return False
        is_plain = type(w) is nn.Parameter and not (self.transposed or self._forward_pre_hooks or self._forward_hooks)
        is_trained = torch.is_grad_enabled() and self.requires_gradient()
        return is_plain and is_trained and self.inp.n > 1 and self._multiplies_by_matrix()

    def _multiplies_by_matrix(self) -> bool:
        """Return whether the plan, for many rows, trains this weight by its matrix."""
        if is_compiling():
            return self.kernel in (AUTO, "block")
        key = "many rows", self.kernel, self.product_dtype(), self.components.device.type, self.algebra.stored
        if key not in self.plans:
            factors = factors_of(self.algebra, self.components)
            work = Work(MANY_ROWS, self.out, self.inp, self.algebra.m, 0 if factors is None else factors.rank, training=True)
            work = work._replace(dtype=key[2], device=key[3], learned=self.algebra.kind != "fixed")
            self.plans[key] = plan(work, self.kernel)
        return self.plans[key].name == "block"

    @property
    def needs_matrix(self) -> bool:
        """Whether products require the real matrix: over the reals, with hooks or parametrizations, or if it is batched."""
        has_hooks = bool(self._forward_pre_hooks or self._forward_hooks)
        return self.inp.n == 1 or has_hooks or self._opened is not None or self.is_batched

    def requires_gradient(self) -> bool:
        """Return whether the components or the product are trained."""
        return self.components.requires_grad or self.algebra.stored.requires_grad

    def prune_axis(self, side: Literal["inp", "out"], elements: Tensor, layout: AxisLayout) -> None:
        """Keep the elements of an axis with these indices, under a new layout; not for groups and parametrized weights."""
        w = self.components
        axis = int(self.inp.n > 1) + (side == "inp")
        setattr(self, side, layout)
        self.forget()
        self.components = nn.Parameter(w.detach().index_select(axis, elements.to(w.device)), requires_grad=w.requires_grad)
        kernel = tuple(self.elements.shape[3:])
        self._fans = _fans(self.inp.n, (self.inp.channels, self.inp), (self.out.channels, self.out), 1, kernel)

    @property
    def is_cached(self) -> bool:
        """Whether `zoo.keep_matrices` is active."""
        return self._scopes > 0

    def cached(self, key: object, make: Callable[[], Made]) -> Made:
        """Return a function of this weight, computed without gradient and cached inside `zoo.keep_matrices`.

        Tensors that `torch.func.functional_call` swaps in do not use the cached value.
        """
        # The cache is read first: see `scope`.
        cache, w, product = self.cache, self.components, self.algebra.stored
        if not is_plain_mode() or is_recording(w):
            return make()
        key, versions = (key, autocast_dtype(w.device), w.dtype, w.device), (version(w), version(product))
        entry = cache.get(key)
        if entry is None or entry[0] is not w or entry[1] is not product:
            with torch.inference_mode(False), torch.no_grad():  # inference tensors cannot be used in a backward pass
                entry = w, product, versions, make()
            if self.is_cached:
                cache[key] = entry
        elif entry[2] != versions:
            raise InputError("a weight was changed inside zoo.keep_matrices: change it outside", code="conflict")
        made: Made = entry[3]
        return made

    def forget(self) -> None:
        """Clear the planned kernels and the cache."""
        self.plans, self.cache = {}, {}

    def scope(self, change: int) -> None:
        """Enter (1) or exit (-1) a scope of `zoo.keep_matrices`; the first and the last change begin a new cache.

        A thread stores values in the cache that it read before it computed them, so that a scope that it did not begin in, or
        that has ended since, never finds them.
        """
        was_cached = self.is_cached
        self._scopes += change
        if self.is_cached != was_cached:
            self.cache = {}

    def __getstate__(self) -> dict[str, object]:
        """Exclude caches and scopes from copies and pickles."""
        return {**self.__dict__, "_scopes": 0, "_opened": None, "cache": {}, "plans": {}}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Weight":
        self.forget()

        def apply(tensor: Tensor) -> Tensor:
            # torch.channels_last requires tensors with four axes: [m out elements, in elements, height, width].
            if tensor.dim() != 5:
                return fn(tensor)
            applied: Tensor = fn(tensor.flatten(0, 1)).unflatten(0, tensor.shape[:2])
            return applied

        super()._apply(apply, recurse)  # type: ignore[no-untyped-call]
        return self

    def extra_repr(self) -> str:
        """Show the shapes of the components and of the matrix, and the algebra."""
        matrix = "" if self.is_matrix else f" -> [{self.out.channels}, {self.inp.channels}]"
        return f"{list(self.components.shape)}{matrix}{shown(self.algebra)}"

    def __repr__(self) -> str:
        """Show one line, unless there are parametrizations."""
        return one_line(self, "algebra") or super().__repr__()


def shown(algebra: Algebra) -> str:
    """Return the algebra as the last argument in a repr; empty for the reals."""
    return "" if algebra.n == 1 and not algebra.spec else f", algebra={algebra.spec or f'n={algebra.n}'}"


def one_line(module: nn.Module, *hidden: str) -> str:
    """Return the repr of a module in one line; empty if it has children that are not ``hidden``."""
    has_others = any(name not in hidden for name, _ in module.named_children())
    return "" if has_others else f"{type(module).__name__}({module.extra_repr()})"


def _versions(*tensors: Tensor) -> tuple[int | None, ...]:
    return () if is_compiling() else tuple(map(version, tensors))


def version(tensor: Tensor) -> int | None:
    """Return a number that changes with in-place writes, except through ``.data``; None for tensors of inference mode."""
    return None if tensor.is_inference() else tensor._version


def _layouts(n: int, inp: int, out: int, groups: int, blocks: tuple[int, int]) -> tuple[AxisLayout, AxisLayout]:
    """Return the layouts of the input axis, of one group if there are groups, and of the output axis of the matrix."""
    if groups == 1:
        return axis_layout(inp, n, blocks[0]), axis_layout(out, n, blocks[1])
    if groups < 1 or inp % groups or out % groups:
        raise InputError(f"groups={groups}: must divide {inp} input and {out} output channels")
    if blocks != (1, 1):
        raise InputError(f"groups={groups} is not supported with blocks={blocks}: use one of them", code="unsupported")
    in_width, out_width = (-(-size // (n * groups)) for size in (inp, out))
    return axis_layout(n * in_width, n), axis_layout(n * out_width * groups, n, groups)


def _fans(
    n: int, inp: tuple[int, AxisLayout], out: tuple[int, AxisLayout], groups: int, kernel_size: tuple[int, ...]
) -> tuple[float, float]:
    """Return the mean fan-in and fan-out in elements times the kernel area, without padding."""
    if not kernel_size:
        return inp[0] / n, out[0] / n

    def group_sizes(channels: int, width: int) -> list[float]:  # the last groups may have less
        return [min(max(channels / n - group * width, 0.0), width) for group in range(groups)]

    pairs = zip(group_sizes(inp[0], inp[1].elements), group_sizes(out[0], out[1].elements // groups), strict=True)
    sizes = [(i, o) for i, o in pairs if i and o]
    terms = math.prod(kernel_size) * sum(i * o for i, o in sizes)
    return terms / sum(o for _, o in sizes), terms / sum(i for i, _ in sizes)


@contextmanager
def keep_matrices(module: object) -> Iterator[None]:
    """Cache the matrices of a network inside this context, where no gradient needs them.

    Use it only if the network is not modified inside, as `predict`, `generate` and the Trainer's evaluation loops do; a cached
    matrix of a weight that has been written to raises `InputError`, unless it was written through ``.data``. It
    corresponds to `torch.nn.utils.parametrize.cached`; `zoo.fold` is the permanent form. Contexts can be nested and used by
    several threads: the caches are cleared when the last one exits.

    Example:
        >>> import torch
        >>> net = nn.Linear(2, 2)
        >>> with torch.no_grad(), keep_matrices(net):
        ...     y = net(torch.ones(1, 2))
    """
    parts = module.modules() if isinstance(module, nn.Module) else ()
    weights = [part for part in parts if isinstance(part, Weight)]
    with _LOCK:
        for weight in weights:
            weight.scope(1)
    try:
        yield
    finally:
        with _LOCK:
            for weight in weights:
                weight.scope(-1)


INITS = ("variance", "glorot", "polar")


def draw_components(
    components: Tensor, structure: Tensor, fan_in: float, fan_out: float, init: str = "variance", gain: float = 1.0
) -> None:
    r"""Initialize components w, [m, out, in, *kernel], in place (m = n unless the weights lie in a subspace).

    ``variance`` (default) is normal with std = gain / sqrt(fan_in * ||A||_F^2 / n): each output component sums fan_in terms
    A[i, j, k] w_i x_j for every (i, j), so for unit-variance input the output variance, averaged over components, is gain^2
    for every A.
    ``glorot`` is uniform in each component with the bound gain * sqrt(6 / (fan_in + fan_out)), as in QuaternionNLP (Tay et al.
    2019, section 3.5).
    ``polar`` draws w = r (cos t + u sin t) with r from a chi distribution of n degrees of freedom times
    gain / sqrt(2 (fan_in + fan_out)), t uniform in [-pi, pi] and u a uniform imaginary unit vector (Gaudet and Maida 2018,
    section 3.4; their quaternion initialization for n = 4). Component 0 is the real part.

    The structure is A, [m, n, n]. ``fan_in`` is the number of input elements of an output element, times the kernel area,
    without padding: real sizes divided by n. ``fan_out`` is the same with inputs and outputs swapped.
    """
    check_choice("initialization", init, INITS)
    if init == "polar" and len(components) < structure.shape[1]:
        raise InputError("init=polar is not supported for weights in a subspace: they have no real part", code="unsupported")
    if components.is_meta:
        return
    with torch.no_grad():
        if init == "variance":
            energy = structure.detach().square().sum().item() / structure.shape[1]
            components.normal_(std=gain / math.sqrt(fan_in * energy) if energy else 0.0)
        elif init == "glorot":
            bound = gain * math.sqrt(6 / (fan_in + fan_out))
            components.uniform_(-bound, bound)
        else:
            # The norm of n standard normals is chi distributed, and the direction of the last n - 1 is uniform.
            modulus = torch.randn_like(components).norm(dim=0) * gain / math.sqrt(2 * (fan_in + fan_out))
            phase = torch.empty_like(modulus).uniform_(-math.pi, math.pi)
            components.normal_()
            components[1:] *= modulus * phase.sin() / components[1:].norm(dim=0).clamp_min(1e-12)
            components[0] = modulus * phase.cos()
