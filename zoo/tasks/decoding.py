"""Decoding of token ids: greedy, sampling and beam search, with a `zoo.backbones.blocks.GenerativeModel`.

Logits processors are pure functions from logits [B, V] to logits, -inf for tokens that must not be chosen.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.backbones.blocks import GenerativeModel
from zoo.data.tokens import BEGIN, PAD, UNKNOWN
from zoo.errors import InputError
from zoo.nn import keep_matrices
from zoo.nn.kv_cache import KVCache
from zoo.tasks.options import Decoding, temperature_of

__all__ = ["Decoding", "Hypothesis", "Prompts", "beam_search", "generate", "stream"]

DEFAULT_LENGTH = 256
"""Maximum number of tokens to generate by default."""


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts."""

    tokens: Tensor  # int64 [B, L]
    mask: Tensor | None = None  # bool [B, L], False at padding, which is on the left
    source: Tensor | None = None  # texts to answer, int64 [B, S], padded on the right; None for language models
    end: int | None = None  # the token that ends a text
    rows: Sequence[int] | None = None  # row numbers, on which samples depend; by default 0, 1, ...

    def __post_init__(self) -> None:
        if not self.tokens.shape[1] or not (self.mask is None or bool(self.mask[:, -1].all())):
            raise InputError("empty prompt: use at least one token, and padding on the left")

    def to(self, device: torch.device) -> Self:
        """Move the tensors to a device."""
        parts = ((name, getattr(self, name)) for name in ("tokens", "mask", "source"))
        return replace(self, **{name: part.to(device) for name, part in parts if part is not None})

    def seen(self, vocab_size: int) -> Tensor:
        """Return a mask of the tokens in each prompt, bool [B, vocab_size]."""
        tokens = self.tokens if self.mask is None else self.tokens.masked_fill(~self.mask, PAD)
        return tokens.new_zeros(len(tokens), vocab_size, dtype=torch.bool).scatter_(1, tokens, True)

    def max_new_tokens(self, max_length: int | None, requested: int | None) -> int:
        """Return the maximum number of tokens to generate: as requested, or what fits into ``max_length``, up to 256.

        Example:
            >>> prompt = Prompts(torch.ones(1, 60, dtype=torch.int64))
            >>> prompt.max_new_tokens(128, None), prompt.max_new_tokens(None, None)
            (68, 256)
        """
        length = self.tokens.shape[1]
        available = math.inf if max_length is None else max_length - length
        limit = f"exceeds max_length={max_length} of this network"
        if available < 1:
            raise InputError(f"a prompt of {length} tokens plus one {limit}: use a shorter prompt")
        if requested is not None and requested > available:
            text = f"a prompt of {length} tokens plus length={requested} {limit}"
            raise InputError(f"{text}: use --length {available} or a shorter prompt")
        return int(min(available, DEFAULT_LENGTH)) if requested is None else requested


def next_logits(net: GenerativeModel, tokens: Tensor, cache: KVCache, end: int | None, mask: Tensor | None = None) -> Tensor:
    """Read tokens [B, l] and return the logits of the next token, float32 [B, V]; raise `InputError` for NaN and infinity."""
    logits = forbid_special(net.decode_step(tokens, cache, mask)[:, -1].float(), end)
    if not bool(logits.amax(-1).isfinite().all()):
        raise InputError("the network returns NaN or infinity: its training diverged; train it again")
    return logits


def forbid_special(logits: Tensor, end: int | None) -> Tensor:
    """Forbid padding, the unknown token and, if there is an end token, the begin token."""
    logits = logits.clone()
    logits[:, [PAD, UNKNOWN] if end is None else [PAD, UNKNOWN, BEGIN]] = -math.inf
    return logits


def repetition_penalty(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Penalize tokens that already occur, ``seen`` bool [B, V] (Keskar et al. 2019, section 4.1).

    Divides positive logits by the penalty and multiplies negative ones by it.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def temperature_scaled(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature of at least 1e-6, after subtracting the largest, to avoid overflow."""
    return (logits - logits.amax(-1, keepdim=True)) / max(temperature, 1e-6)


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits of every row; ties are resolved in favor of lower token ids."""
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[:, k:], -math.inf)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the smallest set of most probable tokens with a total probability of at least p (Holtzman et al. 2020, Eqs. 2-3)."""
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ordered.float().softmax(-1).cumsum(-1)
    dropped = F.pad(mass[:, :-1], (1, 0)) >= p
    return logits.masked_fill(dropped.scatter(-1, order, dropped), -math.inf)


class Hypothesis(NamedTuple):
    """A finished text of a beam search: its tokens, including the end token, and its score (higher is better)."""

    tokens: list[int]
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """Return the divisor of the log probability of a text of ``length`` tokens (Wu et al. 2016, Eq. 14).

        lp(Y) = (5 + |Y|)^alpha / (5 + 1)^alpha

    Example:
        >>> length_penalty(1, 0.6), length_penalty(7, 1.0)
        (1.0, 2.0)
    """
    return float(((5 + length) / 6) ** alpha)


@torch.inference_mode()
def beam_search(net: GenerativeModel, prompts: Prompts, options: Decoding | None = None) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of each row, the best first.

    A hypothesis Y finishes with the end token or at the maximum length; its score is log P(Y) / lp(Y), and Y includes the end
    token. The beam of a row shrinks by one then (Sutskever et al. 2014, section 3.2), so that a beam of one is greedy. The row
    stops early if no active hypothesis can exceed the best score, since log P never increases and lp is largest at the maximum
    length: the best hypothesis stays the same, but there may be fewer others.

    The network is in evaluation mode. Of the options only `Decoding.beam`, `Decoding.length_penalty` and
    `Decoding.repetition_penalty` are used; the last one changes the probabilities.
    """
    options = options or Decoding()
    count = prompts.max_new_tokens(net.max_length, options.length)
    with keep_matrices(net):
        cache = net.init_cache(prompts.source)
        logits = next_logits(net, prompts.tokens, cache, prompts.end, prompts.mask)
        beam = Beam(prompts, options, count, logits.shape[-1])
        while len(parents := beam.grow(logits)):
            cache.select(parents)
            logits = next_logits(net, beam.generated[:, -1:], cache, prompts.end)
    return [sorted(row, key=lambda hypothesis: -hypothesis.score) for row in beam.finished]


class Beam:
    """The state of a beam search: the tokens of N active hypotheses, ``generated`` [N, t], and the ``finished`` ones."""

    def __init__(self, prompts: Prompts, options: Decoding, count: int, vocabulary: int) -> None:
        rows, device = len(prompts.tokens), prompts.tokens.device
        self.options, self.count = options, count
        self.end = -1 if prompts.end is None else prompts.end  # -1 equals no token
        self.finished: list[list[Hypothesis]] = [[] for _ in range(rows)]
        self.generated = prompts.tokens[:, :0]
        self._seen = prompts.seen(vocabulary) if options.repetition_penalty != 1 else None
        self._slots = options.beam * torch.arange(rows, device=device)  # indices of active hypotheses in [rows * beam]
        self._scores = torch.zeros(rows, device=device)  # log P of active hypotheses
        self._free = torch.full((rows,), options.beam, device=device)
        self._best = torch.full((rows,), -torch.inf, device=device)

    def grow(self, logits: Tensor) -> Tensor:
        """Extend the active hypotheses, given the logits of their next tokens [N, V], and return the parent of each new one."""
        scores, tokens, parents = self._continuations(logits)
        length = self.generated.shape[1] + 1
        kept = (torch.arange(self.options.beam, device=scores.device) < self._free[:, None]) & (scores > -torch.inf)
        ended = kept & (tokens == self.end) if length < self.count else kept
        self._add_finished(ended, scores / length_penalty(length, self.options.length_penalty), tokens, parents)
        alive = kept & ~ended
        reach = scores.masked_fill(~alive, -torch.inf).amax(1) / length_penalty(self.count, self.options.length_penalty)
        self._slots = (alive & (reach > self._best)[:, None]).flatten().nonzero().flatten()
        self._scores, chosen, parents = (part.flatten()[self._slots] for part in (scores, tokens, parents))
        self.generated = torch.cat([self.generated[parents], chosen[:, None]], 1)
        if self._seen is not None:
            self._seen = self._seen[parents].scatter_(1, chosen[:, None], True)
        return parents

    def _continuations(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log P, last token and parent of the best continuations of every row, each [B, beam], the best first."""
        if self._seen is not None:
            logits = repetition_penalty(logits, self._seen, self.options.repetition_penalty)
        beam, vocabulary = self.options.beam, logits.shape[-1]
        table = logits.new_full((len(self.finished) * beam, vocabulary), -torch.inf)
        table[self._slots] = self._scores[:, None] + logits.log_softmax(-1)
        scores, index = table.view(len(self.finished), -1).topk(beam)
        hypotheses = torch.zeros(len(table), dtype=torch.int64, device=logits.device)
        hypotheses[self._slots] = torch.arange(len(logits), device=logits.device)
        parents = hypotheses.view(-1, beam).gather(1, index // vocabulary)
        return scores, index % vocabulary, parents

    def _add_finished(self, ended: Tensor, scores: Tensor, tokens: Tensor, parents: Tensor) -> None:
        """Record the hypotheses that have ended, bool [B, beam], with their scores."""
        texts = torch.cat([self.generated[parents[ended]], tokens[ended][:, None]], 1).tolist()
        for row, text, score in zip(ended.nonzero()[:, 0].tolist(), texts, scores[ended].tolist(), strict=True):
            self.finished[row].append(Hypothesis(text, score))
        self._free = self._free - ended.sum(1)
        self._best = torch.maximum(self._best, scores.masked_fill(~ended, -torch.inf).amax(1))


def stream(net: GenerativeModel, prompts: Prompts, options: Decoding | None = None) -> Iterator[Tensor]:
    """Yield the next token of every row, int64 [B], until all rows have ended or reach the maximum length.

    The end token is yielded too, then padding. The samples of a row depend on the seed and the row number, not on other rows.
    The network is in evaluation mode; `Decoding.beam` is ignored.
    """
    options = options or Decoding()
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
                logits = repetition_penalty(logits, seen, options.repetition_penalty)
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
    logits = temperature_scaled(logits, temperature)
    if options.top_k is not None:
        logits = top_k(logits, options.top_k)
    if options.top_p is not None:
        logits = top_p(logits, options.top_p)
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
