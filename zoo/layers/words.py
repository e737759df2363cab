"""What stands between tokens and a network: vectors of words, positions, dropout."""

from torch import Tensor, nn

from zoo.layers.positions import Positions


class Words(nn.Module):
    """Vectors of words, their positions, dropout; exactly zero at padding.

    Args:
        embedding: From tokens [B, L] to vectors [B, L, dim].
        positions: Adds what tells places apart, [B, L, dim] to [B, L, dim].
        dropout: Probability that a channel is zeroed in training.
        scale: Factor on the vectors before positions are added.
    """

    def __init__(self, embedding: nn.Module, positions: Positions, dropout: float, scale: float = 1.0) -> None:
        super().__init__()
        self.embedding, self.positions, self.dropout, self.scale = embedding, positions, nn.Dropout(dropout), scale

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        """Embed: [B, L] to [B, L, dim].

        Args:
            tokens: Words; 0 is padding.
            places: Where they stand, int64 [L] or [B, L]; by default 0, 1, ..., L - 1.
        """
        ordered = places is not None and getattr(self.embedding, "ordered", False)
        x = self.embedding(tokens, places) if ordered else self.embedding(tokens)
        x = self.dropout(self.positions(x * self.scale if self.scale != 1 else x, places))
        y: Tensor = x * (tokens != 0).unsqueeze(-1)
        return y
