"""Pretrained word vectors: their rows are in the network, and the file is not needed any more."""

import random
from pathlib import Path
from shutil import copytree

import pytest
import torch
import yaml

import zoo
from tests.errors import raises
from zoo.data import ready
from zoo.data.text.local import text
from zoo.training.network import load_vectors

TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}
BACKBONE = "fasttext(dim=8, hidden=8)"


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus) -> Path:
    """Data and GloVe files of widths 6 and 8 that know some of the words."""
    folder, draw = tmp_path_factory.mktemp("vectors"), random.Random(0)
    corpus(folder / "text.tsv", "text")
    for width in (6, 8):
        rows = {word: [round(draw.gauss(0, 1), 4) for _ in range(width)] for word in ("film", "good", "bad", "zebra", "the")}
        (folder / f"glove{width}.txt").write_text("".join(f"{w} {' '.join(map(str, row))}\n" for w, row in rows.items()))
    return folder


def fit(place: Path, name: str, width: int = 6, **changes: object) -> dict[str, object]:
    options = {"backbone": BACKBONE, "algebra": "quaternion", "data": f"text(path='{place / 'text.tsv'}')"}
    options |= {"vectors": str(place / f"glove{width}.txt"), "run_dir": str(place / name), "trainer": TRAINER}
    return zoo.fit(**options | changes)


@pytest.fixture(scope="module")
def made(place):
    return fit(place, "run")


def rows_of(place: Path, width: int) -> dict[str, list[float]]:
    lines = (line.split() for line in (place / f"glove{width}.txt").read_text().splitlines())
    return {word: [float(value) for value in row] for word, *row in lines}


def table_of(run: str | Path):
    (table,) = (module for module in zoo.load(run).net.modules() if hasattr(module, "load_vectors"))
    return table


@pytest.mark.parametrize(("width", "channels"), [(6, 8), (8, 8)])
def test_the_rows_of_the_file_are_in_the_trained_network(place, made, width, channels):
    run = place / "run" if width == 6 else Path(fit(place, "wide", 8)["run_dir"])
    words, table = ready(text(str(place / "text.tsv"))).tokenizer.tokens, table_of(run)
    rows = rows_of(place, width)
    assert len(words) > len(rows)
    with torch.no_grad():
        vectors = table.table(torch.arange(len(words)))
        assert table(torch.arange(len(words))).shape == (len(words), channels)
    for index, word in enumerate(words):
        if word in rows:
            assert vectors[index].tolist() == pytest.approx(rows[word])
        elif index:
            assert vectors[index].abs().max() > 0
    assert vectors[0].tolist() == [0.0] * width
    assert {word for word in words if word in rows} == {"film", "good", "bad", "the"}


def test_their_width_is_written_down_everywhere(place, made):
    path = str(place / "glove6.txt")
    assert made["vectors"] == path
    assert yaml.safe_load((place / "run" / "config.yaml").read_text())["vectors"] == path
    assert zoo.checkpoint.read_config(place / "run")["info"]["vectors"] == 6
    assert torch.load(made["checkpoint"], weights_only=True)["zoo_run"]["vectors"] == path


def test_fixed_vectors_are_no_parameters_and_the_projection_is_one(place, made):
    net, vocab = zoo.load(place / "run").net, zoo.checkpoint.read_config(place / "run")["info"]["vocab_size"]
    assert made["parameters"]["embedding"] == 0
    assert zoo.count(net)["total"] == made["parameters"]["total"]
    trained = fit(place, "trained", embedding="table(trained=true)")
    assert trained["parameters"]["embedding"] == 6 * vocab
    assert trained["parameters"]["total"] == made["parameters"]["total"] + 6 * vocab


def test_the_real_twin_has_the_same_vectors(place, made):
    real = fit(place, "real", algebra="real")
    assert real["parameters"]["total"] == made["parameters"]["real_twin"] == real["parameters"]["real_twin"]


def test_the_model_needs_the_file_no_more(place, made, tmp_path):
    model = copytree(place / "run" / "model", tmp_path / "model")
    hidden = (place / "glove6.txt").rename(place / "hidden")
    try:
        assert zoo.load(model).evaluate() == pytest.approx(made["metrics"], abs=1e-6)
        assert len(list(zoo.load(model).predict(["a good film", "a bad film"]))) == 2
    finally:
        hidden.rename(place / "glove6.txt")


def test_a_run_goes_on(place, made, tmp_path):
    copytree(place / "run", tmp_path / "more")
    more = zoo.fit(resume=str(tmp_path / "more"), trainer=TRAINER | {"max_epochs": 3})
    assert more["epochs"] == 3
    both = [table_of(run).table(torch.arange(5)) for run in (tmp_path / "more", place / "run")]
    assert torch.equal(*both)


def test_both_texts_of_a_pair_are_read_with_them(place, corpus):
    data = f"pairs(path='{corpus(place / 'pairs.tsv', 'pairs')}')"
    made = fit(place, "pair", backbone="decomposable_attention(dim=8)", algebra="complex", data=data)
    assert zoo.load(made["run_dir"]).evaluate() == pytest.approx(made["metrics"], abs=1e-6)


# --- bad input ---


@pytest.mark.parametrize(
    ("content", "code", "named"),
    [
        ("film 1 2 3\ngood 1 2\n", "corrupt", "mine.txt:2"),
        ("zebra 1 2 3\nlion 1 2 3\n", "data", "mine.txt"),
        ("", "data", "mine.txt"),
    ],
    ids=["width", "nothing known", "empty"],
)
def test_a_file_that_does_not_work(place, tmp_path, content, code, named):
    (tmp_path / "mine.txt").write_text(content)
    with raises(code, named):
        fit(place, "refused", vectors=str(tmp_path / "mine.txt"))
    assert not (place / "refused").exists()


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"data": "digits", "backbone": "vit(dim=16, depth=1, heads=1)"}, "mismatch", ["--vectors", "'digits'"]),
        ({"embedding": "table(projection=none)"}, "invalid", ["6", "dim=8"]),
        ({"embedding": "table(projection=sigmoid)"}, "unknown", ["'sigmoid'"]),
    ],
    ids=["images", "narrow", "projection"],
)
def test_a_run_that_cannot_have_them(place, changes, code, named):
    with raises(code, *named):
        fit(place, "refused", **changes)
    assert not (place / "refused").exists()


def test_a_network_without_a_word_table_that_takes_any():
    with raises("unsupported", "--vectors"):
        load_vectors(torch.nn.Linear(2, 3), (torch.zeros(3, 2), torch.ones(3, dtype=torch.bool)))
