"""Layers over any algebra, and the factory that backbones build with."""

from zoo.layers.attention import Attention
from zoo.layers.conv import Conv1d, Conv2d
from zoo.layers.embedding import Embedding
from zoo.layers.factory import Layers
from zoo.layers.linear import Linear
from zoo.layers.lstm import LSTM
from zoo.layers.norm import ElementNorm
from zoo.layers.positions import PositionEmbedding
from zoo.layers.product import Product
from zoo.layers.readout import Readout
from zoo.layers.relative import RelativeAttention

__all__ = [
    "LSTM",
    "Attention",
    "Conv1d",
    "Conv2d",
    "ElementNorm",
    "Embedding",
    "Layers",
    "Linear",
    "PositionEmbedding",
    "Product",
    "Readout",
    "RelativeAttention",
]
