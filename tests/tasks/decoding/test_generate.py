"""One call for every way of writing, also with the networks of the zoo."""

import pytest
import torch

from zoo import registry
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.tasks.decoding import Prompts, beam_search, generate, stream
from zoo.tasks.decoding.options import Decoding

SIZES = "dim=16, depth=1, heads=2, ffn=16"


def build(spec, **info):
    torch.manual_seed(0)
    net = registry.create("zoo.backbones", f"{spec}({SIZES})", Layers("quaternion"), vocab_size=12, max_length=16, **info)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return net.double().eval()


@pytest.mark.parametrize("end", [3, None])
def test_texts_are_those_of_the_stream_or_the_beam(toy, prompts, end):
    net, (start, source) = toy(), prompts
    for options in (Decoding(temperature=1.0, length=9), Decoding(beam=3, length=9)):
        begun = Prompts(start, None, source, end)
        written = generate(net, begun, options)
        if options.beam > 1:
            full = [row[0].tokens for row in beam_search(net, begun, options)]
        else:
            full = torch.stack(list(stream(net, begun, options)), 1).tolist()
        for text, whole in zip(written, full, strict=True):
            assert text == whole[: len(text)]
            assert set(whole[len(text) :]) <= ({3, 0} if end else set())
            assert len(text) == len(whole) or whole[len(text)] == end
            assert not {0, 1} & set(text)
            assert end not in text


def test_a_text_that_ends_at_once_is_empty(toy, prompts):
    net, (start, source) = toy(end_bias=40.0), prompts
    assert generate(net, Prompts(start, None, source, 3)) == [[], [], []]
    assert generate(net, Prompts(start, None, source, 3), Decoding(beam=2)) == [[], [], []]


def test_no_prompts_get_no_texts(toy):
    assert generate(toy(), Prompts(torch.zeros(0, 2, dtype=torch.int64), end=3)) == []


def test_the_length_is_what_is_left(toy):
    begun = Prompts(torch.tensor([[4, 5]]))
    assert [len(text) for text in generate(toy(max_length=20), begun)] == [18]
    assert [len(text) for text in generate(toy(max_length=20), begun, Decoding(beam=2))] == [18]
    with pytest.raises(InputError, match="use --length 18"):
        generate(toy(max_length=20), begun, Decoding(length=19))


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.0}, {"beam": 3, "repetition_penalty": 1.2}])
@pytest.mark.parametrize("spec", ["gpt", "transformer_xl"])
def test_a_language_model_writes_the_same_beside_longer_prompts(spec, options):
    net, options = build(spec), Decoding(**options, length=8)
    start = torch.tensor([[0, 0, 4, 5], [6, 7, 8, 9]])
    together = generate(net, Prompts(start, start != 0), options)
    assert [len(text) for text in together] == [8, 8]
    assert generate(net, Prompts(start[:1, 2:]), options) == together[:1]


@pytest.mark.parametrize("spec", ["gpt", "transformer_xl", "transformer"])
def test_a_greedy_text_is_that_of_a_whole_reading(spec):
    seq2seq = spec == "transformer"
    net = build(spec, seq2seq=True) if seq2seq else build(spec)
    source = torch.tensor([[4, 5, 6], [7, 8, 0]]) if seq2seq else None
    start = torch.tensor([[2], [2]])
    written = generate(net, Prompts(start, source=source), Decoding(temperature=0.0, length=8))
    so_far = torch.cat([start, torch.tensor(written)], 1)
    logits = net(so_far) if source is None else net(source, so_far)
    assert written == (logits[:, :-1, 2:].argmax(-1) + 2).tolist()


def test_answers_do_not_depend_on_the_sources_beside_them():
    net, options = build("transformer", seq2seq=True), Decoding(beam=3, length=8)
    source, start = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([[2], [2]])
    together = generate(net, Prompts(start, None, source, 3), options)
    assert generate(net, Prompts(start[1:], None, source[1:, :2], 3), options) == together[1:]
