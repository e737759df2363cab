"""What the networks that write share: logits of every token from the word table, and reading on with a cache."""

from abc import abstractmethod

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.kv_cache import KVCache
from zoo.layers.token_embedding import TokenEmbedding


class LMHead(nn.Module):
    """From features [..., dim] to a logit of every token [..., V]: by the word table itself, or by a layer of its own.

    Args:
        layers: The factory that knows the algebra.
        token_embedding: What reads tokens.
        dim: Channels.
        vocab_size: V.
        tied: Whether the word table is used (Press & Wolf 2017); an embedding that is no such table gets a layer in any case.
    """

    def __init__(self, layers: Layers, token_embedding: TokenEmbedding, dim: int, vocab_size: int, tied: bool = True) -> None:
        super().__init__()
        self.tied = tied and getattr(token_embedding.embedding, "shared", None) is not None
        self.layer = None if self.tied else layers.linear(dim, vocab_size, False, role="head")

    def forward(self, x: Tensor, token_embedding: TokenEmbedding) -> Tensor:
        """Answer."""
        if self.layer is None:
            return F.linear(x, token_embedding.embedding.shared)  # type: ignore[arg-type]
        y: Tensor = self.layer(x)
        return y


class GenerativeModel(nn.Module):
    """A network that can write: it begins with a `KVCache` and reads on.

    Attributes:
        max_length: Positions it has; None if there is no limit.
        remembers: Whether its forward pass takes a memory beside the tokens: a list, empty at the start of a text, that it
            renews in place.
    """

    max_length: int | None = None
    has_memory: bool = False

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Return the memory of a text that is to be written; ``source`` [B, S] is the text to answer, if it answers any."""
        return KVCache()

    def read(self, tokens: Tensor, cache: KVCache, mask: Tensor | None) -> Tensor:
        """Note that more tokens are read and return their position ids, see `KVCache.read`.

        Raises:
            InputError: If there are no positions for them.
        """
        length = cache.length + tokens.shape[1]
        if self.max_length is not None and length > self.max_length:
            raise InputError(f"a text of {length} tokens: the learned positions end at max_length={self.max_length}")
        return cache.read(tokens, mask)

    @abstractmethod
    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read more tokens [B, l] and return the logits of what follows each, [B, l, V].

        Args:
            tokens: The next tokens of every row.
            cache: What was read before; these tokens are added.
            mask: bool [B, l], False at padding, which stands on the left of the first tokens; None if there is none.
        """
