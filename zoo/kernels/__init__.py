"""One product, several exact ways to compute it, and the function that picks one.

Every kernel computes what `real_matrix` defines. `zoo.layers.weight.Weight` is the only caller.
"""

from zoo.kernels.axis_layout import AxisLayout, axis_layout
from zoo.kernels.block import real_matrix
from zoo.kernels.plan import Kernel, plan

__all__ = ["AxisLayout", "Kernel", "axis_layout", "plan", "real_matrix"]
