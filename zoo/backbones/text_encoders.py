"""Classic classifiers of sentences and pairs of sentences: fastText, CNN, LSTM and decomposable attention."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from zoo.backbones.build import recipe
from zoo.backbones.sequence_classifier import feedforward, pool, text_classifier
from zoo.errors import InputError
from zoo.nn import LSTM, Layers
from zoo.nn.attention import check_heads
from zoo.nn.embedding import length_limit
from zoo.nn.scores import arrange, attend
from zoo.registry import passes_options_to


@recipe(data="glosses", max_epochs=8, lr=5e-3, inputs=("text", "text_pair"))
@passes_options_to(text_classifier)
def fasttext(layers: Layers, *, dim: int = 128, hidden: int = 128, pooling: str = "mean", **options: Any) -> nn.Module:
    """FastText without n-grams (Joulin et al. 2016): the mean of the word vectors, a layer over the algebra, and a head.

    Args:
        dim: Channels of a word vector.
        hidden: Channels of the layer before the head (complex-valued: Wang et al. 2020, Eq. 10); 0 for none.
        pooling: mean, sum, max, max+mean, first or last.
        options: Those of `text_classifier`.
    """
    return text_classifier(layers, dim, dim, lambda embedding: embedding, pooling, hidden=hidden, **options)


class ConvEncoder(nn.Module):
    """Maximum of each filter over all windows of a text: tokens [B, L] to [B, len(widths) * filters].

    Windows do not overlap padding, except that a text shorter than a window is padded with zeros to its width.
    """

    def __init__(self, layers: Layers, token_embedding: nn.Module, dim: int, widths: tuple[int, ...], filters: int) -> None:
        super().__init__()
        self.token_embedding, self.widths = token_embedding, widths
        self.convolutions = nn.ModuleList(layers.conv1d(dim, filters, width) for width in widths)

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode and pool: [B, L] to [B, len(widths) * filters]."""
        lengths = (tokens != 0).sum(1, keepdim=True)
        # An exported network has a dynamic length, so it always pads as if for one token.
        missing = max(self.widths) - (1 if torch.compiler.is_exporting() else tokens.shape[1])
        x = F.pad(self.token_embedding(tokens).transpose(1, 2), (0, max(0, missing)))
        maxima = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            y = convolution(x).relu()
            inside = torch.arange(y.shape[2], device=y.device) <= (lengths - width).clamp_min(0)
            maxima.append(y.masked_fill(~inside.unsqueeze(1), 0.0).amax(2))
        return torch.cat(maxima, -1)


@recipe(data="glosses", max_epochs=6, lr=2e-3, inputs=("text", "text_pair"))
@passes_options_to(text_classifier)
def cnn(
    layers: Layers,
    *,
    dim: int = 128,
    filters: int = 96,
    widths: tuple[int, ...] = (3, 4, 5),
    dropout: float = 0.3,
    **options: Any,
) -> nn.Module:
    """Convolutional sentence encoder (Kim 2014): windows of 3, 4 and 5 words, the maximum over the text.

    Args:
        dim: Channels of a word vector.
        filters: Channels for each width.
        widths: Tokens in a window.
        dropout: Dropout probability for word vectors, after pooling and after the layer.
        options: Those of `text_classifier`.
    """
    if min(widths, default=0) < 1:
        raise InputError(f"widths={widths}: must be positive integers, such as widths=(3, 4, 5)")

    def encode(embedding: nn.Module) -> nn.Module:
        return ConvEncoder(layers, embedding, dim, tuple(widths), filters)

    return text_classifier(layers, dim, filters, encode, None, len(widths), dropout=dropout, **options)


class LSTMEncoder(nn.Module):
    """Token embedding and an LSTM that skips padding: tokens [B, L] to [B, L, directions * dim], zero at padding."""

    def __init__(self, token_embedding: nn.Module, lstm: LSTM | nn.LSTM) -> None:
        super().__init__()
        self.token_embedding, self.lstm = token_embedding, lstm

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode: [B, L] to [B, L, directions * dim]."""
        x, mask = self.token_embedding(tokens), tokens != 0
        if isinstance(self.lstm, LSTM):
            y: Tensor = self.lstm(x, lengths=mask.sum(1))[0]
            return y
        # A folded network contains torch's LSTM, which needs packed sequences.
        packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])[0]


@recipe(data="glosses", max_epochs=6, lr=2e-3, inputs=("text", "text_pair"))
@passes_options_to(text_classifier)
def lstm(
    layers: Layers,
    *,
    dim: int = 128,
    embedding_dim: int | None = None,
    depth: int = 1,
    bidirectional: bool = False,
    rules: str = "fused",
    pooling: str = "max+mean",
    hidden: int = 128,
    mlp_depth: int = 1,
    dropout: float = 0.2,
    **options: Any,
) -> nn.Module:
    """LSTM encoder of sentences and pairs of sentences, as in PHM (Zhang et al. 2021, section 4.1 and App. B.1).

    Args:
        dim: Channels of the hidden state, in each direction.
        embedding_dim: Channels of a word vector; by default dim.
        depth: Layers of the LSTM.
        bidirectional: Whether it also reads backward.
        rules: ``fused``, or ``gate`` for a separate learned product in each of the eight matrices, as in the paper.
        pooling: How the features of a text become one vector: max+mean as in the paper, max, mean, sum, first or last.
        hidden: Channels of the layers before the head; 0 for none.
        mlp_depth: Number of these layers.
        dropout: Dropout probability for word vectors, between the layers, after pooling.
        options: Those of `text_classifier`.
    """
    width = dim if embedding_dim is None else embedding_dim

    def encode(embedding: nn.Module) -> nn.Module:
        between = dropout if depth > 1 else 0.0
        return LSTMEncoder(
            embedding,
            layers.lstm(width, dim, depth, batch_first=True, bidirectional=bidirectional, dropout=between, rules=rules),
        )

    shared = options | {"hidden": hidden, "dropout": dropout}
    return text_classifier(layers, width, dim, encode, pooling, 1 + bidirectional, mlp_depth, **shared)


class DecomposableAttention(nn.Module):
    r"""Decomposable attention: DeAtt over the reals, Q-Att over the quaternions (Tay et al. 2019, 3.2 and 4.1).

    With words a_i and b_j of two texts, F a feed-forward network (Parikh et al. 2016, Eq. 1) and one softmax per component,

        E = F(a) F(b)^T,  b'_i = sum_j softmax_j(E_ij) b_j,  a'_j = sum_i softmax_i(E_ij) a_i
        c_1 = sum_j G([a'_j; b_j; a'_j b_j; a'_j - b_j]),  c_2 = sum_i G([b'_i; a_i; b'_i a_i; b'_i - a_i])
        y = head(H([c_1; c_2; c_1 c_2; c_1 - c_2]))

    where juxtaposition is the product of the algebra: over the reals the elementwise one, and E is a matrix of dot products.
    G and H have ``depth`` layers, F has ``attend_depth``; with 0, F is the identity.
    """

    def __init__(
        self,
        layers: Layers,
        token_embedding: nn.Module,
        dim: int,
        depth: int,
        attend_depth: int,
        outputs: int,
        readout: str | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.token_embedding, self.product = token_embedding, layers.product(dim, role="attention")
        self.max_length = length_limit(token_embedding)
        self.attend, *_ = feedforward(layers, dim, dim, attend_depth, 1, dropout)
        self.compare, *_ = feedforward(layers, 4 * dim, dim, depth, 4, dropout)
        self.aggregate, *_ = feedforward(layers, 4 * dim, dim, depth, 4, dropout)
        self.head = layers.head(dim, outputs, readout)

    def forward(self, tokens: Tensor, other: Tensor) -> Tensor:
        """Classify the pair: tokens [B, L] and [B, M] to [B, outputs]."""
        mask, other_mask = tokens != 0, other != 0
        a, b = self.token_embedding(tokens), self.token_embedding(other)
        fa, fb = self.attend(a), self.attend(b)
        structure = self.product.algebra.table(a)
        aligned_b = align(fa, fb, b, structure, other_mask)
        # The transposed table swaps the factors, so that F(a_i) stays on the left.
        aligned_a = align(fb, fa, a, structure.transpose(0, 1), mask)
        c1 = pool(self.compare(self.features(aligned_a, b)), other_mask, "sum")
        c2 = pool(self.compare(self.features(aligned_b, a)), mask, "sum")
        y: Tensor = self.head(self.aggregate(self.features(c1, c2)))
        return y

    def features(self, x: Tensor, y: Tensor) -> Tensor:
        """Concatenate [x; y; x y; x - y], [..., 4 * dim]."""
        return torch.cat([x, y, self.product(x, y), x - y], -1)


def align(query: Tensor, key: Tensor, value: Tensor, structure: Tensor, mask: Tensor) -> Tensor:
    """Average the values [B, M, C] for every query [B, L, C] by the component softmax of their products, [B, L, C]."""
    q, k, v = (t.unsqueeze(1) for t in (query, key, value))
    return attend(q, arrange(k, structure, "product"), v, "product", mask, scale=1.0).squeeze(1)


@recipe(data="glosses(task=pairs)", max_epochs=7, lr=3e-3, inputs=("text_pair",))
def decomposable_attention(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int,
    pair: bool = True,
    dim: int = 96,
    depth: int = 2,
    attend_depth: int = 2,
    positions: str | None = "auto",
    readout: str | None = None,
    dropout: float = 0.1,
) -> nn.Module:
    """Decomposable attention of two texts: DeAtt over the reals, Q-Att over the quaternions (Tay et al. 2019, Table 1).

    Args:
        pair: Must be true: it reads pairs.
        dim: Channels of a word vector and of every layer; the paper has 50 and 200.
        depth: Layers of the comparing and of the aggregating network.
        attend_depth: Layers before the alignment; 0 aligns the word vectors.
        positions: Position embedding: none (the same as auto), learned or trigonometric.
        readout: How the head computes logits: channels, modulus or scalar.
        dropout: Dropout probability for word vectors and layers.
    """
    if not pair:
        raise InputError(
            "decomposable_attention requires pairs of texts: use data such as glosses(task=pairs)", code="mismatch"
        )
    check_heads(dim, 1, layers.over("attention").n, backbone="decomposable_attention")
    embedding = layers.token_embedding(vocab_size, dim, max_length, positions=positions, dropout=dropout)
    return DecomposableAttention(layers, embedding, dim, depth, attend_depth, num_classes, readout, dropout)
