"""Greedy decoding and sampling, and `generate`, which also supports beam search."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.backbones.generative import GenerativeModel
from zoo.data.text.tokens import PAD
from zoo.layers import keep_matrices
from zoo.tasks.decoding import logits as processors
from zoo.tasks.decoding.beam import beam_search
from zoo.tasks.decoding.logits import Prompts, next_logits
from zoo.tasks.options import Decoding, check_decoding, temperature_of


def stream(net: GenerativeModel, prompts: Prompts, options: Decoding | None = None) -> Iterator[Tensor]:
    """Yield the next token of every row, int64 [B], until all rows have ended or reach the maximum length.

    The end token is yielded too, then padding. The samples of a row depend on the seed and the row number, not on other rows.

    Args:
        net: The network, in evaluation mode.
        prompts: The prompts.
        options: The decoding options; `Decoding.beam` is ignored.

    Raises:
        InputError: If an option is invalid, or the text exceeds the maximum length of the network.
    """
    options = options or Decoding()
    check_decoding(options)
    temperature = temperature_of(options, prompts.source is not None)
    count = prompts.max_new_tokens(net.max_length, options.length)
    return _stream(net, prompts, options, temperature, count)


@torch.inference_mode()
def _stream(net: GenerativeModel, prompts: Prompts, options: Decoding, temperature: float, count: int) -> Iterator[Tensor]:
    tokens, mask, end = prompts.tokens, prompts.mask, prompts.end
    rows = range(len(tokens)) if prompts.rows is None else prompts.rows
    seeds = [(options.seed * 1_000_003 + row) % 2**63 for row in rows]
    generators = [torch.Generator(tokens.device).manual_seed(seed) for seed in seeds]
    with keep_matrices(net):
        cache, ended = net.init_cache(prompts.source), torch.zeros_like(tokens[:, 0], dtype=torch.bool)
        seen: Tensor | None = None
        for _ in range(count):
            logits = next_logits(net, tokens, cache, end, mask)
            if options.repetition_penalty != 1:
                seen = prompts.seen(logits.shape[-1]) if seen is None else seen.scatter_(1, tokens, True)
                logits = processors.repetition_penalty(logits, seen, options.repetition_penalty)
            chosen = _choose(logits, options, temperature, generators).masked_fill(ended, PAD)
            yield chosen
            if end is not None:
                ended = ended | (chosen == end)
                if bool(ended.all()):
                    return
            tokens, mask = chosen[:, None], None


def _choose(logits: Tensor, options: Decoding, temperature: float, generators: list[torch.Generator]) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    logits = processors.temperature_scaled(logits, temperature)
    if options.top_k is not None:
        logits = processors.top_k(logits, options.top_k)
    if options.top_p is not None:
        logits = processors.top_p(logits, options.top_p)
    return sample(logits, generators)


def sample(logits: Tensor, generators: list[torch.Generator]) -> Tensor:
    """Sample a token for every row, int64 [B], from softmax(logits), with one generator per row.

    Uses the Gumbel-max trick: argmax(logits + Gumbel noise) (Gumbel 1954; Maddison et al. 2014, section 2).
    """
    width, device = logits.shape[-1], logits.device
    uniform = torch.stack([torch.rand(width, generator=generator, device=device) for generator in generators])
    return (logits - (-uniform.log()).log()).masked_fill(logits == -torch.inf, -torch.inf).argmax(-1)


def generate(net: GenerativeModel, prompts: Prompts, options: Decoding | None = None) -> list[list[int]]:
    """Generate the tokens of a text for each prompt, without the prompt and the end token.

    Arguments and errors are those of `stream`; `Decoding.beam` above 1 selects beam search.
    """
    options, end = options or Decoding(), prompts.end
    if not len(prompts.tokens):
        return []
    if options.beam > 1:
        texts = [hypotheses[0].tokens for hypotheses in beam_search(net, prompts, options)]
    else:
        texts = torch.stack(list(stream(net, prompts, options)), 1).tolist()
    return [text[: text.index(end)] if end is not None and end in text else text for text in texts]
