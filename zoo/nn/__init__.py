"""Layers over any algebra, and the factory that backbones create them with."""

from zoo.nn.attention import Attention as Attention
from zoo.nn.attention import RelativeAttention as RelativeAttention
from zoo.nn.batching import batch_matrices as batch_matrices
from zoo.nn.conv import Conv1d as Conv1d
from zoo.nn.conv import Conv2d as Conv2d
from zoo.nn.conv import Conv3d as Conv3d
from zoo.nn.conv import ConvTranspose1d as ConvTranspose1d
from zoo.nn.conv import ConvTranspose2d as ConvTranspose2d
from zoo.nn.conv import ConvTranspose3d as ConvTranspose3d
from zoo.nn.elements import ElementNorm as ElementNorm
from zoo.nn.elements import Product as Product
from zoo.nn.elements import Readout as Readout
from zoo.nn.embedding import Embedding as Embedding
from zoo.nn.embedding import PositionEmbedding as PositionEmbedding
from zoo.nn.embedding import TokenEmbedding as TokenEmbedding
from zoo.nn.factory import Layers as Layers
from zoo.nn.kernel_choice import set_kernel as set_kernel
from zoo.nn.linear import Linear as Linear
from zoo.nn.multihead_attention import MultiheadAttention as MultiheadAttention
from zoo.nn.recurrent import GRU as GRU
from zoo.nn.recurrent import LSTM as LSTM
from zoo.nn.weight import Weight as Weight
from zoo.nn.weight import keep_matrices as keep_matrices
