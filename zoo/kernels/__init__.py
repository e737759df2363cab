"""One product, several exact ways to compute it; every kernel computes what `real_matrix` defines."""

from zoo.kernels.block import AxisLayout, axis_layout, real_matrix

__all__ = ["AxisLayout", "axis_layout", "real_matrix"]
