"""Layers over any algebra, and the factory that backbones create them with."""

from zoo.layers.attention import Attention, RelativeAttention
from zoo.layers.conv import Conv1d, Conv2d
from zoo.layers.elements import ElementNorm, Product, Readout
from zoo.layers.embedding import Embedding, TokenEmbedding
from zoo.layers.factory import Layers
from zoo.layers.kernel_choice import set_kernel
from zoo.layers.linear import Linear
from zoo.layers.lstm import LSTM
from zoo.layers.positions import PositionEmbedding
from zoo.layers.weight import keep_matrices

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
    "TokenEmbedding",
    "keep_matrices",
    "set_kernel",
]
