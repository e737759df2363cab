"""The classic encoders of sentences and of pairs of sentences: fastText, convolutions, LSTM."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from zoo.backbones.recipe import passes_options_to, recipe
from zoo.backbones.sequence_classifier import text_classifier
from zoo.errors import InputError
from zoo.layers import LSTM, Layers


@recipe(data="glosses", max_epochs=8, lr=5e-3, inputs=("text", "text_pair"))
@passes_options_to(text_classifier)
def fasttext(layers: Layers, *, dim: int = 128, hidden: int = 128, pooling: str = "mean", **options: Any) -> nn.Module:
    """FastText (Joulin et al. 2016): the mean of the word vectors, one layer over the algebra, a head; no n-grams.

    Args:
        layers: The factory that knows the algebra.
        dim: Channels of a word vector.
        hidden: Channels of the layer before the head (complex-valued: Wang et al. 2020, Eq. 10); 0 for none.
        pooling: mean, sum, max, max+mean, first or last.
        options: Those of `text_classifier`.
    """
    return text_classifier(layers, dim, dim, lambda embedding: embedding, pooling, hidden=hidden, **options)


class ConvEncoder(nn.Module):
    """Maximum response of each filter over all windows of a text: tokens [B, L] to [B, len(widths) * filters].

    Convolution is narrow: windows begin and end inside the text. A text shorter than a window is padded with zeros to that
    window's width, so that the padding of a batch changes nothing.
    """

    def __init__(self, layers: Layers, token_embedding: nn.Module, dim: int, widths: tuple[int, ...], filters: int) -> None:
        super().__init__()
        self.token_embedding, self.widths = token_embedding, widths
        self.convolutions = nn.ModuleList(layers.conv1d(dim, filters, width) for width in widths)

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode and pool: [B, L] to [B, len(widths) * filters]."""
        lengths = (tokens != 0).sum(1, keepdim=True)
        # A traced network reads texts of any length, so it cannot ask how many zeros this one lacks; more change nothing.
        lacking = max(self.widths) - (1 if torch.compiler.is_exporting() else tokens.shape[1])
        x = F.pad(self.token_embedding(tokens).transpose(1, 2), (0, max(0, lacking)))
        strongest = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            y = convolution(x).relu()
            inside = torch.arange(y.shape[2], device=y.device) <= (lengths - width).clamp_min(0)
            strongest.append(y.masked_fill(~inside.unsqueeze(1), 0.0).amax(2))
        return torch.cat(strongest, -1)


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
        layers: The factory that knows the algebra.
        dim: Channels of a word vector.
        filters: Channels for each width.
        widths: Tokens in a window.
        dropout: Probability for word vectors, after pooling and after the layer.
        options: Those of `text_classifier`.
    """
    if not isinstance(widths, (tuple, list)) or not widths or not all(isinstance(w, int) and w > 0 for w in widths):
        raise InputError(f"widths={widths}: windows hold one word or more, as in widths=(3, 4, 5)")

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
        # Torch's own, in a folded network, knows no lengths.
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
        layers: The factory that knows the algebra.
        dim: Channels of the hidden state, in each direction.
        embedding_dim: Channels of a word vector; by default dim.
        depth: Layers of the LSTM.
        bidirectional: Whether it also reads backwards.
        rules: ``fused``, or ``gate`` for a learned product of its own in each of the eight matrices, as in the paper.
        pooling: How the features of a text become one vector: max+mean as in the paper, max, mean, sum, first or last.
        hidden: Channels of the layers before the head; 0 for none.
        mlp_depth: Number of these layers.
        dropout: Probability for word vectors, between the layers, after pooling.
        options: Those of `text_classifier`.
    """
    width = dim if embedding_dim is None else embedding_dim

    def encode(embedding: nn.Module) -> nn.Module:
        between = dropout if depth > 1 else 0.0
        return LSTMEncoder(embedding, layers.lstm(width, dim, depth, bidirectional=bidirectional, dropout=between, rules=rules))

    shared = options | {"hidden": hidden, "dropout": dropout}
    return text_classifier(layers, width, dim, encode, pooling, 1 + bidirectional, mlp_depth, **shared)
