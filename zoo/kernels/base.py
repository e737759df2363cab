"""The interface of kernels, the cost model that compares them, and the plan that chooses one.

Costs are seconds on a reference machine for each instruction set, in float32. Nothing is measured at run time, so the choice of
a kernel, and with it the last bits of a result, depends only on shapes and on the instruction set.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo import registry
from zoo.algebras import Algebra, Factors, action, factors_of, literal
from zoo.errors import InputError, one_line, shorten

BYTES = 4  # of a float32


class Speeds(NamedTuple):
    """The speeds of a reference machine in float32; only their ratios influence the plan."""

    multiply: float  # operations per second of one thread in a large matrix product
    half_width: float  # matrix width at which that speed halves
    traffic: float  # bytes per second of one thread that combines components
    reading: float  # bytes per second at which all threads together read a matrix for one row
    copied_width: float  # width of products at which the fused operator spends as long copying as multiplying
    call: float = 5e-6  # overhead of an operation in seconds


SPEEDS = {
    "AVX512": Speeds(multiply=1.6e11, half_width=4.0, traffic=7.5e9, reading=1.4e10, copied_width=12.0),
    "AVX2": Speeds(multiply=1.6e11, half_width=5.5, traffic=7.5e9, reading=1e10, copied_width=3.0),
}
"""The speeds by the name of the instruction set in `torch.backends.cpu.get_cpu_capability`; all others count as AVX2."""

Call = Callable[[Tensor, Tensor | None], Tensor]
Prepared = Tensor | None  # the result of `Kernel.prepare` if it is cached


class AxisLayout(NamedTuple):
    """The layout of a channel axis: ``blocks`` vectors side by side, each component-major.

    A block of C / blocks real channels is [n, width] with width = ceil(C / (blocks n)), truncated to its first C / blocks
    entries if n does not divide it. The missing channels are never computed, but their weights exist and are counted. Examples:
    a residual stream has 1 block, the gates of an LSTM 4, a fused qkv 3 * heads.

    Example:
        >>> AxisLayout(10, n=4).width
        3
    """

    channels: int
    n: int
    blocks: int = 1

    @property
    def size(self) -> int:
        """Real channels of one block."""
        return self.channels // self.blocks

    @property
    def width(self) -> int:
        """Algebra elements of one block, rounded up."""
        return -(-self.channels // (self.blocks * self.n))

    @property
    def elements(self) -> int:
        """Algebra elements of all blocks: the size of the axis in the components."""
        return self.blocks * self.width

    @property
    def is_padded(self) -> bool:
        """Whether n does not divide the size of a block."""
        return self.channels % (self.blocks * self.n) != 0

    def split(self, x: Tensor) -> Tensor:
        """Split channels into elements, with zeros where they are padded: [B, channels, *space] to [B, n, elements, *space]."""
        space = x.shape[2:]
        if self.is_padded:
            x = x.reshape(x.shape[0], self.blocks, self.size, math.prod(space))
            x = F.pad(x, (0, 0, 0, self.n * self.width - self.size))
        if self.blocks > 1:
            x = x.reshape(x.shape[0], self.blocks, self.n, self.width * math.prod(space)).transpose(1, 2)
        return x.reshape(x.shape[0], self.n, self.elements, *space)

    def join(self, y: Tensor) -> Tensor:
        """Undo `split` for [B, n, blocks, width, *space]."""
        space = y.shape[4:]
        if self.blocks > 1:
            y = y.transpose(1, 2)
        if self.is_padded:
            y = y.reshape(y.shape[0], self.blocks, self.n * self.width, math.prod(space))[:, :, : self.size]
        return y.reshape(y.shape[0], self.channels, *space)


def axis_layout(channels: int, n: int, blocks: int = 1) -> AxisLayout:
    """Return an `AxisLayout`; raise `InputError` unless the channels split into equal blocks of at least one channel."""
    if channels < 1 or blocks < 1 or channels % blocks:
        raise InputError(f"{channels} channels do not split into {blocks} equal blocks of at least one channel")
    return AxisLayout(channels, n, blocks)


class Geometry(NamedTuple):
    """The geometry of a convolution along each axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


class Work(NamedTuple):
    """The shapes of a product that the plan chooses a kernel for.

    For a convolution ``area`` is the number of kernel positions, and ``rows`` and ``inputs`` count output and input positions
    of the batch.
    """

    rows: int
    out: AxisLayout
    inp: AxisLayout
    m: int  # dimension of a weight: the algebra's n, or less for weights in a subspace
    rank: int  # real multiplications R of the factored product; 0 without factors, or with R >= m n
    training: bool  # whether a gradient of the input, the components or the product is needed
    prepared: bool = False  # whether `Kernel.prepare` is cached: inside `zoo.keep_matrices`, for a weight without gradient
    threads: int = 1
    dtype: torch.dtype = torch.float32
    device: str = "cpu"  # device type
    learned: bool = False  # whether the factors need a gradient
    convolution: bool = False
    area: int = 1
    inputs: int = 0
    instructions: str = "AVX512"  # instruction set of the CPU, see `SPEEDS`

    @property
    def speeds(self) -> Speeds:
        """The speeds that predict the cost."""
        return SPEEDS.get(self.instructions, SPEEDS["AVX2"])


class Part(NamedTuple):
    """One of the weights whose real matrices are assembled together, see `zoo.kernels.matrices`."""

    components: Tensor  # w, [m, out elements, in elements, *kernel]
    table: Tensor | None  # A, [m, n, n], of a product that is learned or random, in the dtype of the components
    literal: str  # a fixed product, see `zoo.algebras.literal`
    out: AxisLayout
    inp: AxisLayout


class Operand(NamedTuple):
    """The weight that a kernel multiplies by."""

    components: Tensor  # w, [m, out elements, in elements, *kernel]
    algebra: Algebra
    out: AxisLayout
    inp: AxisLayout

    def action(self) -> Tensor:
        """Return A, [m, n, n], in the dtype and on the device of the components; read-only."""
        return action(self.algebra, self.components)

    def part(self) -> Part:
        """Return this weight as one whose matrix is to be assembled."""
        text = literal(self.algebra)
        return Part(self.components, None if text else self.action(), text, self.out, self.inp)

    def factors(self) -> Factors:
        """Return the factors of A, [R, m], [R, n] and [R, n]; read-only. They exist if `Work.rank` is positive."""
        return factors_of(self.algebra, self.components)  # type: ignore[return-value]


class Kernel:
    """Base class of kernels, which multiply rows or the patches of a convolution by a weight.

    Subclass it and add the class to the entry points ``zoo.kernels`` of a package, or `zoo.register` it.
    `zoo.kernels.real_matrix` defines the values and gradients to return.

    Attributes:
        name: Name for `zoo.nn.set_kernel`; a linear and a convolution kernel may share it.
        casts: Whether the kernel supports autocast: it then receives x and the bias in autocast's dtype, and the components in
            their own.
    """

    name: ClassVar[str]
    casts: ClassVar[bool] = False

    def can(self, work: Work) -> bool:
        """Return whether this kernel supports the product, including gradients if ``work.training``."""
        raise NotImplementedError

    def cost(self, work: Work) -> float:
        """Predict the seconds on the reference machine (``work.speeds``); infinite if the kernel runs only on request."""
        raise NotImplementedError

    def missing(self) -> str | None:
        """Return why the kernel cannot run on this machine, or None."""
        return None

    def prepare(self, weight: Operand) -> Prepared:
        """Precompute a function of the weight, which `zoo.keep_matrices` caches; called without gradients."""
        return None

    def bind(self, weight: Operand, prepared: Prepared = None) -> Call | None:
        """Return a fast ``(x, bias) -> y`` for rows of the weight's dtype without gradients, or None."""
        return None

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Prepared, geometry: Geometry | None) -> Tensor:
        """Multiply and add a bias: [..., in] to [..., out], or for a convolution [N, in, *space] to [N, out, *space].

        The result must support in-place operations: it is neither a view of the output of a custom autograd function nor saved
        for the backward pass.

        Args:
            x: Rows or images on the device of the components and, without autocast, in their dtype.
            weight: The weight, which receives gradients if ``work.training``.
            bias: A vector [out], or None.
            prepared: The result of `prepare` if ``work.prepared``, else None.
            geometry: The geometry of a convolution.
        """
        raise NotImplementedError

    def matrices(self, parts: Sequence[Part], dtype: torch.dtype) -> list[Tensor] | None:
        """Assemble the real matrices of weights in a dtype, or return None to leave it to the definition; without gradients.

        Values are `zoo.kernels.real_matrix`, rounded once, in the memory format of the components, each with its own storage.
        """
        return None

    def matrix_gradients(self, parts: Sequence[Part], grads: Sequence[Tensor]) -> list[tuple[Tensor, Tensor | None]] | None:
        """Return the gradients of the components, and of the table of parts that have one, or None as `matrices`."""
        return None

    def hermitian_attention(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, first: int | None, dropout: float, seed: int
    ) -> Tensor | None:
        """Average values as `zoo.nn.scores.HermitianAttention`, or return None to leave it to that; with gradients."""
        return None


def product_cost(speeds: Speeds, rows: int, inp: int, out: int, threads: int, unpacked: int = 1) -> float:
    """Predict the seconds of [rows, inp] @ [inp, out]; for more than ``unpacked`` rows the matrix is repacked first."""
    narrow, read = (1 + speeds.half_width / inp) * (1 + speeds.half_width / out), BYTES * inp * out / speeds.reading
    multiplied = max(2 * rows * inp * out / (speeds.multiply * threads) * narrow, read)
    return multiplied + (2 * read if rows > unpacked else 0.0)


def real_cost(work: Work) -> float:
    """Predict the seconds of the real layer of the same size."""
    product = product_cost(work.speeds, work.rows, work.inp.channels, work.out.channels, work.threads)
    forward = work.area * product + work.speeds.call
    return 3 * forward if work.training else forward


AUTO = "auto"


def kernels() -> list[Kernel]:
    """Return the installed and registered kernels; one that fails to load is skipped with a warning."""
    return [kernel for entry in registry.entries("zoo.kernels") if (kernel := _load(entry)) is not None]


@cache
def _load(entry: registry.Entry) -> Kernel | None:
    try:
        kernel: Kernel = registry.load(entry)()
    except Exception as error:  # plugins may raise anything
        warnings.warn(f"skipping the {entry}: {one_line(error)}", stacklevel=2)
        return None
    return kernel


def plan(work: Work, name: str = AUTO, elsewhere: bool = False) -> Kernel:
    """Return the kernel of a name if it supports the product, else ``block``; for ``auto`` that of the lowest cost.

    A kernel is asked whether it is `Kernel.missing` only when it is chosen, because the answer may take a compiler, and not at
    all if the product is computed ``elsewhere``, on a machine that lacks nothing.
    """
    candidates = [kernel for kernel in kernels() if name in (AUTO, kernel.name) or kernel.name == "block"]
    candidates = [kernel for kernel in candidates if kernel.can(work)]
    while True:
        kernel = min(candidates, key=lambda kernel: kernel.cost(work) if name == AUTO else kernel.name == "block")
        if elsewhere or kernel.missing() is None:
            return kernel
        candidates.remove(kernel)


def gpu_status() -> str:
    """Describe in one line which kernels train on a GPU of this machine, and why."""
    wide = axis_layout(8192, 4)
    kernel = plan(Work(2**14, wide, wide, 4, 8, training=True, dtype=torch.bfloat16, device="cuda"), elsewhere=True)
    if reason := kernel.missing():
        return f"block, in torch operations: {reason}"
    return f"{kernel.name} in training of wide layers in bfloat16, else block"


def check_kernel(name: str) -> None:
    """Raise `InputError` if a kernel does not exist or cannot run on this machine."""
    by_name = {kernel.name: kernel for kernel in kernels()}
    if name == AUTO:
        return
    if name not in by_name:
        raise InputError(f"kernel={shorten(name)}: use {AUTO}, {', '.join(sorted(by_name))}", code="unknown")
    if reason := by_name[name].missing():
        raise InputError(f"kernel='{name}' is not supported on this machine: {reason}", code="unsupported")
