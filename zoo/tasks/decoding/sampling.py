"""Generation token by token, greedy or by sampling; and `generate`, one call for it and for beam search."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.data.text.tokens import PAD
from zoo.tasks.decoding.beam import beam_search
from zoo.tasks.decoding.logits import (
    Memory,
    Network,
    check_prompts,
    max_new_tokens,
    next_logits,
    repetition_penalty,
    seen_tokens,
    temperature_scaled,
    top_k,
    top_p,
)
from zoo.tasks.decoding.options import Decoding, check_decoding, temperature_of


def stream(
    net: Network[Memory],
    prompts: Tensor,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    options: Decoding | None = None,
    count: int | None = None,
    end: int | None = None,
) -> Iterator[Tensor]:
    """Yield the next token of every text, int64 [B], until all have ended or have `count` tokens.

    What is drawn for a row depends on the seed and the number of the row, not on the rows beside it.

    Args:
        net: The network, in evaluation mode.
        prompts: Tokens to begin with, int64 [B, L].
        mask: bool [B, L], False at padding on the left of shorter prompts; None if there is none.
        source: Texts to answer, int64 [B, S], padded on the right; None if there are none.
        options: How to choose; `Decoding.beam` is not used.
        count: Tokens to generate at most; by default as the options say.
        end: The token that ends a text, which is yielded too, and from then on padding; None if there is no such token.

    Raises:
        InputError: If an option is wrong, a prompt is empty, or the tokens do not fit into the network's positions.
    """
    options = options or Decoding()
    check_decoding(options)
    check_prompts(prompts, mask)
    count = max_new_tokens(net.max_length, prompts.shape[1], options.length if count is None else count)
    sampler = TokenSampler(options, temperature_of(options, source is not None), prompts, mask)
    return _stream(net, prompts, mask, source, sampler, count, end)


@torch.inference_mode()
def _stream(
    net: Network[Memory],
    prompts: Tensor,
    mask: Tensor | None,
    source: Tensor | None,
    sampler: "TokenSampler",
    count: int,
    end: int | None,
) -> Iterator[Tensor]:
    cache = net.init_cache(source)
    tokens, done = prompts, torch.zeros_like(prompts[:, 0], dtype=torch.bool)
    for step in range(count):
        logits = next_logits(net, tokens, cache, end, mask if step == 0 else None)
        chosen = sampler(logits).masked_fill(done, PAD)
        yield chosen
        if end is not None:
            done = done | (chosen == end)
            if bool(done.all()):
                return
        tokens = chosen[:, None]


class TokenSampler:
    """Choose a token for every row from logits [B, V], greedily or by sampling.

    Args:
        options: How to choose.
        temperature: 0 takes the likeliest token.
        prompts: The tokens so far, int64 [B, L].
        mask: bool [B, L], False at padding; None if there is none.
    """

    def __init__(self, options: Decoding, temperature: float, prompts: Tensor, mask: Tensor | None) -> None:
        self.options, self.temperature, self.prompts, self.mask = options, temperature, prompts, mask
        self.seen: Tensor | None = None
        self.generators = [torch.Generator(prompts.device).manual_seed(_seed(options.seed, row)) for row in range(len(prompts))]

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the tokens, int64 [B]."""
        if self.options.repetition_penalty != 1:
            if self.seen is None:
                self.seen = seen_tokens(self.prompts, self.mask, logits.shape[-1])
            logits = repetition_penalty(logits, self.seen, self.options.repetition_penalty)
        chosen = self._sample(logits) if self.temperature > 0 else logits.argmax(-1)
        if self.seen is not None:
            self.seen.scatter_(1, chosen[:, None], True)
        return chosen

    def _sample(self, logits: Tensor) -> Tensor:
        logits = temperature_scaled(logits, self.temperature)
        if self.options.top_k is not None:
            logits = top_k(logits, self.options.top_k)
        if self.options.top_p is not None:
            logits = top_p(logits, self.options.top_p)
        return sample(logits, self.generators)


def sample(logits: Tensor, generators: list[torch.Generator]) -> Tensor:
    """Sample a token for every row, int64 [B], with the probabilities softmax(logits), from one generator for each row.

    The largest of logits + g, where g is Gumbel noise, has that distribution (Gumbel 1954; Maddison et al. 2014, section 2).
    """
    width, device = logits.shape[-1], logits.device
    uniform = torch.stack([torch.rand(width, generator=generator, device=device) for generator in generators])
    return (logits - (-uniform.log()).log()).masked_fill(logits == -torch.inf, -torch.inf).argmax(-1)


def _seed(seed: int, row: int) -> int:
    return (seed * 1_000_003 + row) % 2**63


def generate(
    net: Network[Memory],
    prompts: Tensor,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    options: Decoding | None = None,
    end: int | None = None,
) -> list[list[int]]:
    """Generate a text behind each prompt and return its tokens, without the prompt and without the token that ends it.

    Args:
        net: The network, in evaluation mode.
        prompts: Tokens to begin with, int64 [B, L].
        mask: bool [B, L], False at padding on the left of shorter prompts; None if there is none.
        source: Texts to answer, int64 [B, S], padded on the right; None if there are none.
        options: How to choose tokens; a beam of more than one is a beam search.
        end: The token that ends a text; None if there is no such token, and all texts have the same length.

    Raises:
        InputError: If an option is wrong, a prompt is empty, or the tokens do not fit into the network's positions.
    """
    options = options or Decoding()
    if not len(prompts):
        return []
    if options.beam > 1:
        found = beam_search(net, prompts, mask, source, options, end=end)
        return [_until_end(texts[0].tokens, end) for texts in found]
    columns = list(stream(net, prompts, mask, source, options, end=end))
    return [_until_end(text, end) for text in torch.stack(columns, 1).tolist()]


def _until_end(tokens: list[int], end: int | None) -> list[int]:
    """Drop the first token that ends the text, and all behind it."""
    return tokens[: tokens.index(end)] if end is not None and end in tokens else tokens
