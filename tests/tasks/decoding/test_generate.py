"""`generate` with the networks of the zoo, and decoding token by token against the definitions; options and errors."""

from dataclasses import replace

import pytest
import torch

from tests.errors import raises
from zoo import registry
from zoo.nn import Layers
from zoo.tasks import decoding as processors
from zoo.tasks.decoding import Prompts, beam_search, generate, sample, stream
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
        Decoding(**options)


def test_the_default_temperature_depends_on_the_task():
    assert temperature_of(Decoding(), answers=True) == 0
    assert temperature_of(Decoding(), answers=False) == 0.8
    assert temperature_of(Decoding(temperature=0.3), answers=True) == 0.3
    assert temperature_of(Decoding(temperature=0.0), answers=False) == 0


@pytest.mark.parametrize(("options", "answers"), [({"top_k": 5}, True), ({"top_p": 0.5, "temperature": 0.0}, False)])
def test_a_temperature_of_0_excludes_top_k_and_top_p(options, answers):
    with raises("invalid", next(iter(options)), "--temperature 1"):
        temperature_of(Decoding(**options), answers)


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


GREEDY = Decoding(temperature=0.0)
WAYS = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.0},
    "top": {"temperature": 2.0, "top_k": 3, "top_p": 0.9},
    "penalty": {"temperature": 1.0, "repetition_penalty": 1.5},
}
every_way = pytest.mark.parametrize("way", WAYS)


def text(net, start, mask=None, source=None, options=None, count=None, end=None):
    options = options or Decoding()
    options = options if count is None else replace(options, length=count)
    return torch.stack(list(stream(net, Prompts(start, mask, source, end), options)), 1)


@pytest.mark.parametrize("end", [None, 3])
def test_greedy_decoding_equals_argmax_without_a_cache(toy, prompts, end):
    net, (start, source) = toy(), prompts
    generated = text(net, start, None, source, GREEDY, count=12, end=end)
    for row, tokens in enumerate(generated.tolist()):
        prefix = start[row].tolist()
        for token in tokens:
            if prefix[-1] in (end, 0):
                assert token == 0
            else:
                logits = net.decode_step(torch.tensor([prefix]), net.init_cache(source[row : row + 1]))[0, -1]
                first = 2 if end is None else 3
                assert token == first + int(logits[first:].argmax())
            prefix.append(token)


@every_way
def test_rows_do_not_influence_each_other(toy, prompts, way):
    """Samples depend on the row number, not on the other rows."""
    net, (start, source), options = toy(), prompts, Decoding(**WAYS[way])
    together = text(net, start, None, source, options, count=20, end=3)
    other = start.clone()
    other[[0, 2]] = 6
    beside = text(net, other[:2], None, source[:2], options, count=20, end=3)
    assert together[1, : beside.shape[1]].tolist() == beside[1].tolist()[: together.shape[1]]
    alone = text(net, start[:1], None, source[:1], options, count=20, end=3)
    assert together[0, : alone.shape[1]].tolist() == alone[0].tolist()


@pytest.mark.parametrize("way", ["drawn", "top", "penalty"])
def test_the_seed_decides(toy, way):
    net, start = toy(), torch.tensor([[4, 5]] * 4)
    texts = [text(net, start, None, None, Decoding(**WAYS[way], seed=seed), count=15) for seed in (0, 0, 1)]
    state = torch.get_rng_state()
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])
    assert len({tuple(row) for row in texts[0].tolist()}) == 4, "equal prompts have different samples"
    longer = text(net, start, None, None, Decoding(**WAYS[way], seed=0), count=20)
    assert torch.equal(longer[:, :15], texts[0])
    assert torch.equal(state, torch.get_rng_state())


def test_samples_have_the_distribution_of_the_softmax():
    """Over 4000 rows the statistic of Pearson stays below its 99.9 % quantile, 16.3 with three degrees of freedom."""
    p = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    for seed in (0, 1):
        generators = [torch.Generator().manual_seed(seed * 1_000_003 + row) for row in range(4000)]
        counts = sample(p.log().expand(4000, -1), generators).bincount(minlength=5).double()
        assert counts[0] == 0
        assert ((counts - 4000 * p)[1:].square() / (4000 * p[1:])).sum() < 16.3


def test_the_stream_stops_when_all_texts_have_ended(toy, prompts):
    net, (start, source) = toy(end_bias=4.0), prompts
    generated = text(net, start, None, source, Decoding(temperature=1.0), count=200, end=3)
    assert net.calls == generated.shape[1] < 200
    for row in generated.tolist():
        assert row.count(3) == 1
        assert set(row[row.index(3) + 1 :]) <= {0}


def test_the_stream_is_lazy(toy):
    net = toy()
    tokens = stream(net, Prompts(torch.tensor([[4]])), Decoding(length=50))
    next(tokens)
    assert net.calls == 1
    assert not torch.is_inference_mode_enabled()
    next(tokens)
    assert net.calls == 2
