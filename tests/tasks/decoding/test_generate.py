"""`generate` with greedy decoding, sampling and beam search, with the networks of the zoo; options and errors."""

import pytest
import torch

from tests.errors import raises
from zoo import registry
from zoo.layers import Layers
from zoo.tasks.decoding import Prompts, beam_search, check_decoding, generate, stream
from zoo.tasks.options import Decoding, temperature_of

SIZES = "dim=16, depth=1, heads=2, ffn=16"


def build(spec, **info):
    torch.manual_seed(0)
    net = registry.create("zoo.backbones", f"{spec}({SIZES})", Layers("quaternion"), vocab_size=12, max_length=16, **info)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return net.double().eval()


@pytest.mark.parametrize("end", [3, None])
def test_texts_equal_those_of_stream_and_beam_search(toy, prompts, end):
    net, (start, source) = toy(), prompts
    for options in (Decoding(temperature=1.0, length=9), Decoding(beam=3, length=9)):
        batch = Prompts(start, None, source, end)
        texts = generate(net, batch, options)
        if options.beam > 1:
            expected = [row[0].tokens for row in beam_search(net, batch, options)]
        else:
            expected = torch.stack(list(stream(net, batch, options)), 1).tolist()
        for text, whole in zip(texts, expected, strict=True):
            assert text == whole[: len(text)]
            assert set(whole[len(text) :]) <= ({3, 0} if end else set())
            assert len(text) == len(whole) or whole[len(text)] == end
            assert not {0, 1} & set(text)
            assert end not in text


def test_the_default_length_fills_max_length(toy):
    batch = Prompts(torch.tensor([[4, 5]]))
    assert [len(text) for text in generate(toy(max_length=20), batch)] == [18]
    assert [len(text) for text in generate(toy(max_length=20), batch, Decoding(beam=2))] == [18]
    with raises("invalid", "--length 18"):
        generate(toy(max_length=20), batch, Decoding(length=19))


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.0}, {"beam": 3, "repetition_penalty": 1.2}])
@pytest.mark.parametrize("spec", ["gpt", "transformer_xl"])
def test_padding_of_shorter_prompts_changes_nothing(spec, options):
    net, options = build(spec), Decoding(**options, length=8)
    start = torch.tensor([[0, 0, 4, 5], [6, 7, 8, 9]])
    together = generate(net, Prompts(start, start != 0), options)
    assert [len(text) for text in together] == [8, 8]
    assert generate(net, Prompts(start[:1, 2:]), options) == together[:1]


@pytest.mark.parametrize("spec", ["gpt", "transformer_xl", "transformer"])
def test_greedy_decoding_with_a_cache_equals_forward(spec):
    seq2seq = spec == "transformer"
    net = build(spec, seq2seq=True) if seq2seq else build(spec)
    source = torch.tensor([[4, 5, 6], [7, 8, 0]]) if seq2seq else None
    start = torch.tensor([[2], [2]])
    generated = generate(net, Prompts(start, source=source), Decoding(temperature=0.0, length=8))
    tokens = torch.cat([start, torch.tensor(generated)], 1)
    logits = net(tokens) if source is None else net(source, tokens)
    assert generated == (logits[:, :-1, 2:].argmax(-1) + 2).tolist()


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


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 0},
        {"temperature": float("nan")},
        {"top_k": 0},
        {"top_p": 0.0},
        {"beam": 2, "top_p": 0.5},
    ],
    ids=str,
)
def test_invalid_options(options):
    with raises("invalid", *(f"{name}={value}" for name, value in options.items())):
        check_decoding(Decoding(**options))


def test_the_default_temperature_depends_on_the_task():
    assert temperature_of(Decoding(), answers=True) == 0
    assert temperature_of(Decoding(), answers=False) == 0.8
    assert temperature_of(Decoding(temperature=0.3), answers=True) == 0.3
    assert temperature_of(Decoding(temperature=0.0), answers=False) == 0


@pytest.mark.parametrize(("options", "answers"), [({"top_k": 5}, True), ({"top_p": 0.5, "temperature": 0.0}, False)])
def test_a_temperature_of_0_excludes_top_k_and_top_p(options, answers):
    with raises("invalid", next(iter(options)), "--temperature 1"):
        temperature_of(Decoding(**options), answers)
