"""The weight of a layer: its components, the real matrix they stand for, and everything that is computed from either."""

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, is_grad_enabled, nn
from torch._C import _is_any_autocast_enabled as is_any_autocast_enabled
from torch._C import _is_tracing as is_tracing
from torch.compiler import is_compiling
from torch.nn import functional as F

from zoo.algebras import Algebra, TrackedParameter
from zoo.errors import InputError
from zoo.kernels import AxisLayout, axis_layout, real_matrix
from zoo.kernels.factored_conv import Geometry
from zoo.layers.init import draw_components
from zoo.layers.kernel_choice import KernelChoice


class _Kept(NamedTuple):
    """A matrix that was assembled in evaluation; what it was assembled from is held, so that no id or memory is used again."""

    matrix: Tensor
    components: Any
    structure: Any
    left: Tensor | None
    state: tuple[Any, ...]
    memory: tuple[Tensor, ...]


class Weight(nn.Module):
    r"""The components of a weight over an algebra, and the real matrix they stand for.

    Over an algebra of dimension n the parameter is w, [m, out elements, in elements / groups, *kernel], with m = n unless the
    algebra takes weights from a subspace, and the matrix is computed (`zoo.kernels.real_matrix`). Over the reals (n = 1) the
    parameter has the shape of the matrix and, unless the product is scaled or learned, is the matrix (``is_matrix``).

    In evaluation without gradients (``eval()`` and ``no_grad`` or ``inference_mode``) the matrix is kept, n times the memory of
    the components, and reused as long as nothing it was computed from has changed. It is never kept while compiling, exporting,
    tracing or capturing a CUDA graph, nor for components that are not the tracked parameter made here (a parametrization, a
    tensor swapped in by `torch.func.functional_call`, a parameter assigned, swapped in or unpickled). Writes past torch's
    counters cannot be noticed: through a tensor that was taken from ``components.data`` before, through
    ``components.numpy()``, or from another process; ``train()`` drops the matrix.

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
        # On the meta device, where no value is known, a known product of real numbers is the ordinary one.
        is_ordinary = n == 1 and (algebra.structure.is_meta or bool(algebra.structure == 1))
        self.is_matrix = is_ordinary and algebra.known and algebra.left is None
        shape = (self.out.elements, self.inp.elements, *kernel_size)
        if n == 1:
            self.components = nn.Parameter(torch.empty(shape[::-1] if transposed else shape))
        else:
            self.components = TrackedParameter(torch.empty(algebra.m, *shape))
        self._kept: _Kept | None = None
        self._scopes = 0
        self.kernel_choice = KernelChoice()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the components; `torch.manual_seed` alone decides the outcome."""
        with torch.no_grad():
            # In one order of drawing for both shapes of a matrix.
            drawn = torch.empty_like(self.elements, memory_format=torch.contiguous_format)
            draw_components(drawn, self.algebra.action, *self._fans, init=self.init, gain=self.gain)
            self.elements.copy_(drawn)

    @property
    def elements(self) -> Tensor:
        """The components as algebra elements, w [m, out elements, in elements, *kernel]: over the reals, a view with m = 1."""
        w = self.components
        if self.inp.n > 1:
            return w
        return (w.mT if self.transposed else w)[None]

    def forward(self) -> Tensor:
        """Return the real matrix, [out, in / groups, *kernel], or [in, out] if transposed."""
        if self.is_matrix:
            matrix: Tensor = self.components
        elif is_compiling():
            matrix = self._assemble()
        elif self.training or is_grad_enabled():
            self.__dict__["_kept"] = None
            matrix = self._assemble()
        else:
            matrix = self._kept_matrix()
        if self.is_reparametrized:
            for change in self.reparametrizations:
                matrix = change(matrix)
        return matrix

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Multiply rows by the matrix and add a bias, [..., in] to [..., out], by the kernel that is the fastest for them."""
        y = None if self.inp.n == 1 or self.is_reparametrized else self.kernel_choice(self, x, bias)
        return F.linear(x, self.forward(), bias) if y is None else y

    def convolution(self, x: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor | None:
        """Convolve [N, in, *space] and add a bias; None where only the convolution with the real kernel is right or fast."""
        if self.inp.n == 1 or self.is_reparametrized:
            return None
        return self.kernel_choice.convolution(self, x, bias, geometry)

    def keep(self, side: Literal["inp", "out"], elements: Tensor, layout: AxisLayout) -> None:
        """Keep so many elements of the input or the output axis, [k] by their places, which has this layout from then on.

        A convolution with groups and a parametrized weight are none that this can be done to.
        """
        w = self.components
        axis = int(self.inp.n > 1) + (side == "inp")
        kept = w.detach().index_select(axis, elements.to(w.device))
        setattr(self, side, layout)
        self.kernel_choice.forget()
        self.components = type(w)(kept, requires_grad=w.requires_grad)
        kernel = tuple(self.elements.shape[3:])
        self._fans = _fans(self.inp.n, (self.inp.channels, self.inp), (self.out.channels, self.out), 1, kernel)

    def reparametrize(self, change: nn.Module) -> None:
        """Apply a function of the matrix, and all that were given before, whenever the matrix is asked for."""
        if not self.is_reparametrized:
            self.reparametrizations, self.is_reparametrized = nn.ModuleList(), True
        self.reparametrizations.append(change)

    def _assemble(self) -> Tensor:
        matrix = real_matrix(self.algebra.action, self.elements, self.out, self.inp)
        return matrix.mT if self.transposed else matrix

    def _kept_matrix(self) -> Tensor:
        """Return the matrix that is kept, assembled anew if anything has changed.

        It looks into torch's own dictionaries: attributes of modules are slow, and one row of features is soon multiplied.
        """
        if self._kept is not None:
            matrix, w, a, left, state, _ = self._kept
            product: Any = self._modules["algebra"]
            if (
                self._parameters.get("components") is w
                and (product._parameters if product.learned else product._buffers).get(product.stored) is a
                and product._buffers.get("left") is left
                and state == _state(matrix, w, a, left)
            ):
                return matrix
        return self._keep()

    def _keep(self) -> Tensor:
        """Assemble the matrix, and keep it if every change of what it is made from can be noticed."""
        w, a, left = self.components, self.algebra.rule, self.algebra.left
        self.__dict__["_kept"] = None
        if is_recording(w) or not isinstance(w, TrackedParameter) or not all(map(_tells_changes, (w, a, left))):
            return self._assemble()
        # A tensor made in inference mode could not be used for training later.
        with torch.inference_mode(False), torch.no_grad():
            matrix = self._assemble().contiguous()
            # A tensor that `torch.utils.swap_tensors` changed is the same object with other memory.
            memory = w.detach(), a.detach()
        self.__dict__["_kept"] = _Kept(matrix, w, a, left, _state(matrix, w, a, left), memory)
        return matrix

    def open_cache(self) -> None:
        """Enter `zoo.keep_matrices`."""
        self.__dict__["_scopes"] = self._scopes + 1

    def close_cache(self) -> None:
        """Leave `zoo.keep_matrices`."""
        self.__dict__["_scopes"] = self._scopes - 1
        if not self._scopes:
            self.__dict__["_kept"] = None

    def train(self, mode: bool = True) -> "Weight":
        """Switch between training and evaluation; the matrix is assembled anew after either."""
        self.__dict__["_kept"] = None
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> "Weight":
        self.__dict__["_kept"] = None
        self.kernel_choice.forget()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is kept out of copies and pickles, but for the kernel that was asked for."""
        choice = KernelChoice()
        choice.kernel = self.kernel_choice.kernel
        return {**self.__dict__, "_kept": None, "_scopes": 0, "kernel_choice": choice}

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
    widths = inp[1].elements, out[1].elements // groups
    shares = (_shares(channels / n, width, groups) for channels, width in zip((inp[0], out[0]), widths, strict=True))
    used = [(i, o) for i, o in zip(*shares, strict=True) if i and o]
    terms = math.prod(kernel_size) * sum(i * o for i, o in used)
    return terms / sum(o for _, o in used), terms / sum(i for i, _ in used)


def _shares(elements: float, width: int, groups: int) -> list[float]:
    """Count the elements of every group; those of the last groups are padding if the groups do not share them evenly."""
    return [min(max(elements - group * width, 0.0), width) for group in range(groups)]


def _state(matrix: Tensor, w: Any, a: Any, left: Tensor | None) -> tuple[Any, ...]:
    """Return numbers that change with a tensor, whether calls are recorded, and the precision of autocast."""
    # A structure may be a buffer, and what is swapped in for a tracked parameter a plain one: neither counts.
    accesses = getattr(w, "accesses", None), getattr(a, "accesses", None)
    state: Any = w._version, w.data_ptr(), a._version, a.data_ptr(), *accesses, matrix._version, is_tracing()
    if left is not None:
        state += left._version, left.data_ptr()
    if matrix.is_cuda:
        state += (torch.cuda.is_current_stream_capturing(),)
    if is_any_autocast_enabled() and torch.is_autocast_enabled(matrix.device.type):
        state += (torch.get_autocast_dtype(matrix.device.type),)
    return state  # type: ignore[no-any-return]


def is_recording(x: Tensor) -> bool:
    """Whether calls are recorded, to be repeated with other values: by torch.jit.trace or in a CUDA graph."""
    return is_tracing() or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def _tells_changes(tensor: Tensor | None) -> bool:
    """Whether every change of a tensor can be noticed: it has a version counter and memory."""
    if tensor is None:
        return True
    if tensor.is_inference() or tensor.is_meta or not (isinstance(tensor, TrackedParameter) or type(tensor) is Tensor):
        return False
    try:
        return tensor.data_ptr() is not None
    except RuntimeError:  # a tensor of torch.func
        return False
