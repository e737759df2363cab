"""Logits processors against their definitions."""

import pytest
import torch

from zoo.tasks import decoding as processors


def logits(rows=50, vocabulary=12, seed=0):
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def kept(x):
    return [row.isfinite().nonzero().flatten().tolist() for row in x]


def test_special_tokens_are_forbidden():
    x = logits(2, 6)
    before = x.clone()
    assert kept(processors.forbid_special(x, end=3)) == [[3, 4, 5]] * 2
    assert kept(processors.forbid_special(x, end=None)) == [[2, 3, 4, 5]] * 2, "without an end, 2 and 3 are words"
    assert torch.equal(x, before)


def test_the_repetition_penalty_makes_seen_tokens_less_likely():
    x = torch.tensor([[2.0, -2.0, 2.0, -2.0, -torch.inf]])
    seen = torch.tensor([[True, True, False, False, True]])
    assert processors.repetition_penalty(x, seen, 2.0).tolist() == [[1.0, -4.0, 2.0, -2.0, -torch.inf]]
    assert torch.equal(processors.repetition_penalty(x, seen, 1.0), x)


def test_the_tokens_of_a_prompt_are_seen_and_its_padding_is_not():
    tokens = torch.tensor([[5, 5, 4], [4, 4, 6]])
    mask = torch.tensor([[False, False, True], [True, True, True]])
    assert processors.Prompts(tokens, mask).seen(7)[:, 1:].nonzero().tolist() == [[0, 3], [1, 3], [1, 5]]
    assert processors.Prompts(tokens).seen(7).nonzero().tolist() == [[0, 4], [0, 5], [1, 4], [1, 6]]


@pytest.mark.parametrize("k", [1, 3, 12, 99])
def test_top_k_keeps_the_k_largest(k):
    x = logits()
    y = processors.top_k(x, k)
    assert kept(y) == [sorted(row.topk(min(k, 12)).indices.tolist()) for row in x]
    assert torch.equal(y[y.isfinite()], x[y.isfinite()])


def test_top_k_prefers_lower_token_ids_among_ties():
    x = torch.tensor([[1.0, 3.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    assert kept(processors.top_k(x, 2)) == [[1, 2], [0, 1]]


@pytest.mark.parametrize(
    ("p", "expected"), [(0.01, [2]), (0.4, [2]), (0.45, [0, 2]), (0.75, [0, 2]), (0.76, [0, 2, 3]), (0.95, [0, 1, 2, 3])]
)
def test_top_p_keeps_the_smallest_set_with_this_probability(p, expected):
    x = torch.tensor([[0.3125, 0.0625, 0.4375, 0.1875]]).log()
    assert kept(processors.top_p(x, p)) == [expected]


def test_top_p_equals_its_definition():
    x, p = 2 * logits(), 0.6
    for row, tokens in zip(x.softmax(-1), kept(processors.top_p(x, p)), strict=True):
        assert row[tokens].sum() >= p
        assert row[tokens].sum() - row[tokens].min() < p
        assert row[tokens].min() >= row[[t for t in range(12) if t not in tokens]].max()
