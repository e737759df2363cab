"""What stands between tokens and a network: vectors of words, positions, dropout."""

from torch import Tensor, nn


class Words(nn.Module):
    """Vectors of words, their positions, dropout; exactly zero at padding.

    Args:
        embedding: From tokens [B, L] to vectors [B, L, dim].
        positions: Adds what tells places apart, [B, L, dim] to [B, L, dim].
        dropout: Probability that a channel is zeroed in training.
    """

    def __init__(self, embedding: nn.Module, positions: nn.Module, dropout: float) -> None:
        super().__init__()
        self.embedding, self.positions, self.dropout = embedding, positions, nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed: [B, L] to [B, L, dim]."""
        x: Tensor = self.dropout(self.positions(self.embedding(tokens)))
        return x * (tokens != 0).unsqueeze(-1)
