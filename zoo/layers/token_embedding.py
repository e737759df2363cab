"""What stands between tokens and a network: vectors of words, positions, dropout."""

from torch import Tensor, nn

from zoo.layers.positions import PositionEmbedding


class TokenEmbedding(nn.Module):
    """Vectors of words, their positions, dropout; exactly zero at padding.

    Args:
        embedding: From tokens [B, L] to vectors [B, L, dim].
        positions: Adds what tells places apart, [B, L, dim] to [B, L, dim].
        dropout: Probability that a channel is zeroed in training.
        scale: Factor on the vectors before positions are added.
    """

    def __init__(self, embedding: nn.Module, positions: PositionEmbedding, dropout: float, scale: float = 1.0) -> None:
        super().__init__()
        self.embedding, self.position_embedding, self.dropout, self.scale = embedding, positions, nn.Dropout(dropout), scale

    def forward(self, tokens: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Embed: [B, L] to [B, L, dim].

        Args:
            tokens: Tokens; 0 is padding.
            position_ids: Where they stand, int64 [L] or [B, L]; by default 0, 1, ..., L - 1.
        """
        ordered = position_ids is not None and getattr(self.embedding, "ordered", False)
        x = self.embedding(tokens, position_ids) if ordered else self.embedding(tokens)
        x = self.dropout(self.position_embedding(x * self.scale if self.scale != 1 else x, position_ids))
        y: Tensor = x * (tokens != 0).unsqueeze(-1)
        return y
