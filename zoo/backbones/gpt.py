"""GPT: a Transformer that reads from left to right and tells what comes next."""

from typing import Any

from torch import Tensor, nn

from zoo.backbones.blocks import Block
from zoo.backbones.recipe import recipe
from zoo.backbones.sizes import sizes
from zoo.backbones.writing import Logits, Writer
from zoo.layers import Layers
from zoo.layers.cache import Cache
from zoo.layers.words import Words

PRESETS: dict[str, dict[str, Any]] = {
    "micro": {"dim": 128, "depth": 4, "heads": 4, "ffn": 512, "dropout": 0.0},
    "nano": {"dim": 384, "depth": 6, "heads": 6, "ffn": 1536, "dropout": 0.2},
}
"""nanoGPT's character models: the one for a CPU, and the one for a GPU."""


class GPT(Writer):
    """Words through causal blocks: tokens [B, L] to the logits of what follows each, [B, L, V].

    Args:
        words: What reads tokens.
        blocks: The blocks.
        norm: The last norm.
        logits: What answers.
        max_length: Positions it has; None if there is no limit.
    """

    def __init__(self, words: Words, blocks: list[Block], norm: nn.Module, logits: Logits, max_length: int | None) -> None:
        super().__init__()
        self.words, self.blocks, self.norm, self.logits = words, nn.ModuleList(blocks), norm, logits
        self.max_length = max_length

    def forward(self, tokens: Tensor) -> Tensor:
        """Read texts that are padded on the right, if at all: no word sees what is behind it."""
        return self._read(tokens, None, None, None)

    def extend(self, tokens: Tensor, cache: Cache, mask: Tensor | None = None) -> Tensor:
        """Read on, see `Writer.extend`."""
        places = self.places(tokens, cache, mask)
        return self._read(tokens, cache.mask, places, cache)

    def _read(self, tokens: Tensor, mask: Tensor | None, places: Tensor | None, cache: Cache | None) -> Tensor:
        x = self.words(tokens, places)
        for block in self.blocks:
            x = block(x, mask, causal=True, places=places, cache=cache)
        y: Tensor = self.logits(self.norm(x), self.words)
        return y


@recipe(data="glosses(task=language_model)", max_epochs=3, lr=3e-3, reads=("corpus",), batch_size=8)
def gpt(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    variant: str | None = None,
    dim: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    ffn: int | None = None,
    score: str | None = None,
    positions: str | None = "auto",
    norm: str = "layer",
    bias: bool = False,
    tied: bool = True,
    dropout: float | None = None,
) -> nn.Module:
    """GPT (Radford et al. 2019) as nanoGPT builds it; gpt/nano is its character model, gpt/micro its small one for a CPU.

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens; 0 is padding.
        max_length: Tokens of a block, and rows of the learned positions.
        variant: ``micro`` (the default) or ``nano``; sizes given beside it win.
        dim: Channels of the residual stream.
        depth: Blocks.
        heads: Attention heads; dim / heads must be whole algebra elements.
        ffn: Channels inside the feed-forward part.
        score: ``dot``, ``product`` (Tay et al. 2019, Eq. 4) or ``hermitian`` (Wang et al. 2020, Eq. 14).
        positions: none, learned, trigonometric or rotary (without limit of length); auto is learned, or none if the embedding
            encodes order.
        norm: Kind of norm: layer, rms or element.
        bias: Whether matrices and norms have biases.
        tied: Whether the word table also makes the logits; else a matrix of role ``head`` does.
        dropout: Probability everywhere.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    size = sizes("gpt", PRESETS, variant or "micro", dim=dim, depth=depth, heads=heads, ffn=ffn, dropout=dropout)
    width, drop, rotary = size["dim"], size["dropout"], positions == "rotary"
    positions = "none" if rotary else positions
    words = layers.words(vocab_size, width, max_length, positions=positions, default="learned", dropout=drop)
    # Every block adds twice to the residual stream; so it ends as wide as one addition (Radford et al. 2019, section 2.3).
    options: dict[str, Any] = {"score": score, "rotary": rotary, "norm": norm, "dropout": drop, "activation": "gelu"}
    options |= {"bias": bias, "gain": (2 * size["depth"]) ** -0.5}
    blocks = [Block(layers, width, size["heads"], size["ffn"], **options) for _ in range(size["depth"])]
    limit = max_length if words.positions.kind == "learned" else None
    return GPT(words, blocks, layers.norm(width, norm, bias), Logits(layers, words, width, vocab_size, tied), limit)
