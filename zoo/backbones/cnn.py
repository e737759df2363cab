"""Convolutions over windows of words."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.backbones.recipe import recipe
from zoo.backbones.sequence_classifier import SequenceClassifier
from zoo.errors import InputError
from zoo.layers import Layers


class ConvEncoder(nn.Module):
    """The strongest answer of each filter to any window of words: tokens [B, L] to [B, widths * filters].

    Convolution is narrow: windows begin and end inside the text. A text shorter than a window is continued with zeros, always
    to that window's width, so a batch's padding never counts.

    Args:
        layers: The factory that knows the algebra.
        token_embedding: From tokens [B, L] to vectors [B, L, dim].
        dim: Channels of a vector.
        widths: Words in a window, one convolution for each.
        filters: Channels of each convolution.
    """

    def __init__(self, layers: Layers, token_embedding: nn.Module, dim: int, widths: tuple[int, ...], filters: int) -> None:
        super().__init__()
        self.token_embedding, self.widths = token_embedding, widths
        self.convolutions = nn.ModuleList(layers.conv1d(dim, filters, width) for width in widths)

    def forward(self, tokens: Tensor) -> Tensor:
        """Read."""
        lengths = (tokens != 0).sum(1, keepdim=True)
        x = F.pad(self.token_embedding(tokens).transpose(1, 2), (0, max(0, max(self.widths) - tokens.shape[1])))
        strongest = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            y = convolution(x).relu()
            inside = torch.arange(y.shape[2], device=y.device) <= (lengths - width).clamp_min(0)
            strongest.append(y.masked_fill(~inside.unsqueeze(1), 0.0).amax(2))
        return torch.cat(strongest, -1)


@recipe(data="glosses", max_epochs=6, lr=2e-3, inputs=("text", "text_pair"))
def cnn(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int,
    pair: bool = False,
    dim: int = 128,
    filters: int = 96,
    widths: tuple[int, ...] = (3, 4, 5),
    hidden: int = 0,
    positions: str | None = "auto",
    match: str = "product",
    readout: str | None = None,
    dropout: float = 0.3,
) -> nn.Module:
    """Convolutional sentence encoder (Kim 2014): windows of 3, 4 and 5 words, the maximum over the text.

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens; 0 is padding.
        max_length: Tokens of the longest text.
        num_classes: Logits, [B, num_classes].
        pair: Whether it compares two texts.
        dim: Channels of a word vector.
        filters: Channels for each width.
        widths: Words in a window.
        hidden: Channels of a layer before the head; 0 for none.
        positions: What is added to word vectors: none (as auto is here), learned or trigonometric.
        match: How two texts meet: product for [a; b; a b; a - b], concat for [a; b].
        readout: How the head makes logits: channels, modulus or scalar.
        dropout: Probability for word vectors, after pooling and after the layer.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    if not isinstance(widths, (tuple, list)) or not widths or not all(isinstance(w, int) and w > 0 for w in widths):
        raise InputError(f"widths={widths}: windows hold one word or more, as in widths=(3, 4, 5)")
    words = layers.token_embedding(vocab_size, dim, max_length, positions=positions, dropout=dropout)
    windows = ConvEncoder(layers, words, dim, tuple(widths), filters)
    options = {"pair": pair, "outputs": num_classes, "hidden": hidden, "match": match, "readout": readout}
    return SequenceClassifier(layers, windows, filters, pooling=None, vectors=len(widths), dropout=dropout, **options)  # type: ignore[arg-type]
