"""Kernels that multiply by a weight over an algebra; `real_matrix` defines the result of all of them."""

from zoo.kernels.base import AxisLayout, Geometry, Kernel, Operand, Work, axis_layout
from zoo.kernels.block import block_linear, real_matrix
from zoo.kernels.factored import factored_linear
from zoo.kernels.factors import Factors, factorize, factors_of
from zoo.kernels.thin import thin_linear

__all__ = [
    "AxisLayout",
    "Factors",
    "Geometry",
    "Kernel",
    "Operand",
    "Work",
    "axis_layout",
    "block_linear",
    "factored_linear",
    "factorize",
    "factors_of",
    "real_matrix",
    "thin_linear",
]
