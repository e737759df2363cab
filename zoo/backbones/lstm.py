"""The recurrent sentence and pair encoder."""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from zoo.backbones.recipe import recipe
from zoo.backbones.sequence_classifier import SequenceClassifier
from zoo.layers import Layers


class LSTMEncoder(nn.Module):
    """Words through an LSTM: tokens [B, L] to [B, L, directions * dim], which skips padding."""

    def __init__(self, token_embedding: nn.Module, lstm: nn.Module) -> None:
        super().__init__()
        self.token_embedding, self.lstm = token_embedding, lstm

    def forward(self, tokens: Tensor) -> Tensor:
        """Read."""
        lengths = (tokens != 0).sum(1).cpu()
        packed = pack_padded_sequence(self.token_embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.lstm(packed)
        padded: Tensor = pad_packed_sequence(output, batch_first=True, total_length=tokens.shape[1])[0]
        return padded


@recipe(data="glosses", max_epochs=6, lr=2e-3, inputs=("text", "text_pair"))
def lstm(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int,
    pair: bool = False,
    dim: int = 128,
    embedding_dim: int | None = None,
    depth: int = 1,
    bidirectional: bool = False,
    rules: str = "fused",
    positions: str | None = "auto",
    pooling: str = "max+mean",
    hidden: int = 128,
    mlp_depth: int = 1,
    match: str = "product",
    readout: str | None = None,
    dropout: float = 0.2,
) -> nn.Module:
    """LSTM encoder of sentences and pairs of sentences, as in PHM (Zhang et al. 2021, section 4.1 and App. B.1).

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens; 0 is padding.
        max_length: Tokens of the longest text.
        num_classes: Logits, [B, num_classes].
        pair: Whether it compares two texts.
        dim: Channels of the hidden state, in each direction.
        embedding_dim: Channels of a word vector; by default dim.
        depth: Layers of the LSTM.
        bidirectional: Whether it also reads backwards.
        rules: ``fused``, or ``gate`` for a rule of its own for each of the eight matrices, as in the paper.
        positions: What is added to word vectors: none (as auto is here), learned or trigonometric.
        pooling: How the words of a text become one vector: max+mean as in the paper, max, mean, sum, first or last.
        hidden: Channels of the layers before the head; 0 for none.
        mlp_depth: How many of these.
        match: How two texts meet: product for [a; b; a b; a - b], concat for [a; b].
        readout: How the head makes logits: channels, modulus or scalar.
        dropout: Probability for word vectors, between the layers, after pooling.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    width = dim if embedding_dim is None else embedding_dim
    words = layers.token_embedding(vocab_size, width, max_length, positions=positions, dropout=dropout)
    core = layers.lstm(width, dim, depth, bidirectional=bidirectional, dropout=dropout if depth > 1 else 0.0, rules=rules)
    options = {"pooling": pooling, "pair": pair, "outputs": num_classes, "hidden": hidden, "depth": mlp_depth}
    options |= {"match": match, "readout": readout, "dropout": dropout, "vectors": 2 if bidirectional else 1}
    return SequenceClassifier(layers, LSTMEncoder(words, core), dim, **options)  # type: ignore[arg-type]
