"""What torch's own tools see of a layer whose weight is computed."""

from typing import Any, Never

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.kernels import AxisLayout
from zoo.layers.weight import ComputedMatrix, Weight

ADVICE = ComputedMatrix.message
OWNER = "a layer has no parameter 'weight' of its own: give torch's tool layer.weight_module and 'components'"


class Reparametrized(nn.Module):
    """A parametrization of torch, as a function of the computed matrix and of what it adds to the parameters."""

    def __init__(self, parametrization: nn.Module, matrix: Tensor) -> None:
        super().__init__()
        self.parametrization, self.place = parametrization, 0
        inverse: Any = getattr(parametrization, "right_inverse", None)
        try:
            parts = inverse(matrix) if inverse is not None else matrix
        except NotImplementedError:
            parts = matrix
        parts = (parts,) if isinstance(parts, Tensor) else tuple(parts)
        # Weight normalisation: magnitudes and the matrix itself. The matrix stays computed, the rest becomes parameters.
        same = [i for i, part in enumerate(parts) if part.shape == matrix.shape and torch.equal(part, matrix)]
        if not same:
            raise InputError(f"{type(parametrization).__name__} does not keep the matrix it starts from: {ADVICE}")
        self.place = same[-1]
        others = [part for i, part in enumerate(parts) if i != self.place]
        self.originals = nn.ParameterList(nn.Parameter(part.detach().clone()) for part in others)

    def forward(self, matrix: Tensor) -> Tensor:
        """Change the matrix."""
        parts = [*self.originals]
        parts.insert(self.place, matrix)
        y: Tensor = self.parametrization(*parts)
        return y


class _Parameters(dict[str, Any]):
    """The parameters of a layer: tools of torch that take ``weight`` out of them get an answer, not a KeyError."""

    def __missing__(self, name: str) -> Never:
        raise InputError(f"{OWNER}, or use torch.nn.utils.parametrizations") if name == "weight" else KeyError(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name) if name in self else self.__missing__(name)


class ComputedWeight(nn.Module):
    """A layer that holds a `Weight` as ``weight_module`` and shows its matrix as ``weight``, where torch's tools look for it.

    Over the reals ``weight`` is the parameter. Over an algebra it is a `ComputedMatrix`. The parametrizations of torch work by
    their default name: they are applied to the matrix.
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
        """The product that this layer multiplies with."""
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
        """Draw the weights anew and set the bias, if there is one, to zero."""
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
            raise InputError(OWNER)
        else:
            super().register_parameter(name, param)

    @property
    def parametrizations(self) -> nn.ModuleDict:
        """The entry for `torch.nn.utils.parametrize`, which appends to what computes a tensor."""
        return _Parametrizations(self.weight_module)


class _Parametrizations(nn.ModuleDict):
    """What `torch.nn.utils.parametrize` asks of a module and extends: here, ``weight`` alone is computed, and was already."""

    unsafe = False

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self.__dict__["of"] = weight

    def __contains__(self, name: object) -> bool:
        return name == "weight"

    def __len__(self) -> int:
        weight: Weight = self.__dict__["of"]
        return len(weight.reparametrizations) if weight.is_reparametrized else 0

    def __getitem__(self, name: str) -> Any:
        return self

    def append(self, parametrization: nn.Module) -> None:
        """Apply a parametrization to the matrix from now on."""
        weight: Weight = self.__dict__["of"]
        weight.reparametrize(Reparametrized(parametrization, weight.matrix().detach()))

    @property
    def is_tensor(self) -> Never:
        """Refuse `torch.nn.utils.parametrize.remove_parametrizations`."""
        raise InputError(
            "parametrizations of a computed weight cannot be removed: build the layer anew and load its components"
        )
