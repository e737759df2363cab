"""Beam search against greedy decoding, exhaustive search, and a slow reference implementation."""

from dataclasses import replace

import pytest
import torch

from zoo.tasks.decoding import Prompts, stream
from zoo.tasks.decoding import beam_search as search
from zoo.tasks.options import Decoding

ALPHAS = (0.0, 0.6, 2.0)
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)
every_seed = pytest.mark.parametrize("seed", range(2))


def beam_search(net, start, mask, source, options, count, end=None):
    return search(net, Prompts(start, mask, source, end), replace(options, length=count))


def continuations(net, generated, prompt, source, end, penalty):
    """Return log p of every allowed next token."""
    tokens = torch.tensor([[*prompt, *generated]])
    x = net.decode_step(tokens, net.init_cache(source))[0, -1].clone()
    seen = list({*prompt, *generated})
    x[seen] = torch.where(x[seen] > 0, x[seen] / penalty, x[seen] * penalty)
    first = 2 if end is None else 3
    return dict(enumerate(x[first:].log_softmax(0).tolist(), first))


def slow(net, prompt, source, beam, count, end, alpha, penalty=1.0):
    """Search with Python lists and without early stopping; a beam of None is exhaustive."""
    alive, finished = [((), 0.0)], []
    for length in range(1, count + 1):
        grown = [
            ((*text, token), p + q)
            for text, p in alive
            for token, q in continuations(net, text, prompt, source, end, penalty).items()
        ]
        grown.sort(key=lambda pair: -pair[1])
        grown = grown if beam is None else grown[: beam - len(finished)]
        ended = [pair for pair in grown if pair[0][-1] == end or length == count]
        finished += [(text, p / ((5 + length) ** alpha / 6**alpha)) for text, p in ended]
        alive = [pair for pair in grown if pair not in ended]
    return sorted(finished, key=lambda pair: -pair[1])


def check(hypothesis, expected):
    assert hypothesis.tokens == list(expected[0])
    assert hypothesis.score == pytest.approx(expected[1], abs=1e-4)


@every_alpha
@every_seed
@pytest.mark.parametrize("penalty", [1.0, 1.6])
def test_a_beam_of_one_is_greedy(toy, prompts, alpha, seed, penalty):
    net, (start, source) = toy(seed=seed), prompts
    hypotheses = beam_search(net, start, None, source, Decoding(length_penalty=alpha, repetition_penalty=penalty), 12, 3)
    options = Decoding(temperature=0.0, repetition_penalty=penalty, length=12)
    greedy = torch.stack(list(stream(net, Prompts(start, None, source, 3), options)), 1)
    assert [len(row) for row in hypotheses] == [1, 1, 1]
    assert [row[0].tokens for row in hypotheses] == [[token for token in row if token] for row in greedy.tolist()]


@every_alpha
@every_seed
@pytest.mark.parametrize("end", [3, None])
@pytest.mark.parametrize("penalty", [1.0, 1.6])
def test_a_beam_as_wide_as_the_space_is_exhaustive(toy, alpha, seed, end, penalty):
    """Tokens 3 (the end), 4 and 5, up to 4 per text: 15 texts end and 16 do not. Tokens 2 to 5 in texts of 3: 64."""
    net, prompts, source = toy(vocabulary=6, seed=seed), torch.tensor([[4], [5]]), torch.tensor([[4, 5], [5, 0]])
    beam, count = (64, 3) if end is None else (31, 4)
    options = Decoding(beam=beam, length_penalty=alpha, repetition_penalty=penalty)
    for row, hypotheses in enumerate(beam_search(net, prompts, None, source, options, count, end)):
        expected = slow(net, prompts[row].tolist(), source[row : row + 1], None, count, end, alpha, penalty)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert len(expected) == beam
        check(hypotheses[0], expected[0])
        assert scores == sorted(scores, reverse=True)
        if end is None:
            assert scores == pytest.approx([score for _, score in expected], abs=1e-4)


@every_alpha
@every_seed
@pytest.mark.parametrize("beam", [2, 5])
def test_a_narrow_beam_equals_the_slow_search_without_early_stopping(toy, prompts, alpha, seed, beam):
    net, (start, source) = toy(seed=seed, end_bias=1.0), prompts
    for row, hypotheses in enumerate(beam_search(net, start, None, source, Decoding(beam=beam, length_penalty=alpha), 10, 3)):
        expected = slow(net, start[row].tolist(), source[row : row + 1], beam, 10, 3, alpha)
        check(hypotheses[0], expected[0])
        texts = {tuple(hypothesis.tokens) for hypothesis in hypotheses}
        assert texts <= {text for text, _ in expected}
        assert len(texts) == len(hypotheses) <= beam


def test_rows_do_not_influence_each_other(toy, prompts):
    net, (start, source), options = toy(seed=1), prompts, Decoding(beam=3, repetition_penalty=1.2)
    together = beam_search(net, start, None, source, options, 10, 3)
    for row in range(3):
        assert beam_search(net, start[row : row + 1], None, source[row : row + 1], options, 10, 3) == [together[row]]
    assert beam_search(net, start.flip(0), None, source.flip(0), options, 10, 3)[::-1] == together


def test_the_search_compares_with_the_best_finished_text(toy):
    """With p = 0.4 for the end, texts of 1, 2, 3 tokens have 0.4, 0.24, 0.144; active ones have 0.6, then 0.36 < 0.4."""
    net = toy(vocabulary=5)
    net.table[:] = torch.tensor([0.0, 0.0, 0.0, 0.4, 0.6]).log()
    (texts,) = beam_search(net, torch.tensor([[4]]), None, None, Decoding(beam=3, length_penalty=0.0), 8, 3)
    assert [text.tokens for text in texts] == [[3], [4, 3]]
    assert net.calls == 2


def test_the_search_continues_while_a_hypothesis_can_improve(toy):
    """The text that ends at once has log p = -0.7; the other has the same probability and a larger length penalty."""
    net = toy(vocabulary=5)
    net.table[:] = torch.tensor([0.0, 0.0, 0.0, -40.0, 40.0])
    first = net.after(torch.tensor(0), torch.tensor(2))
    net.table[first] = torch.tensor([0.0, 0.0, 0.0, 0.1, 0.0])
    options = Decoding(beam=2, length_penalty=1.0)
    (texts,) = beam_search(net, torch.tensor([[2]]), None, None, options, 8, 3)
    assert [text.tokens for text in texts] == [[4] * 8, [3]]
    (texts,) = beam_search(net, torch.tensor([[2]]), None, None, Decoding(beam=2, length_penalty=0.0), 8, 3)
    assert [text.tokens for text in texts] == [[3]]
