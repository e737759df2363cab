"""The report of word sensitivities: the formula, the CSV file, the table and the picture."""

import csv
import io

import numpy as np
import pytest
import torch
from torch import nn
from zoo_algebras import frequencies as report

from tests.errors import raises
from zoo.data.text.tokenizer import Tokenizer

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


def ranking(count: int = 500) -> list[report.Word]:
    delta = 0.1 + 0.02 * torch.randn(count, 1, generator=torch.Generator().manual_seed(0)).abs()
    delta[0], delta[1] = 0.3, 0.05
    words = {"$\\frac$": 0, "日本語" * 9: 1} | {f"word{i}": i for i in range(2, count)}
    return report.rank(delta, words)


def test_vocabulary_excludes_padding_unknown_and_special_tokens():
    assert report.vocabulary(tokenizer()) == {token: number for number, token in enumerate(TOKENS) if 1 < number < 7}


def test_words_are_ranked_by_the_mean_absolute_frequency():
    """delta_j = (1 / D) sum_d |w_jd|: signs do not cancel, and padding is ignored."""
    w = torch.tensor([[9.0, 9.0], [0.2, 0.2], [-0.5, 0.5], [0.1, -0.2], [0.3, 0.4]])
    ranked = report.rank(w, {"a": 1, "b": 2, "c": 3, "d": 4})
    assert [word.word for word in ranked] == ["b", "d", "a", "c"]
    assert [word.delta for word in ranked] == pytest.approx([0.5, 0.35, 0.2, 0.15])
    most, least = report.extremes(ranked, 3)
    assert [word.word for word in most] == ["b", "d", "a"]
    assert [word.word for word in least] == ["c", "a", "d"]


def test_frequencies_are_found_in_any_submodule():
    w = torch.rand(3, 2)
    net = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"words": Waves(None), "more": Waves(w)}))
    assert report.find_frequencies(net) is w


@pytest.mark.parametrize("net", [nn.Linear(2, 2), Waves(None)])
def test_a_network_without_frequencies_is_an_error(net):
    with raises("invalid", "complex_order"):
        report.find_frequencies(net)


@pytest.mark.parametrize(
    ("table", "words", "value"),
    [
        (torch.ones(2, 2), {"a": 2}, "2 rows"),
        (torch.ones(2, 2), {}, "0 words"),
        (torch.tensor([[1.0], [float("nan")]]), {"a": 1}, "lr"),
        (torch.tensor([[1.0], [float("inf")]]), {"a": 1}, "lr"),
    ],
)
def test_invalid_frequencies(table, words, value):
    with raises("invalid", value):
        report.rank(table, words)


def test_the_csv_contains_every_word_unchanged():
    ranked = report.rank(torch.rand(7, 3), report.vocabulary(tokenizer()))
    rows = list(csv.reader(io.StringIO(report.as_csv(ranked), newline="")))
    assert rows[0] == ["word", "delta"]
    assert [(word, pytest.approx(float(delta), rel=1e-8)) for word, delta in rows[1:]] == ranked
    assert {word for word, _ in rows[1:]} == set(TOKENS[2:7])


def test_the_table_shows_the_most_and_the_least_sensitive_words():
    words = ranking()
    page = report.as_table(words, 3)
    for extreme in report.extremes(words, 3):
        assert all(report.shorten(word.word) in page and f"{word.delta:.4f}" in page for word in extreme)
    assert report.extremes(words, 4)[0][3].word not in page
    assert len(report.as_table(words[:2], 50).splitlines()) < 12


def test_the_kernel_density_is_a_density():
    values = np.random.RandomState(0).randn(4000)
    grid = np.linspace(-6, 6, 241)
    density = report.kernel_density(values, grid)
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-3)
    assert np.abs(density - np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)).max() < 0.03


@pytest.mark.parametrize("words", [ranking(), ranking(8), [report.Word("a", 0.1)], [report.Word(w, 0.5) for w in "abc"]])
def test_the_density_is_drawn_for_any_ranking(words):
    from PIL import Image

    picture = Image.open(io.BytesIO(report.draw_density(words, "runs/$_^$")))
    assert picture.format == "PNG"
    assert picture.size == (1500, 750)
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
