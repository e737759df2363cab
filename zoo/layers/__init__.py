"""Layers over any algebra, and the factory that backbones build with."""

from zoo.layers.conv import Conv1d, Conv2d
from zoo.layers.embedding import Embedding
from zoo.layers.factory import Layers
from zoo.layers.linear import Linear
from zoo.layers.norm import ElementNorm
from zoo.layers.readout import Readout

__all__ = ["Conv1d", "Conv2d", "ElementNorm", "Embedding", "Layers", "Linear", "Readout"]
