"""One product, several exact ways to compute it; every kernel computes what `real_matrix` defines."""

from zoo.kernels.axis_layout import AxisLayout, axis_layout
from zoo.kernels.block import real_matrix

__all__ = ["AxisLayout", "axis_layout", "real_matrix"]
