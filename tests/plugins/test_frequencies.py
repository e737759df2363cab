"""Words ranked by their sensitivity: the numbers of the formula, and a picture of any of them."""

import csv
import io

import numpy as np
import pytest
import torch
from torch import nn
from zoo_algebras import frequencies as report

from zoo.data.text.tokenizer import Tokenizer
from zoo.errors import InputError

TOKENS = ["[PAD]", "[UNK]", "film", "bad", 'a "b", c', "$\\alpha", "日本語", "[END]"]


class Waves(nn.Module):
    """An embedding that answers with these frequencies."""

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


def test_padding_the_unknown_and_special_tokens_are_no_words():
    assert report.vocabulary(tokenizer()) == {token: number for number, token in enumerate(TOKENS) if 1 < number < 7}


def test_the_ranking_is_by_the_mean_modulus():
    """delta_j = (1 / D) sum_d |w_jd|: signs do not cancel, padding and other rows do not count."""
    w = torch.tensor([[9.0, 9.0], [0.2, 0.2], [-0.5, 0.5], [0.1, -0.2], [0.3, 0.4]])
    found = report.rank(w, {"a": 1, "b": 2, "c": 3, "d": 4})
    assert [word.word for word in found] == ["b", "d", "a", "c"]
    assert [word.delta for word in found] == pytest.approx([0.5, 0.35, 0.2, 0.15])
    most, least = report.ends(found, 3)
    assert [word.word for word in most] == ["b", "d", "a"]
    assert [word.word for word in least] == ["c", "a", "d"]


def test_the_embedding_is_found_wherever_it_is():
    w = torch.rand(3, 2)
    net = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"words": Waves(None), "more": Waves(w)}))
    assert report.find_frequencies(net) is w


@pytest.mark.parametrize("net", [nn.Linear(2, 2), Waves(None)])
def test_a_network_without_such_frequencies(net):
    with pytest.raises(InputError, match=r"^this model has no word sensitivities: .*zoo list embeddings") as caught:
        report.find_frequencies(net)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "words", "said"),
    [
        (torch.ones(2, 2), {"a": 2}, "does not belong"),
        (torch.ones(2, 2), {}, "does not belong"),
        (torch.tensor([[1.0], [float("nan")]]), {"a": 1}, "not finite"),
        (torch.tensor([[1.0], [float("inf")]]), {"a": 1}, "not finite"),
    ],
)
def test_what_cannot_be_ranked(table, words, said):
    with pytest.raises(InputError, match=said):
        report.rank(table, words)


def test_the_csv_holds_every_word_as_it_is():
    found = report.rank(torch.rand(7, 3), report.vocabulary(tokenizer()))
    rows = list(csv.reader(io.StringIO(report.as_csv(found), newline="")))
    assert rows[0] == ["word", "delta"]
    assert [(word, pytest.approx(float(delta), rel=1e-8)) for word, delta in rows[1:]] == found
    assert {word for word, _ in rows[1:]} == set(TOKENS[2:7])


def test_the_table_shows_both_ends():
    found = ranking()
    page = report.as_table(found, 3)
    for words in report.ends(found, 3):
        assert all(report.shorten(word.word) in page and f"{word.delta:.4f}" in page for word in words)
    assert report.ends(found, 4)[0][3].word not in page
    assert len(report.as_table(found[:2], 50).splitlines()) < 12


def test_the_kernel_density_is_a_density():
    values = np.random.RandomState(0).randn(4000)
    grid = np.linspace(-6, 6, 241)
    density = report.kernel_density(values, grid)
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-3)
    assert np.abs(density - np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)).max() < 0.03


@pytest.mark.parametrize("found", [ranking(), ranking(8), [report.Word("a", 0.1)], [report.Word(w, 0.5) for w in "abc"]])
def test_the_picture_can_be_drawn(found):
    from PIL import Image

    picture = Image.open(io.BytesIO(report.draw_density(found, "runs/$_^$")))
    assert picture.format == "PNG"
    assert picture.size == (1500, 750)
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
