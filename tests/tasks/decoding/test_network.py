"""What decoding needs of a network."""

import pytest
import torch

from zoo.errors import InputError
from zoo.tasks.decoding import Prompts, beam_search, stream
from zoo.tasks.decoding.options import Decoding


def max_new_tokens(max_length, prompt, wanted):
    return Prompts(torch.full((1, prompt), 4)).max_new_tokens(max_length, wanted)


@pytest.mark.parametrize("decode", [stream, beam_search])
def test_what_does_not_fit_is_one_line_at_once(toy, decode):
    net, prompts = toy(max_length=128), Prompts(torch.full((1, 60), 4))
    message = "a prompt of 60 tokens and 100 more: this network has positions for 128; use --length 68 or a shorter prompt"
    with pytest.raises(InputError, match=f"^{message}$"):
        decode(net, prompts, Decoding(length=100))
    with pytest.raises(InputError, match=r"^a prompt of 128 tokens: this network has positions for 128; use a shorter prompt$"):
        decode(net, Prompts(torch.full((1, 128), 4)))
    assert net.calls == 0


@pytest.mark.parametrize("decode", [stream, beam_search])
def test_a_prompt_has_a_token_at_its_end(toy, decode):
    with pytest.raises(InputError, match="an empty prompt: give at least one token"):
        decode(toy(), Prompts(torch.zeros(2, 0, dtype=torch.int64)))
    with pytest.raises(InputError, match="empty or ends with padding"):
        decode(toy(), Prompts(torch.tensor([[4, 5], [4, 0]]), torch.tensor([[True, True], [True, False]])))


@pytest.mark.parametrize("decode", [stream, beam_search])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_network_without_answers_is_one_line(toy, decode, bad):
    net = toy()
    net.table[:, 4] = bad
    with pytest.raises(InputError, match="no finite number: its training has diverged"):
        list(decode(net, Prompts(torch.tensor([[4]])), Decoding(length=5)))
