"""The bag of words with one layer."""

from torch import nn

from zoo.backbones.recipe import recipe
from zoo.backbones.sequence_classifier import SequenceClassifier
from zoo.layers import Layers


@recipe(data="glosses", max_epochs=8, lr=5e-3, inputs=("text", "text_pair"))
def fasttext(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int,
    pair: bool = False,
    dim: int = 128,
    hidden: int = 128,
    positions: str | None = "auto",
    pooling: str = "mean",
    match: str = "product",
    readout: str | None = None,
    dropout: float = 0.2,
) -> nn.Module:
    """FastText (Joulin et al. 2016): the mean of the word vectors, one layer over the algebra, a head; words only, no n-grams.

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens; 0 is padding.
        max_length: Tokens of the longest text.
        num_classes: Logits, [B, num_classes].
        pair: Whether it compares two texts.
        dim: Channels of a word vector.
        hidden: Channels of the layer before the head (complex-valued: Wang et al. 2020, Eq. 10); 0 for none.
        positions: What is added to word vectors: none (as auto is here), learned or trigonometric.
        pooling: mean, sum, max, max+mean, first or last.
        match: How two texts meet: product for [a; b; a b; a - b], concat for [a; b].
        readout: How the head makes logits: channels, modulus or scalar.
        dropout: Probability for word vectors and layers.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    words = layers.token_embedding(vocab_size, dim, max_length, positions=positions, dropout=dropout)
    options = {"pooling": pooling, "pair": pair, "outputs": num_classes, "hidden": hidden, "match": match, "readout": readout}
    return SequenceClassifier(layers, words, dim, dropout=dropout, **options)  # type: ignore[arg-type]
