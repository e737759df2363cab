"""The layer factory, which lets backbones create layers over any algebra."""

from typing import Any

from torch import nn

from zoo import registry
from zoo.algebras import Algebra, reals
from zoo.algebras import algebra as named
from zoo.errors import InputError, check_choice
from zoo.nn.attention import Attention, RelativeAttention
from zoo.nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose2d, Size
from zoo.nn.elements import Product, Readout, norm
from zoo.nn.embedding import Embedding, PositionEmbedding, TokenEmbedding
from zoo.nn.linear import Linear
from zoo.nn.multihead_attention import MultiheadAttention
from zoo.nn.recurrent import GRU, LSTM
from zoo.nn.weight import INITS

ROLES = ("attention", "ffn", "conv", "recurrent", "stem", "embed", "head")
BODY = frozenset({"attention", "ffn", "conv", "recurrent"})


def parse_scope(scope: str) -> frozenset[str]:
    """Return the roles of a scope such as ``all+head``.

    Roles are joined by ``+``; ``all`` stands for every role between the stem and the head. ``all`` is the full model of the
    papers, ``attention`` the partial model of Tay et al. (2019), and ``all+head`` includes the head.
    """
    roles: set[str] = set()
    for role in scope.split("+"):
        if role != "all" and role not in ROLES:
            raise InputError(
                f"unknown scope '{role}' in '{scope}': use all or roles joined by '+': {', '.join(ROLES)}", code="unknown"
            )
        roles |= BODY if role == "all" else {role}
    return frozenset(roles)


class Layers:
    """Create the layers of a network: over an algebra for the roles of the scope, otherwise over the reals.

    Args:
        algebra: The algebra or its spec.
        scope: Roles of the layers over the algebra, see `parse_scope`.
        init: Initialization of all matrices, see `zoo.nn.weight.draw_components`.
        embedding: Spec of the word embedding; by default that of the algebra's ``defaults``, or ``table``.
        vectors: Width of pretrained word vectors, or None.

    Example:
        >>> Layers(reals()).linear(8, 4).weight.shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        algebra: Algebra | str,
        scope: str = "all",
        init: str = "variance",
        embedding: str | None = None,
        vectors: int | None = None,
    ) -> None:
        check_choice("initialization", init, INITS)
        self.algebra, self.scope, self.init = named(algebra), scope, init
        self.roles = parse_scope(scope)
        self.embedding_spec, self.vectors = embedding, vectors

    @property
    def n(self) -> int:
        """Dimension of the algebra."""
        return self.algebra.n

    def over(self, role: str) -> Algebra:
        """Return the algebra of the layers of a role."""
        check_choice("role", role, ROLES)
        return self.algebra if role in self.roles else reals()

    def linear(self, in_features: int, out_features: int, bias: bool = True, *, role: str = "ffn", **options: Any) -> Linear:
        """Return a linear layer; see `Linear` for the options."""
        return Linear(in_features, out_features, bias, algebra=self.over(role), init=self.init, **options)

    def conv1d(self, in_channels: int, out_channels: int, kernel_size: Size, *, role: str = "conv", **options: Any) -> Conv1d:
        """Return a convolution over one axis."""
        return Conv1d(in_channels, out_channels, kernel_size, algebra=self.over(role), init=self.init, **options)

    def conv2d(self, in_channels: int, out_channels: int, kernel_size: Size, *, role: str = "conv", **options: Any) -> Conv2d:
        """Return a convolution over two axes, with torch's arguments."""
        return Conv2d(in_channels, out_channels, kernel_size, algebra=self.over(role), init=self.init, **options)

    def conv3d(self, in_channels: int, out_channels: int, kernel_size: Size, *, role: str = "conv", **options: Any) -> Conv3d:
        """Return a convolution over three axes, with torch's arguments."""
        return Conv3d(in_channels, out_channels, kernel_size, algebra=self.over(role), init=self.init, **options)

    def conv_transpose2d(
        self, in_channels: int, out_channels: int, kernel_size: Size, *, role: str = "conv", **options: Any
    ) -> ConvTranspose2d:
        """Return a transposed convolution over two axes, with torch's arguments."""
        return ConvTranspose2d(in_channels, out_channels, kernel_size, algebra=self.over(role), init=self.init, **options)

    def embedding(self, rows: int, dim: int, *, role: str = "embed", padding_idx: int | None = None) -> Embedding:
        """Return a table of vectors of unit variance, independent of ``init``; real unless the scope contains ``embed``."""
        return Embedding(rows, dim, padding_idx, algebra=self.over(role))

    def norm(self, features: int, name: str = "layer", bias: bool = True) -> nn.Module:
        """Return a norm over real channels, see `zoo.nn.elements.norm`."""
        return norm(name, features, self.n, bias)

    def choose(self, option: str, given: str | None, default: str) -> str:
        """Return the given name, or the algebra's default for ``embedding``, ``score`` or ``readout``, or ``default``."""
        return given or self.algebra.defaults.get(option, default)

    def token_embedding(
        self,
        vocab_size: int,
        dim: int,
        max_length: int,
        *,
        positions: str | None = "auto",
        default: str = "none",
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> TokenEmbedding:
        """Return the token embedding: token vectors, positions and dropout.

        Token vectors and learned positions start small (Gehring et al. 2017, section 4). With trigonometric positions, which
        are larger, vectors that are not pretrained are multiplied by sqrt(dim) (Vaswani et al. 2017, section 3.4).

        Args:
            vocab_size: Vocabulary size; token 0 is padding.
            positions: Kind of the `PositionEmbedding` or None; ``auto`` is none if the embedding encodes order, otherwise
                ``default``.
            scale: Factor on the vectors; by default as above.
        """
        spec = self.choose("embedding", self.embedding_spec, "table")
        info = {"vocab_size": vocab_size, "dim": dim, "max_length": max_length, "vectors": self.vectors}
        embedding = registry.create("zoo.embeddings", spec, self, **info)
        if positions == "auto":
            positions = "none" if getattr(embedding, "ordered", False) else default
        if scale is None:
            scale = dim**0.5 if positions == "trigonometric" and self.vectors is None else 1.0
        return TokenEmbedding(embedding, PositionEmbedding(positions or "none", dim, max_length), dropout, scale)

    def lstm(self, input_size: int, hidden_size: int, num_layers: int = 1, *, role: str = "recurrent", **options: Any) -> LSTM:
        """Return an LSTM, with torch's arguments and those of `LSTM`."""
        return LSTM(input_size, hidden_size, num_layers, algebra=self.over(role), init=self.init, **options)

    def gru(self, input_size: int, hidden_size: int, num_layers: int = 1, *, role: str = "recurrent", **options: Any) -> GRU:
        """Return a GRU, with torch's arguments and those of `GRU`."""
        return GRU(input_size, hidden_size, num_layers, algebra=self.over(role), init=self.init, **options)

    def multihead_attention(
        self, embed_dim: int, num_heads: int, *, role: str = "attention", **options: Any
    ) -> MultiheadAttention:
        """Return multi-head attention with torch's arguments."""
        return MultiheadAttention(embed_dim, num_heads, algebra=self.over(role), init=self.init, **options)

    def attention(
        self, dim: int, heads: int, *, score: str | None = None, role: str = "attention", **options: Any
    ) -> Attention:
        """Return multi-head attention; the default ``score`` is the algebra's, or ``dot`` if attention is real."""
        score = score or (self.choose("score", None, "dot") if role in self.roles else "dot")
        return Attention(dim, heads, algebra=self.over(role), score=score, init=self.init, **options)

    def relative_attention(self, dim: int, heads: int, *, role: str = "attention", **options: Any) -> RelativeAttention:
        """Return causal attention with relative positions and a memory, see `RelativeAttention`."""
        return RelativeAttention(dim, heads, algebra=self.over(role), init=self.init, **options)

    def product(self, dim: int, *, role: str = "attention") -> Product:
        """Return the product of two feature vectors [..., dim]; element by element over the reals."""
        return Product(dim, algebra=self.over(role))

    def head(self, features: int, outputs: int, readout: str | None = None, blocks: int = 1) -> nn.Module:
        """Return the last layer, [..., features] to real outputs [..., outputs].

        With the readout ``channels`` it is a matrix of role ``head``. With ``modulus`` or ``scalar`` a layer over the algebra
        computes one element per output, which is then read out (Wang et al. 2020, App. B). The features are ``blocks`` vectors
        side by side.
        """
        name = self.choose("readout", readout, "channels")
        if name == "channels":
            return self.linear(features, outputs, role="head", blocks=(blocks, 1))
        last = Linear(features, self.n * outputs, algebra=self.algebra, init=self.init, blocks=(blocks, 1))
        return nn.Sequential(last, Readout(self.n, name))
