"""The weight of a layer: its components, the real matrix they stand for, and everything that is computed from either."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from zoo.algebras import Algebra
from zoo.algebras.read_only import ReadOnly
from zoo.errors import InputError
from zoo.kernels import AxisLayout, Factors, Kernel, axis_layout, factors_of, real_matrix
from zoo.kernels.internals import autocast_dtype, is_any_autocast_enabled, is_plain_mode, is_recording
from zoo.layers.init import draw_components

_LOCK = Lock()


class ComputedMatrix(ReadOnly):
    """The real matrix of a weight: a temporary tensor, so that writing to it would change nothing."""

    message = "the weight of a layer over an algebra is computed: change layer.components instead"


class Weight(nn.Module):
    r"""The components of a weight over an algebra, and the real matrix they stand for.

    Over an algebra of dimension n the parameter is w, [m, out elements, in elements / groups, *kernel], with m = n unless the
    algebra takes weights from a subspace, and the matrix is computed (`zoo.kernels.real_matrix`). Over the reals (n = 1) the
    parameter has the shape of the matrix and, unless the product is scaled or learned, is the matrix (``is_matrix``).

    Nothing is cached but in the scope of `zoo.keep_matrices`, and there only where no gradient needs the components.

    Args:
        algebra: The product, of dimension n; the weight takes a copy, see `Algebra.for_layer`.
        in_channels: Real input channels.
        out_channels: Real output channels.
        kernel_size: Further axes of the matrix, for convolutions.
        groups: Groups of a convolution. Each takes its share of every component.
        blocks: Vectors that lie side by side on the input and on the output axis.
        transposed: Whether the matrix is [in, out] instead of [out, in], as in an embedding table.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.
        gain: Factor on the initial standard deviation.
        fans: Input and output elements that the initialisation counts, if not those of the axes.

    Example:
        >>> weight = Weight(Algebra(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])), 6, 4)
        >>> weight.components.shape, weight().shape
        (torch.Size([2, 2, 3]), torch.Size([4, 6]))
    """

    components: nn.Parameter
    reparametrizations: nn.ModuleList
    is_reparametrized = False
    plans: dict[Any, Kernel]
    _cache: dict[Any, tuple[Any, ...]]
    _ready: dict[Any, tuple[Any, ...]]

    def __init__(
        self,
        algebra: Algebra,
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
        if not isinstance(algebra, Algebra):
            raise InputError(f"the first argument of a layer is its zoo.Algebra, then come the sizes: got {algebra!r:.40}")
        if wrong := [size for size in (in_channels, out_channels, *blocks) if not hasattr(size, "__index__")]:
            raise InputError(f"the sizes of a layer are whole numbers: {wrong[0]!r:.40} is a {type(wrong[0]).__name__}")
        n = algebra.n
        self.algebra, self.transposed, self.init, self.gain = algebra.for_layer(), transposed, init, gain
        self.inp, self.out = _layouts(n, in_channels, out_channels, groups, blocks)
        self._fans = fans or _fans(n, (in_channels, self.inp), (out_channels, self.out), groups, kernel_size)
        self.is_matrix = (
            n == 1 and algebra.known and algebra.left is None and bool(algebra.table(torch.empty(0, device="cpu")) == 1)
        )
        shape = (self.out.elements, self.inp.elements, *kernel_size)
        shape = (shape[::-1] if transposed else shape) if n == 1 else (algebra.m, *shape)
        self.components = nn.Parameter(torch.empty(shape))
        self.kernel = "auto"
        self._scopes = 0
        self.forget()
        self.reset_parameters()
        if n > 1 and algebra.known:
            with torch.device("cpu"):
                self.factors()  # compiled graphs find them

    def reset_parameters(self) -> None:
        """Draw the components; `torch.manual_seed` alone decides the outcome."""
        with torch.no_grad():
            # In one order of drawing for both shapes of a matrix.
            drawn = torch.empty_like(self.elements, memory_format=torch.contiguous_format)
            draw_components(drawn, self.action(), *self._fans, init=self.init, gain=self.gain)
            self.elements.copy_(drawn)

    @property
    def elements(self) -> Tensor:
        """The components as algebra elements, w [m, out elements, in elements, *kernel]: over the reals, a view with m = 1."""
        w = self.components
        if self.inp.n > 1:
            return w
        return (w.mT if self.transposed else w)[None]

    def action(self) -> Tensor:
        """Return what the components do to an input, [m, n, n], see `Algebra.action`."""
        return self.algebra.action(self.components)

    def factors(self) -> Factors | None:
        """Return the factors of the product, see `zoo.kernels.factors_of`."""
        return factors_of(self.algebra, self.components)

    def forward(self) -> Tensor:
        """Return the real matrix, [out, in / groups, *kernel], or [in, out] if transposed; read-only if it is computed."""
        matrix = self._compute()
        if isinstance(matrix, nn.Parameter) or is_compiling():
            return matrix
        return matrix.as_subclass(ComputedMatrix)

    def matrix(self) -> Tensor:
        """Return the real matrix to compute with, after the hooks of this module: callers must not write to it."""
        return self() if self._forward_pre_hooks or self._forward_hooks else self._compute()

    @property
    def needs_matrix(self) -> bool:
        """Whether no kernel can do without the real matrix: over the reals, or if hooks or parametrizations see it."""
        return self.inp.n == 1 or self.is_reparametrized or bool(self._forward_pre_hooks or self._forward_hooks)

    def _compute(self) -> Tensor:
        matrix: Tensor
        if self.is_matrix:
            matrix = self.components
        elif is_compiling() or not self.is_cached or (torch.is_grad_enabled() and self.requires_gradient()):
            matrix = self._assemble()
        else:
            matrix = self.cached("matrix", lambda weight: weight._assemble().contiguous())
        if self.is_reparametrized:
            for change in self.reparametrizations:
                matrix = change(matrix)
        return matrix

    def prune_axis(self, side: Literal["inp", "out"], elements: Tensor, layout: AxisLayout) -> None:
        """Remove all but some elements of the input or the output axis.

        Not supported for grouped convolutions and parametrized weights.

        Args:
            side: The axis.
            elements: Indices of the elements that stay.
            layout: Layout of the axis afterwards.
        """
        w = self.components
        axis = int(self.inp.n > 1) + (side == "inp")
        setattr(self, side, layout)
        self.forget()
        self.components = nn.Parameter(w.detach().index_select(axis, elements.to(w.device)), requires_grad=w.requires_grad)
        kernel = tuple(self.elements.shape[3:])
        self._fans = _fans(self.inp.n, (self.inp.channels, self.inp), (self.out.channels, self.out), 1, kernel)

    def reparametrize(self, change: nn.Module) -> None:
        """Apply a function of the matrix, and all that were given before, whenever the matrix is asked for."""
        if not self.is_reparametrized:
            self.reparametrizations, self.is_reparametrized = nn.ModuleList(), True
            self.forget()
        self.reparametrizations.append(change)

    def forget(self) -> None:
        """Discard the chosen kernels and everything that was cached."""
        self.plans, self._cache, self._ready = {}, {}, {}

    def _apply(self, fn: Any, recurse: bool = True) -> "Weight":
        self.forget()

        def apply(tensor: Tensor) -> Tensor:
            # torch.channels_last knows tensors with four axes: [m out elements, in elements, height, width].
            if tensor.dim() != 5:
                return fn(tensor)  # type: ignore[no-any-return]
            return fn(tensor.flatten(0, 1)).unflatten(0, tensor.shape[:2])  # type: ignore[no-any-return]

        super()._apply(apply, recurse)  # type: ignore[no-untyped-call]
        return self

    def _assemble(self) -> Tensor:
        matrix = real_matrix(self.action(), self.elements, self.out, self.inp)
        return matrix.mT if self.transposed else matrix

    def requires_gradient(self) -> bool:
        """Whether the components or the product are trained."""
        return self.components.requires_grad or (not self.algebra.known and self.algebra.rule.requires_grad)

    @property
    def is_cached(self) -> bool:
        """Whether `zoo.keep_matrices` is open."""
        return self._scopes > 0

    def cached(self, key: Any, make: Callable[["Weight"], Any]) -> Any:
        """Return what a function computes from this weight, from the cache in the scope of `zoo.keep_matrices`.

        Only for computations that need no gradient. Tensors that `torch.func.functional_call` swaps in have their own value.
        """
        w, rule = self.components, self.algebra.rule if not self.algebra.known else None
        if not is_plain_mode() or is_recording(w):
            return make(self)
        key = key, autocast_dtype(w.device), w.dtype, w.device
        entry = self._cache.get(key)
        if entry is None or entry[0] is not w or entry[1] is not rule:
            with torch.inference_mode(False), torch.no_grad():  # an inference tensor could not serve a later backward pass
                entry = w, rule, make(self)
            if self.is_cached:
                self._cache[key] = entry
        return entry[2]

    def remember(self, x: Tensor, call: Callable[[Tensor, Tensor | None], Tensor] | None) -> None:
        """Let `ready` return a call of a kernel for inputs like x."""
        if call is not None:
            self._ready[x.shape, x.dtype, x.device] = self.components, self.algebra.constant, call

    def ready(self, x: Tensor) -> Callable[[Tensor, Tensor | None], Tensor] | None:
        """Return the remembered call for inputs like x if nothing has changed since, and no gradient is recorded.

        The short way: for one row the plan, and the checks of all that could be different, take as long as the product itself.
        """
        if is_compiling() or torch.is_grad_enabled() or type(x) is not Tensor or x.layout is not torch.strided:
            return None
        if is_any_autocast_enabled() or not is_plain_mode() or self._forward_hooks or self._forward_pre_hooks:
            return None
        algebra: Any = self._modules["algebra"]  # the attribute takes longer
        w, constant, call = self._ready.get((x.shape, x.dtype, x.device), (None,) * 3)
        changed = w is not self._parameters.get("components") or constant is not algebra.constant
        return None if changed else call

    def scope(self, change: int) -> None:
        """Enter (1) or leave (-1) a scope of `zoo.keep_matrices`; the last one to be left discards what was cached."""
        self._scopes += change
        self._ready = {}
        if not self._scopes:
            self._cache = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave caches and scopes out of copies and pickles."""
        return {**self.__dict__, "_scopes": 0, "_cache": {}, "_ready": {}, "plans": {}}

    def extra_repr(self) -> str:
        """Show the sizes of the components and of the matrix."""
        return f"{list(self.components.shape)}" + ("" if self.is_matrix else f" -> [{self.out.channels}, {self.inp.channels}]")


def _layouts(n: int, inp: int, out: int, groups: int, blocks: tuple[int, int]) -> tuple[AxisLayout, AxisLayout]:
    """Return the layouts of both axes of the matrix; with groups, that of one group's inputs and of all groups' outputs."""
    if groups == 1:
        return axis_layout(inp, n, blocks[0]), axis_layout(out, n, blocks[1])
    if groups < 1 or inp % groups or out % groups:
        raise InputError(f"{groups} groups do not divide {inp} input and {out} output channels")
    if blocks != (1, 1):
        raise InputError(f"a convolution has groups or blocks, not both: groups={groups}, blocks={blocks}")
    in_width, out_width = (-(-size // (n * groups)) for size in (inp, out))
    return axis_layout(n * in_width, n), axis_layout(n * out_width * groups, n, groups)


def _fans(
    n: int, inp: tuple[int, AxisLayout], out: tuple[int, AxisLayout], groups: int, kernel_size: tuple[int, ...]
) -> tuple[float, float]:
    """Average the elements that an output reads, and that an input feeds, times the kernel area; padding does not count."""
    if not kernel_size:
        return inp[0] / n, out[0] / n

    def shares(channels: int, width: int) -> list[float]:  # of every group; the last may have less
        return [min(max(channels / n - group * width, 0.0), width) for group in range(groups)]

    pairs = zip(shares(inp[0], inp[1].elements), shares(out[0], out[1].elements // groups), strict=True)
    used = [(i, o) for i, o in pairs if i and o]
    terms = math.prod(kernel_size) * sum(i * o for i, o in used)
    return terms / sum(o for _, o in used), terms / sum(i for i, _ in used)


@contextmanager
def keep_matrices(module: object) -> Iterator[None]:
    """Let the weights of a network cache their matrices until the scope is left, where no gradient needs them.

    Open it where nothing writes to the network: `predict`, `generate` and the Trainer's evaluation loops do. It is what
    `torch.nn.utils.parametrize.cached` is to parametrizations. Outside, nothing is ever cached; `zoo.fold` is the permanent
    form. Scopes may nest, and several threads may use them: when the last one ends, the caches are discarded.

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
