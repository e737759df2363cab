"""Layers over any algebra, and the factory that backbones create them with."""

from zoo.layers.attention import Attention as Attention
from zoo.layers.attention import RelativeAttention as RelativeAttention
from zoo.layers.batching import batch_matrices as batch_matrices
from zoo.layers.conv import Conv1d as Conv1d
from zoo.layers.conv import Conv2d as Conv2d
from zoo.layers.elements import ElementNorm as ElementNorm
from zoo.layers.elements import Product as Product
from zoo.layers.elements import Readout as Readout
from zoo.layers.embedding import Embedding as Embedding
from zoo.layers.embedding import PositionEmbedding as PositionEmbedding
from zoo.layers.embedding import TokenEmbedding as TokenEmbedding
from zoo.layers.factory import Layers as Layers
from zoo.layers.kernel_choice import set_kernel as set_kernel
from zoo.layers.linear import Linear as Linear
from zoo.layers.lstm import LSTM as LSTM
from zoo.layers.weight import keep_matrices as keep_matrices
