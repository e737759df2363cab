"""One product, several exact ways to compute it; every kernel computes what `real_matrix` defines."""

from zoo.kernels.base import AxisLayout, axis_layout
from zoo.kernels.block import block_linear, real_matrix
from zoo.kernels.factored import factored_linear
from zoo.kernels.factors import Factors, factorize
from zoo.kernels.thin import thin_linear

__all__ = [
    "AxisLayout",
    "Factors",
    "axis_layout",
    "block_linear",
    "factored_linear",
    "factorize",
    "real_matrix",
    "thin_linear",
]
