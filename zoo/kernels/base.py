"""What a kernel is: one exact way to multiply by the weight of a layer, which the plan may choose.

Kernels predict their times on a reference machine, 2 cores with AVX-512 in float32. The plan compares these numbers and
nothing that is measured where it runs: which kernel computes a product, and with it the last bits of a result, depends on the
shapes alone.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from zoo.algebras import Factors
from zoo.errors import InputError

SPEED = 1.6e11
"""Operations per second of one thread in large products of matrices."""
HALF_WIDTH = 4.0
"""Width of a matrix at which the speed is half."""
TRAFFIC = 1.7e10
"""Bytes per second of one thread that combines components."""
READING = 5e10
"""Bytes per second of all threads that read a matrix for one row."""
CALL = 1e-6
"""Seconds of an operation that does almost nothing."""
BYTES = 4


class AxisLayout(NamedTuple):
    """A channel axis that holds ``blocks`` vectors side by side, each of them component-major by itself.

    One block of C / blocks real channels is [n, width] with width = ceil(C / (blocks n)), cut to its first C / blocks entries
    if n does not divide it. The missing channels are zeros that are never computed; their weights exist and are counted.

    A residual stream has 1 block, the gates of an LSTM 4, a fused qkv 3 * heads.

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
        """Algebra elements of one block; the last ones are padded if need be."""
        return -(-self.size // self.n)

    @property
    def elements(self) -> int:
        """Algebra elements of the whole axis: the size of this axis in the components."""
        return self.blocks * self.width

    @property
    def is_whole(self) -> bool:
        """Whether the axis is one block without padding."""
        return self.blocks == 1 and self.channels == self.n * self.width


def axis_layout(channels: int, n: int, blocks: int = 1) -> AxisLayout:
    """Return an `AxisLayout`; `InputError` unless the blocks share one channel or more evenly."""
    if channels < 1 or blocks < 1 or channels % blocks:
        raise InputError(f"{channels} channels do not split into {blocks} equal blocks of at least one channel")
    return AxisLayout(channels, n, blocks)


class Geometry(NamedTuple):
    """How the kernel of a convolution moves over its input, along each axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


class Work(NamedTuple):
    """One product, described by shapes alone, so that the same kernel runs on every machine.

    A convolution has the numbers of its kernel as ``area``, and counts output positions of the batch as ``rows`` and input
    positions as ``inputs``.
    """

    rows: int
    out: AxisLayout
    inp: AxisLayout
    m: int
    """Numbers in one weight: the algebra's n, or less if the weights come from a subspace."""
    rank: int | None
    """Real multiplications R of the factored product; None if there are no factors, or no fewer than the m n pairs."""
    training: bool
    """Whether a gradient of the input, the components or the product is needed."""
    prepared: bool = False
    """Whether what `Kernel.prepare` returns is cached: inside `zoo.keep_matrices`, for a weight that needs no gradient."""
    threads: int = 1
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    """Type of the device."""
    learned: bool = False
    """Whether the factors need a gradient."""
    convolution: bool = False
    area: int = 1
    inputs: int = 0


class Operand(Protocol):
    """The weight that a kernel multiplies by; `zoo.layers.weight.Weight` is one."""

    out: AxisLayout
    inp: AxisLayout

    @property
    def components(self) -> Tensor:
        """The parameter w, [m, out elements, in elements, *kernel]."""

    def action(self) -> Tensor:
        """Return A, [m, n, n], in the dtype and on the device of the components; never write to it."""

    def factors(self) -> Factors | None:
        """Return the factors [R, m], [R, n], [R, n] like the components, or None; never write to them."""


class Kernel:
    """One exact way to multiply rows, or the patches of a convolution, by a weight.

    A kernel is one file and one line: subclass this, and name the class under ``zoo.kernels`` among a package's entry points
    (or `zoo.register` it). `zoo.kernels.real_matrix` defines the result, values and gradients; `zoo.testing` has the contract.

    Attributes:
        name: The name that `zoo.layers.set_kernel` takes; a linear and a convolution kernel may share it.
        casts: Whether it runs under autocast, on operands that are cast to autocast's dtype. Others leave that to torch.
    """

    name: ClassVar[str]
    casts: ClassVar[bool] = False

    def can(self, work: Work) -> bool:
        """Return whether this kernel computes the product, gradients included if ``work.training``."""
        raise NotImplementedError

    def cost(self, work: Work) -> float:
        """Predict the seconds on the reference machine (`zoo.kernels.plan`); infinite if it runs only when asked for."""
        raise NotImplementedError

    def missing(self) -> str | None:
        """Return what this machine lacks to run the kernel, or None."""
        return None

    def prepare(self, weight: Operand) -> Any:
        """Compute what depends on the weight alone; `zoo.keep_matrices` caches it. Called without gradients."""
        return None

    def bind(self, weight: Operand, prepared: Any = None) -> Callable[[Tensor, Tensor | None], Tensor] | None:
        """Return ``apply`` for rows of one dtype without gradients, all but x and bias looked up already; None if it varies."""
        return None

    def apply(
        self,
        x: Tensor,
        weight: Operand,
        bias: Tensor | None,
        prepared: Any = None,
        geometry: Geometry | None = None,
    ) -> Tensor:
        """Multiply and add a bias.

        Args:
            x: Rows [..., in], of the dtype and on the device of the components; for a convolution [N, in, *space].
            weight: The weight, from which gradients are taken if ``work.training``.
            bias: A vector [out], or None.
            prepared: The result of `prepare` if ``work.prepared``, else None.
            geometry: That of a convolution.

        Returns:
            A new tensor [..., out], or [N, out, *space]: no view of a tensor that a custom autograd function returned, and
            nothing that is saved for the backward pass, so that in-place operations may follow.
        """
        raise NotImplementedError


def product(rows: int, inp: int, out: int, threads: int, unpacked: int = 1) -> float:
    """Predict [rows, inp] [inp, out]; for more than ``unpacked`` rows the matrix is first copied into another order."""
    narrow, read = (1 + HALF_WIDTH / inp) * (1 + HALF_WIDTH / out), BYTES * inp * out / READING
    multiplied = max(2 * rows * inp * out / (SPEED * threads) * narrow, read)
    return multiplied + (2 * read if rows > unpacked else 0.0)


def real_cost(work: Work) -> float:
    """Predict the real layer of the same size."""
    once = work.area * product(work.rows, work.inp.channels, work.out.channels, work.threads) + CALL
    return 3 * once if work.training else once
