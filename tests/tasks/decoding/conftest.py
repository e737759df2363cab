"""A small generative network whose logits depend on all tokens that it has read."""

import pytest
import torch


class State:
    """The state of every row, a number that depends on all its tokens."""

    def __init__(self, numbers):
        self.numbers, self.length = numbers, 0

    def select(self, rows):
        self.numbers = self.numbers[rows]


class Toy:
    """A finite automaton with a table of random logits, one row for every state.

    Args:
        vocabulary: Number of tokens.
        seed: Seed of the table.
        end_bias: Added to the logit of token 3.
    """

    states = 10_007

    def __init__(self, vocabulary=7, seed=0, end_bias=0.0, max_length=None):
        draw = torch.Generator().manual_seed(seed)
        self.table = 2 * torch.randn(self.states, vocabulary, generator=draw)
        self.table[:, 3] += end_bias
        self.max_length, self.calls, self.rows = max_length, 0, 0

    def init_cache(self, source=None):
        numbers = torch.zeros(0, dtype=torch.int64) if source is None else torch.zeros_like(source[:, 0])
        for column in () if source is None else source.T:
            numbers = torch.where(column == 0, numbers, self.after(numbers, column))
        return State(numbers)

    def decode_step(self, tokens, cache, mask=None):
        self.calls, self.rows = self.calls + 1, self.rows + len(tokens)
        numbers = cache.numbers if len(cache.numbers) else torch.zeros_like(tokens[:, 0])
        logits = []
        for position, column in enumerate(tokens.T):
            after = self.after(numbers, column)
            numbers = after if mask is None else torch.where(mask[:, position], after, numbers)
            logits.append(self.table[numbers])
        cache.numbers, cache.length = numbers, cache.length + tokens.shape[1]
        return torch.stack(logits, 1)

    def after(self, numbers, tokens):
        return (numbers * 31 + tokens * 7 + 1) % self.states


@pytest.fixture
def toy():
    return Toy


@pytest.fixture
def prompts():
    """Three prompts, and sources with padding."""
    return torch.tensor([[4, 5], [6, 4], [5, 5]]), torch.tensor([[4, 5, 6], [6, 4, 0], [5, 0, 0]])
