"""Beam search with GNMT's length penalty."""

from typing import NamedTuple

import torch
from torch import Tensor

from zoo.backbones.generative import GenerativeModel
from zoo.layers import keep_matrices
from zoo.tasks.decoding.logits import Prompts, next_logits, repetition_penalty
from zoo.tasks.options import Decoding, check_decoding


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

    Args:
        net: The network, in evaluation mode.
        prompts: The prompts.
        options: `Decoding.beam`, `Decoding.length_penalty`, and `Decoding.repetition_penalty`, which changes the probabilities.

    Raises:
        InputError: If an option is invalid, or the text exceeds the maximum length of the network.
    """
    options = options or Decoding()
    check_decoding(options)
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
