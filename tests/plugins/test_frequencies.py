"""The report of word sensitivities: the formula, the CSV file, the table and the picture."""

import csv
import io

import pytest
import torch
from PIL import Image
from torch import nn
from zoo_algebras import frequencies as report

from tests.errors import raises
from zoo.data.tokenizer import Tokenizer

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
