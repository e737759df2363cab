"""The linear layer over any algebra, and the base class of layers with a computed weight."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.kernels import AxisLayout
from zoo.nn.computed_matrix import COMPUTED, ComputedMatrix
from zoo.nn.kernel_choice import multiply
from zoo.nn.weight import Weight, one_line, shown


class ComputedWeight(nn.Module):
    """A layer with a `Weight` as ``weight_module`` and its real matrix as ``weight``.

    Over the reals ``weight`` is the parameter, over an algebra a `ComputedMatrix`. Parametrizations of torch that are
    registered for ``weight`` are applied to the matrix.
    """

    weight_module: Weight

    @property
    def components(self) -> nn.Parameter:
        """The parameter that the matrix is computed from."""
        return self.weight_module.components

    @property
    def algebra(self) -> Algebra:
        """The algebra of this layer."""
        return self.weight_module.algebra

    @property
    def inp(self) -> AxisLayout:
        """The layout of the input channels."""
        return self.weight_module.inp

    @property
    def out(self) -> AxisLayout:
        """The layout of the output channels."""
        return self.weight_module.out

    @property
    def weight(self) -> Tensor:
        """The real matrix of this layer."""
        matrix = self.matrix()
        is_plain = isinstance(matrix, nn.Parameter) or torch.compiler.is_compiling()
        return matrix if is_plain else matrix.as_subclass(ComputedMatrix)

    @weight.setter
    def weight(self, matrix: Tensor) -> None:
        # Libraries such as PEFT assign the weight of a layer to the layer itself.
        if not (isinstance(matrix, ComputedMatrix) and torch.equal(matrix, self.matrix())):
            raise InputError(COMPUTED)

    def matrix(self) -> Tensor:
        """Return the real matrix of this layer; callers must not write to it."""
        return self.weight_module()  # type: ignore[no-any-return]

    def reset_parameters(self) -> None:
        """Redraw the weight and set the bias to zero."""
        self.weight_module.reset_parameters()
        if getattr(self, "bias", None) is not None:
            nn.init.zeros_(self.bias)  # type: ignore[arg-type]

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Assign ``components``, and over the reals also ``weight``, to the weight module."""
        if name == "components" or (name == "weight" and self.matrix() is self.components):
            self.weight_module.components = param  # type: ignore[assignment]
        elif name == "weight":
            raise InputError(COMPUTED)
        else:
            super().register_parameter(name, param)

    def __repr__(self) -> str:
        """Show one line, unless there are parametrizations or further modules."""
        return (one_line(self, "weight_module") if one_line(self.weight_module, "algebra") else "") or super().__repr__()

    @property
    def parametrizations(self) -> nn.ModuleDict:
        """The parametrizations of ``weight``, as `torch.nn.utils.parametrize` expects them."""
        return _Parametrizations(self.weight_module)


class Reparametrization(nn.Module):
    """A torch parametrization as a forward hook of a `Weight`, a function of the matrix and of additional parameters."""

    def __init__(self, parametrization: nn.Module, matrix: Tensor) -> None:
        super().__init__()
        self.parametrization = parametrization
        parts = parametrization.right_inverse(matrix) if hasattr(parametrization, "right_inverse") else matrix  # type: ignore[operator]
        # Weight normalization has the parts magnitude and matrix: the matrix is computed, the magnitude becomes a parameter.
        *others, last = parts if isinstance(parts, tuple) else (parts,)
        if last.shape != matrix.shape or not torch.equal(last, matrix):
            name = type(parametrization).__name__
            raise InputError(f"{name} does not preserve the matrix: register it for 'components' of layer.weight_module")
        self.originals = nn.ParameterList(nn.Parameter(part.detach().clone()) for part in others)

    def forward(self, weight: Weight, args: tuple[()], matrix: Tensor) -> Tensor:
        """Apply the parametrization to the matrix."""
        return self.parametrization(*self.originals, matrix)  # type: ignore[no-any-return]


class _Parametrizations(nn.ModuleDict):
    """The interface of `torch.nn.utils.parametrize` to a layer whose ``weight`` counts as parametrized from the start."""

    unsafe = False

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self.__dict__["target"] = weight  # not a submodule

    def __contains__(self, name: object) -> bool:
        return name == "weight"

    def __len__(self) -> int:
        return sum(isinstance(module, Reparametrization) for module in self.__dict__["target"].children())

    def __getitem__(self, name: str) -> Any:
        return self

    def append(self, parametrization: nn.Module) -> None:
        """Add a parametrization of the matrix."""
        weight: Weight = self.__dict__["target"]
        added = Reparametrization(parametrization, weight().detach())
        weight.add_module(f"parametrization{len(self)}", added)
        weight.register_forward_hook(added)
        weight.forget()


class Linear(ComputedWeight):
    r"""Linear layer over an algebra, y = w x + b, with out * in / n weights and `out` real biases.

    The last axis of inputs and outputs is component-major. Sizes are padded internally to a multiple of n: the layer has
    n * ceil(out / n) * ceil(in / n) weights, and weights of padding receive no gradient. A channel axis may consist of several
    vectors side by side (the gates of an LSTM, q, k and v, the heads), each component-major.

    Args:
        in_features: Real input channels.
        out_features: Real output channels.
        bias: Whether to add a real bias, [out_features].
        algebra: The product, of dimension n, or its spec, such as ``"quaternion"``.
        blocks: Number of vectors side by side on the input and the output axis, which must divide their sizes.
        init: Initialization with a factor ``gain``, see `zoo.nn.weight.draw_components`.

    Attributes:
        components: The parameter w, [m, blocks_out * width_out, blocks_in * width_in]; over the reals [out, in].
        weight: The real matrix, [out_features, in_features]: over the reals the parameter, otherwise computed and read-only.
        real: The class of the real layer, which `zoo.fold` returns to: `torch.nn.Linear`, or the class that was converted.

    Example:
        >>> sum(p.numel() for p in Linear(6, 4, algebra=Algebra(torch.ones(2, 2, 2))).parameters())
        16
    """

    real: type[nn.Module] = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        algebra: Algebra | str,
        blocks: tuple[int, int] = (1, 1),
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.weight_module = Weight(algebra, in_features, out_features, blocks=blocks, init=init, gain=gain)
        self.in_features, self.out_features = in_features, out_features
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Multiply and add the bias: [..., in_features] to [..., out_features]."""
        return multiply(self.weight_module, x, self.bias)

    def extra_repr(self) -> str:
        """Show the real sizes, the bias and the blocks."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        blocks = (self.inp.blocks, self.out.blocks)
        return text + ("" if blocks == (1, 1) else f", blocks={blocks}") + shown(self.algebra)
