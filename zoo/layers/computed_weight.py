"""Base class of layers with a computed weight, which makes them work with torch's parametrization tools."""

from typing import Any, Never

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.kernels import AxisLayout
from zoo.layers.weight import ComputedMatrix, Weight

ADVICE = ComputedMatrix.message
NO_PARAMETER = "'weight' of this layer is not a parameter: apply torch's tool to layer.weight_module and 'components'"


class Reparametrized(nn.Module):
    """A torch parametrization as a function of the computed matrix and its additional parameters."""

    def __init__(self, parametrization: nn.Module, matrix: Tensor) -> None:
        super().__init__()
        self.parametrization = parametrization
        inverse: Any = getattr(parametrization, "right_inverse", None)
        try:
            parts = inverse(matrix) if inverse is not None else matrix
        except NotImplementedError:
            parts = matrix
        parts = (parts,) if isinstance(parts, Tensor) else tuple(parts)
        # Weight normalisation has the parts magnitude and matrix: the matrix is computed, the magnitude becomes a parameter.
        indices = [i for i, part in enumerate(parts) if part.shape == matrix.shape and torch.equal(part, matrix)]
        if not indices:
            raise InputError(f"{type(parametrization).__name__} does not preserve the original matrix: {ADVICE}")
        self.index = indices[-1]
        others = [part for i, part in enumerate(parts) if i != self.index]
        self.originals = nn.ParameterList(nn.Parameter(part.detach().clone()) for part in others)

    def forward(self, matrix: Tensor) -> Tensor:
        """Apply the parametrization to the matrix."""
        parts = [*self.originals]
        parts.insert(self.index, matrix)
        y: Tensor = self.parametrization(*parts)
        return y


class _Parameters(dict[str, Any]):
    """The parameters of a layer, which explain to torch's tools that ``weight`` is not among them."""

    def __missing__(self, name: str) -> Never:
        raise InputError(f"{NO_PARAMETER}, or use torch.nn.utils.parametrizations") if name == "weight" else KeyError(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name) if name in self else self.__missing__(name)


class ComputedWeight(nn.Module):
    """A layer with a `Weight` as ``weight_module`` and its real matrix as ``weight``.

    Over the reals ``weight`` is the parameter, over an algebra a `ComputedMatrix`. Parametrizations of torch that are
    registered for ``weight`` are applied to the matrix.
    """

    weight_module: Weight

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_parameters"] = _Parameters()

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
        weight: Tensor = self.weight_module()
        return weight

    @weight.setter
    def weight(self, _: Tensor) -> None:
        raise InputError(ADVICE)

    def reset_parameters(self) -> None:
        """Redraw the weight and set the bias to zero."""
        self.weight_module.reset_parameters()
        if getattr(self, "bias", None) is not None:
            nn.init.zeros_(self.bias)  # type: ignore[arg-type]

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Assign ``components``, and over the reals also ``weight``, to the weight module."""
        if name == "components" or (name == "weight" and self.algebra.n == 1):
            self.weight_module.components = param  # type: ignore[assignment]
        elif name == "weight":
            raise InputError(ADVICE)
        elif name == "weight_orig":  # torch.nn.utils.prune
            raise InputError(NO_PARAMETER)
        else:
            super().register_parameter(name, param)

    @property
    def parametrizations(self) -> nn.ModuleDict:
        """The parametrizations of ``weight``, as `torch.nn.utils.parametrize` expects them."""
        return _Parametrizations(self.weight_module)


class _Parametrizations(nn.ModuleDict):
    """The interface of `torch.nn.utils.parametrize` to a layer whose ``weight`` counts as parametrized from the start."""

    unsafe = False

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self.__dict__["target"] = weight  # not a submodule

    def __contains__(self, name: object) -> bool:
        return name == "weight"

    def __len__(self) -> int:
        weight: Weight = self.__dict__["target"]
        return len(weight.reparametrizations) if weight.is_reparametrized else 0

    def __getitem__(self, name: str) -> Any:
        return self

    def append(self, parametrization: nn.Module) -> None:
        """Add a parametrization of the matrix."""
        weight: Weight = self.__dict__["target"]
        weight.reparametrize(Reparametrized(parametrization, weight.matrix().detach()))

    @property
    def is_tensor(self) -> Never:
        """Raise an error: `torch.nn.utils.parametrize.remove_parametrizations` is not supported."""
        raise InputError("parametrizations of a computed weight cannot be removed: create a new layer and load its components")
