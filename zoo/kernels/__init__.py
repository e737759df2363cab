"""Kernels that multiply by a weight over an algebra; `real_matrix` defines the result of all of them."""

from zoo.kernels.assembly import matrix_by_product as matrix_by_product
from zoo.kernels.assembly import real_matrix as real_matrix
from zoo.kernels.base import AxisLayout as AxisLayout
from zoo.kernels.base import Geometry as Geometry
from zoo.kernels.base import Kernel as Kernel
from zoo.kernels.base import Operand as Operand
from zoo.kernels.base import Part as Part
from zoo.kernels.base import Work as Work
from zoo.kernels.base import axis_layout as axis_layout
from zoo.kernels.block import block_linear as block_linear
from zoo.kernels.matrices import assembled as assembled
from zoo.kernels.matrices import matrices as matrices
