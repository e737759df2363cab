"""Complex order embeddings, and the report of word sensitivities: the formula, the CSV file, the table and the picture."""

import csv
import io
import math

import pytest
import torch
from PIL import Image
from torch import nn
from zoo_algebras import frequencies as report
from zoo_algebras.algebras import complex_order as order_algebra
from zoo_algebras.order_embedding import PhasorEmbedding, complex_order, complex_vanilla

from tests.errors import raises
from zoo.algebras import Laws, reals
from zoo.backbones.build import count
from zoo.data.tokenizer import Tokenizer
from zoo.nn import Layers, Linear
from zoo.tasks.optimization import make_optimizer
from zoo.tasks.options import Optimizer
from zoo.testing import AlgebraContract

V, D = 9, 5
SHARED = ["none", "word", "dimension"]


class TestComplexOrder(AlgebraContract):
    spec = "complex_order"
    laws = Laws(unital=True, commutative=True, associative=True, alternative=True, normed=True)


class TestSharedWeights(AlgebraContract):
    spec = "complex_order(weights=shared)"
    laws = TestComplexOrder.laws


def order(**options) -> PhasorEmbedding:
    torch.manual_seed(0)
    return complex_order(Layers(reals()), **{"vocab_size": V, "dim": 2 * D} | options)


def vanilla(**options) -> PhasorEmbedding:
    torch.manual_seed(0)
    return complex_vanilla(Layers(reals()), **{"vocab_size": V, "dim": 2 * D} | options)


def stir(embedding: nn.Module) -> nn.Module:
    """Perturb the initial values."""
    with torch.no_grad():
        for parameter in embedding.parameters():
            parameter.add_(torch.randn_like(parameter))
    return embedding.double()


def as_complex(y):
    return torch.complex(*y.chunk(2, -1))


# --- the algebra ---


@pytest.mark.parametrize(("inp", "out"), [(6, 8), (10, 4)])
def test_shared_weights_have_equal_real_and_imaginary_parts(inp, out):
    layer = Linear(inp, out, algebra=order_algebra("shared"), bias=False)
    a = layer.components[0]
    assert layer.components.shape == (1, out // 2, inp // 2)
    assert torch.equal(layer.weight, torch.cat([torch.cat([a, -a], 1), torch.cat([a, a], 1)]))
    x = torch.randn(3, inp)
    torch.testing.assert_close(as_complex(layer(x)), (1 + 1j) * as_complex(x) @ a.T.to(torch.complex64))


# --- what the embedding computes ---


@pytest.mark.parametrize("amplitude", SHARED)
@pytest.mark.parametrize("frequency", SHARED)
@pytest.mark.parametrize("phase", ["off", "none"])
def test_vectors_equal_equation_five(amplitude, frequency, phase):
    if (amplitude, frequency, phase) == ("word", "word", "off"):
        return
    e = stir(order(amplitude=amplitude, frequency=frequency, phase=phase))
    tokens = torch.tensor([[3, 8, 1, 3], [2, 2, 5, 1]])
    r, w = (table.weight.expand(V, D) for table in (e.amplitude, e.frequency))
    theta = torch.zeros(V, D) if e.phase is None else e.phase.weight.expand(V, D)
    y = as_complex(e(tokens))
    assert y.shape == (2, 4, D)
    for row, text in enumerate(tokens):
        for place, j in enumerate(text):
            expected = r[j] * torch.exp(1j * (w[j] * (place + 1) + theta[j]))
            torch.testing.assert_close(y[row, place], expected, check_dtype=False)


def test_word_sharing_equals_the_trigonometric_encoding():
    """Appendix A, with unit amplitudes: PE_2k = Im f_k and PE_2k+1 = Re f_k."""
    e = order(frequency="word").double()
    nn.init.ones_(e.amplitude.weight)
    real, imaginary = e(torch.full((1, 50), 4))[0].chunk(2, -1)
    for pos in range(1, 51):
        for k in range(D):
            angle = pos / 10000 ** (2 * k / (2 * D))
            assert real[pos - 1, k].item() == pytest.approx(math.cos(angle), abs=1e-6)
            assert imaginary[pos - 1, k].item() == pytest.approx(math.sin(angle), abs=1e-6)


def test_normal_initial_frequencies():
    e = order(vocab_size=400, dim=128, frequency_init="normal")
    w, tokens = e.frequency.weight, torch.tensor([[7, 3, 7]])
    assert abs(w.mean()) < 0.02
    assert abs(w.std() - 1) < 0.02
    phase = torch.arange(1, 4)[None, :, None] * w[tokens]
    torch.testing.assert_close(as_complex(e(tokens)), torch.polar(torch.ones_like(phase), phase) * e.amplitude.weight[tokens])
    assert torch.equal(order(frequency_init="trigonometric").frequency.weight, order().frequency.weight)


def test_initial_frequencies_from_the_word_index():
    """As in the authors' released code of CNN, FastText and LSTM: j / 10000^(2d / D)."""
    w = order(vocab_size=40, dim=16, frequency_init="index").frequency.weight
    assert w[0].eq(0).all()
    assert w[1].tolist() == pytest.approx([1, 10**-1, 10**-2, 10**-3, 10**-4, 10**-5, 10**-6, 10**-7])
    torch.testing.assert_close(w[39], 39 * w[1])
    with raises("invalid", "frequency=none"):
        order(frequency="word", frequency_init="index")


def test_learning_rate_of_frequencies():
    e = order(frequency_lr_scale=0.1)
    groups = make_optimizer(e, Optimizer("sgd", 0.5, 0.2)).param_groups
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    assert rates == {id(e.frequency.weight): 0.05, id(e.amplitude.weight): 0.5}
    before = [table.weight.detach().clone() for table in (e.frequency, e.amplitude)]
    fixed = order(frequency_lr_scale=0)
    for one in (e, fixed):
        optimizer = make_optimizer(one, Optimizer("adamw", 0.5, 0.0))
        one(torch.tensor([[4, 2]])).sum().backward()
        optimizer.step()
    moved = [(table.weight - start).abs().max().item() for table, start in zip((e.frequency, e.amplitude), before, strict=True)]
    assert moved == pytest.approx([0.05, 0.5], rel=1e-3)  # the first step of Adam is the learning rate
    assert torch.equal(fixed.frequency.weight, before[0])
    assert not torch.equal(fixed.amplitude.weight, before[1])


def test_only_complex_order_depends_on_positions():
    tokens = torch.tensor([[3, 5, 3]])
    assert order().ordered
    assert not vanilla().ordered
    first, _, last = order()(tokens)[0]
    assert (first - last).abs().max() > 0.01
    first, _, last = vanilla()(tokens)[0]
    assert torch.equal(first, last)
    e = vanilla().double()
    expected = torch.polar(e.amplitude.weight.abs(), e.phase.weight) * e.amplitude.weight.sign()
    torch.testing.assert_close(as_complex(e(tokens))[0], expected[tokens[0]])


# --- padding ---


@pytest.mark.parametrize("options", [{}, {"amplitude": "word", "phase": "none"}, {"frequency": "word"}, {"vectors": 3}])
def test_padding_is_zero_without_gradient(options):
    e = stir(order(**options))
    y = e(torch.tensor([[4, 2, 0, 0]]))
    assert torch.equal(y[0, 2:], torch.zeros(2, 2 * D))
    assert torch.equal(y[:, :2], e(torch.tensor([[4, 2]])))
    e(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in e.parameters())
    e(torch.tensor([[4, 2, 0]])).square().sum().backward()
    tables = [table for table in (e.amplitude, e.frequency, e.phase) if table is not None and len(table.weight) > 1]
    assert all(table.weight.grad is None or table.weight.grad[0].abs().max() == 0 for table in tables)


# --- sizes ---


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 2 * V * D),
        ({"phase": "none"}, 3 * V * D),
        ({"frequency": "word"}, V * D + D),
        ({"amplitude": "dimension"}, V * D + V),
        ({"phase": "dimension"}, 2 * V * D + V),
    ],
)
def test_parameter_counts_of_section_three(options, expected):
    """|W| D + |W| with dimension-sharing, |W| D + D with word-sharing; all of it counted as word tables."""
    assert count(order(**options)) == {"total": expected, "embedding": expected}
    assert count(vanilla()) == {"total": 2 * V * D, "embedding": 2 * V * D}


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"dim": 7}, "dim=7"),
        ({"amplitude": "word", "frequency": "word"}, "amplitude, frequency or phase"),
        ({"frequency_lr_scale": -1.0}, "frequency_lr_scale=-1.0"),
        ({"amplitude": "dimension", "vectors": 5}, "amplitude=none"),
    ],
)
def test_invalid_options(options, value):
    with raises("invalid", value):
        order(**options)
    for name, value in (("amplitude", "words"), ("amplitude", "off"), ("phase", "on"), ("frequency_init", "uniform")):
        with raises("unknown", name, f"'{value}'"):
            order(**{name: value})
    with raises("unknown", "'equal'"):
        order_algebra("equal")


# --- pretrained vectors ---


def pretrained(width: int):
    found = torch.rand(400, generator=torch.Generator().manual_seed(1)) < 0.5
    matrix = 0.3 * torch.randn(400, width, generator=torch.Generator().manual_seed(2))
    return matrix * found[:, None], found


@pytest.mark.parametrize("width", [32, 20])
def test_pretrained_vectors_initialize_amplitudes(width):
    e = order(vocab_size=400, dim=64, vectors=width)
    matrix, found = pretrained(width)
    e.load_vectors(matrix, found)
    table = e.amplitude.weight
    assert torch.equal(table[found], matrix[found])
    assert abs(table[~found].std().item() - 0.3) < 0.02
    assert table.requires_grad == (width == 32)
    projection = 0 if width == 32 else 20 * 32 + 32
    tables = 400 * 32 * (2 if width == 32 else 1)
    assert count(e) == {"total": tables + projection, "embedding": tables}
    words = torch.arange(1, 400)[:, None]
    modulus = as_complex(e(words)).abs().squeeze(1)
    expected = table[1:] if width == 32 else torch.tanh(e.projection[0](table[1:]))
    torch.testing.assert_close(modulus, expected.abs())


# --- what torch expects of a module ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_positions_in_every_precision(dtype):
    e = order()
    nn.init.constant_(e.frequency.weight, 0.5)  # exact in both
    exact = e.double()(torch.full((1, 600), 4))
    y = e.to(dtype)(torch.full((1, 600), 4))
    assert y.dtype == dtype
    assert ((y.double() - exact).norm() / exact.norm()).item() < (1e-4 if dtype == torch.float32 else 1e-2)


TOKENS = ["[PAD]", "[UNK]", "film", "bad", 'a "b", c', "$\\alpha", "日本語", "[END]"]


class Waves(nn.Module):
    """An embedding with given frequencies."""

    def __init__(self, table) -> None:
        super().__init__()
        self.table = table

    def frequencies(self):
        return self.table


def tokenizer() -> Tokenizer:
    import tokenizers
    from tokenizers import AddedToken
    from tokenizers.models import WordLevel

    made = tokenizers.Tokenizer(WordLevel({token: number for number, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    made.add_special_tokens([AddedToken("[END]", special=True)])
    return Tokenizer(made)


def test_words_are_ranked_by_the_mean_absolute_frequency():
    """delta_j = (1 / D) sum_d |w_jd|: signs do not cancel, and padding is ignored."""
    w = torch.tensor([[9.0, 9.0], [0.2, 0.2], [-0.5, 0.5], [0.1, -0.2], [0.3, 0.4]])
    ranked = report.rank(w, {"a": 1, "b": 2, "c": 3, "d": 4})
    assert [word.word for word in ranked] == ["b", "d", "a", "c"]
    assert [word.delta for word in ranked] == pytest.approx([0.5, 0.35, 0.2, 0.15])


def test_frequencies_are_found_in_any_submodule():
    w = torch.rand(3, 2)
    net = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"words": Waves(None), "more": Waves(w)}))
    assert report.find_frequencies(net) is w
    with raises("invalid", "complex_order"):
        report.find_frequencies(Waves(None))


def test_the_files_and_the_table_contain_the_words():
    ranked = report.rank(torch.rand(7, 3), report.vocabulary(tokenizer()))
    rows = list(csv.reader(io.StringIO(report.as_csv(ranked), newline="")))
    assert rows[0] == ["word", "delta"]
    assert [(word, pytest.approx(float(delta), rel=1e-8)) for word, delta in rows[1:]] == ranked
    assert {word for word, _ in rows[1:]} == set(TOKENS[2:7])
    page = report.as_table(ranked[:2], ranked[::-1][:2])
    for word in (*ranked[:2], *ranked[3:]):
        assert word.word in page
        assert f"{word.delta:.4f}" in page
    assert ranked[2].word not in page


@pytest.mark.parametrize("deltas", [[0.1, 0.3, 0.2, 0.25, 0.11], [0.1], [0.5] * 3])
def test_the_density_is_drawn_for_any_ranking(deltas):
    picture = Image.open(io.BytesIO(report.draw_density([report.Word("a", delta) for delta in deltas], "runs/$_^$")))
    assert picture.format == "PNG"
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
