"""Generation token by token, greedy or by sampling; and `generate`, one call for it and for beam search."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.data.text.tokens import PAD
from zoo.layers import keep_matrices
from zoo.tasks.decoding import logits as processors
from zoo.tasks.decoding.beam import beam_search
from zoo.tasks.decoding.logits import Memory, Network, Prompts, next_logits
from zoo.tasks.decoding.options import Decoding, check_decoding, temperature_of


def stream(net: Network[Memory], prompts: Prompts, options: Decoding | None = None) -> Iterator[Tensor]:
    """Yield the next token of every text, int64 [B], until all have ended or have the length of the options.

    The token that ends a text is yielded too, and from then on padding. What is drawn for a row depends on the seed and the
    number of the row, not on the rows beside it.

    Args:
        net: The network, in evaluation mode.
        prompts: What to begin with.
        options: How to choose; `Decoding.beam` is not used.

    Raises:
        InputError: If an option is wrong, or the tokens do not fit into the network's positions.
    """
    options = options or Decoding()
    check_decoding(options)
    temperature = temperature_of(options, prompts.source is not None)
    count = prompts.max_new_tokens(net.max_length, options.length)
    return _stream(net, prompts, options, temperature, count)


@torch.inference_mode()
def _stream(net: Network[Memory], prompts: Prompts, options: Decoding, temperature: float, count: int) -> Iterator[Tensor]:
    tokens, mask, end = prompts.tokens, prompts.mask, prompts.end
    rows = range(len(tokens)) if prompts.rows is None else prompts.rows
    seeds = [(options.seed * 1_000_003 + row) % 2**63 for row in rows]
    noise = [torch.Generator(tokens.device).manual_seed(seed) for seed in seeds]
    with keep_matrices(net):
        cache, done = net.init_cache(prompts.source), torch.zeros_like(tokens[:, 0], dtype=torch.bool)
        seen: Tensor | None = None
        for _ in range(count):
            logits = next_logits(net, tokens, cache, end, mask)
            if options.repetition_penalty != 1:
                seen = prompts.seen(logits.shape[-1]) if seen is None else seen.scatter_(1, tokens, True)
                logits = processors.repetition_penalty(logits, seen, options.repetition_penalty)
            chosen = _choose(logits, options, temperature, noise).masked_fill(done, PAD)
            yield chosen
            if end is not None:
                done = done | (chosen == end)
                if bool(done.all()):
                    return
            tokens, mask = chosen[:, None], None


def _choose(logits: Tensor, options: Decoding, temperature: float, noise: list[torch.Generator]) -> Tensor:
    """Choose a token for every row, greedily at a temperature of 0."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = processors.temperature_scaled(logits, temperature)
    if options.top_k is not None:
        logits = processors.top_k(logits, options.top_k)
    if options.top_p is not None:
        logits = processors.top_p(logits, options.top_p)
    return sample(logits, noise)


def sample(logits: Tensor, noise: list[torch.Generator]) -> Tensor:
    """Sample a token for every row, int64 [B], with the probabilities softmax(logits), from one generator for each row.

    The largest of logits + g, where g is Gumbel noise, has that distribution (Gumbel 1954; Maddison et al. 2014, section 2).
    """
    width, device = logits.shape[-1], logits.device
    uniform = torch.stack([torch.rand(width, generator=generator, device=device) for generator in noise])
    return (logits - (-uniform.log()).log()).masked_fill(logits == -torch.inf, -torch.inf).argmax(-1)


def generate(net: Network[Memory], prompts: Prompts, options: Decoding | None = None) -> list[list[int]]:
    """Generate a text behind each prompt, token by token or by beam search, and return its tokens.

    Neither the prompt nor the token that ends the text is among them. Arguments and errors are those of `stream`.
    """
    options, end = options or Decoding(), prompts.end
    if not len(prompts.tokens):
        return []
    if options.beam > 1:
        texts = [hypotheses[0].tokens for hypotheses in beam_search(net, prompts, options)]
    else:
        texts = torch.stack(list(stream(net, prompts, options)), 1).tolist()
    return [text[: text.index(end)] if end is not None and end in text else text for text in texts]
