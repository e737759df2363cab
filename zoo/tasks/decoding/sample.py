"""One word after the other: the likeliest, or one that is drawn."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.data.text.tokens import PAD
from zoo.options import Decoding
from zoo.tasks.decoding import filters
from zoo.tasks.decoding.network import Memory, Network, check_prompts, read, tokens_to_write
from zoo.tasks.decoding.options import check_decoding, temperature_of


def stream(
    net: Network[Memory],
    prompts: Tensor,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    options: Decoding | None = None,
    count: int | None = None,
    end: int | None = None,
) -> Iterator[Tensor]:
    """Yield the next token of every text, int64 [B], until all have ended or enough is written.

    What is drawn for a row depends on the seed and the number of the row, not on the rows beside it.

    Args:
        net: What writes, in evaluation mode.
        prompts: Tokens to begin with, int64 [B, L].
        mask: bool [B, L], False at padding on the left of shorter prompts; None if there is none.
        source: Texts to answer, int64 [B, S], padded on the right; None if there are none.
        options: How to choose; `Decoding.beam` is not used.
        count: Tokens to write at most; by default as the options say.
        end: The token that ends a text, which is yielded too, and from then on padding; None if there is no such token.

    Raises:
        InputError: If an option is wrong, a prompt is empty, or the tokens do not fit into the network's positions.
    """
    options = options or Decoding()
    check_decoding(options)
    check_prompts(prompts, mask)
    count = tokens_to_write(net.max_length, prompts.shape[1], options.length if count is None else count)
    chooser = Chooser(options, temperature_of(options, source is not None), prompts, mask)
    return _stream(net, prompts, mask, source, chooser, count, end)


@torch.inference_mode()
def _stream(
    net: Network[Memory],
    prompts: Tensor,
    mask: Tensor | None,
    source: Tensor | None,
    chooser: "Chooser",
    count: int,
    end: int | None,
) -> Iterator[Tensor]:
    cache = net.init_cache(source)
    tokens, done = prompts, torch.zeros_like(prompts[:, 0], dtype=torch.bool)
    for step in range(count):
        logits = read(net, tokens, cache, end, mask if step == 0 else None)
        chosen = chooser(logits).masked_fill(done, PAD)
        yield chosen
        if end is not None:
            done = done | (chosen == end)
            if bool(done.all()):
                return
        tokens = chosen[:, None]


class Chooser:
    """Choose a token for every row from logits [B, V].

    Args:
        options: How to choose.
        temperature: 0 takes the likeliest token.
        prompts: What stands there already, int64 [B, L].
        mask: bool [B, L], False at padding; None if there is none.
    """

    def __init__(self, options: Decoding, temperature: float, prompts: Tensor, mask: Tensor | None) -> None:
        self.options, self.temperature, self.prompts, self.mask = options, temperature, prompts, mask
        self.seen: Tensor | None = None
        self.noise = [torch.Generator(prompts.device).manual_seed(_seed(options.seed, row)) for row in range(len(prompts))]

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the tokens, int64 [B]."""
        if self.options.repetition_penalty != 1:
            if self.seen is None:
                self.seen = filters.seen_in(self.prompts, self.mask, logits.shape[-1])
            logits = filters.penalized(logits, self.seen, self.options.repetition_penalty)
        chosen = self._draw(logits) if self.temperature > 0 else logits.argmax(-1)
        if self.seen is not None:
            self.seen.scatter_(1, chosen[:, None], True)
        return chosen

    def _draw(self, logits: Tensor) -> Tensor:
        logits = filters.tempered(logits, self.temperature)
        if self.options.top_k is not None:
            logits = filters.top_k(logits, self.options.top_k)
        if self.options.top_p is not None:
            logits = filters.top_p(logits, self.options.top_p)
        return drawn(logits, self.noise)


def drawn(logits: Tensor, noise: list[torch.Generator]) -> Tensor:
    """Draw a token for every row, int64 [B], with the probabilities softmax(logits), from one generator for each row.

    The largest of logits + g, where g is Gumbel noise, has that distribution (Gumbel 1954; Maddison et al. 2014, section 2).
    """
    width, device = logits.shape[-1], logits.device
    uniform = torch.stack([torch.rand(width, generator=generator, device=device) for generator in noise])
    return (logits - (-uniform.log()).log()).masked_fill(logits == -torch.inf, -torch.inf).argmax(-1)


def _seed(seed: int, row: int) -> int:
    return (seed * 1_000_003 + row) % 2**63
