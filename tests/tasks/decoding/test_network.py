"""Errors of decoding: the maximum length, empty prompts, and networks that return NaN or infinity."""

import pytest
import torch

from tests.errors import raises
from zoo.tasks.decoding import Prompts, beam_search, stream
from zoo.tasks.options import Decoding


@pytest.mark.parametrize("decode", [stream, beam_search])
def test_the_maximum_length_is_checked_before_decoding(toy, decode):
    net = toy(max_length=128)
    with raises("invalid", "60 tokens", "length=100", "max_length=128", "--length 68"):
        decode(net, Prompts(torch.full((1, 60), 4)), Decoding(length=100))
    with raises("invalid", "128 tokens", "max_length=128"):
        decode(net, Prompts(torch.full((1, 128), 4)))
    assert net.calls == 0


def test_a_prompt_must_not_be_empty_or_padded_on_the_right():
    with raises("invalid", "empty prompt"):
        Prompts(torch.zeros(2, 0, dtype=torch.int64))
    with raises("invalid", "padding on the left"):
        Prompts(torch.tensor([[4, 5], [4, 0]]), torch.tensor([[True, True], [True, False]]))


@pytest.mark.parametrize("decode", [stream, beam_search])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_must_be_finite(toy, decode, bad):
    net = toy()
    net.table[:, 4] = bad
    with raises("invalid", "NaN"):
        list(decode(net, Prompts(torch.tensor([[4]])), Decoding(length=5)))
