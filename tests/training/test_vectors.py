"""Pretrained word vectors in runs and models."""

import random
from pathlib import Path
from shutil import copytree

import pytest
import torch
import yaml

import zoo
from tests.errors import raises
from zoo.data import ready
from zoo.data.text import text
from zoo.training.network import load_vectors

TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}
BACKBONE = "fasttext(dim=8, hidden=8)"


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, corpus) -> Path:
    """Data, and GloVe files of widths 6 and 8 with some of the words."""
    folder, draw = tmp_path_factory.mktemp("vectors"), random.Random(0)
    corpus(folder / "text.tsv", "text")
    for width in (6, 8):
        rows = {word: [round(draw.gauss(0, 1), 4) for _ in range(width)] for word in ("film", "good", "bad", "zebra", "the")}
        (folder / f"glove{width}.txt").write_text("".join(f"{w} {' '.join(map(str, row))}\n" for w, row in rows.items()))
    return folder


def fit(workdir: Path, name: str, width: int = 6, **changes: object) -> dict[str, object]:
    options = {"backbone": BACKBONE, "algebra": "quaternion", "data": f"text(path='{workdir / 'text.tsv'}')"}
    options |= {"vectors": str(workdir / f"glove{width}.txt"), "run_dir": str(workdir / name), "trainer": TRAINER}
    return zoo.fit(**options | changes)


@pytest.fixture(scope="module")
def summary(workdir):
    return fit(workdir, "run")


def rows_of(workdir: Path, width: int) -> dict[str, list[float]]:
    lines = (line.split() for line in (workdir / f"glove{width}.txt").read_text().splitlines())
    return {word: [float(value) for value in row] for word, *row in lines}


def table_of(run: str | Path):
    (table,) = (module for module in zoo.load(run).net.modules() if hasattr(module, "load_vectors"))
    return table


@pytest.mark.parametrize(("width", "channels"), [(6, 8), (8, 8)])
def test_the_trained_network_has_the_vectors_of_the_file(workdir, summary, width, channels):
    run = workdir / "run" if width == 6 else Path(fit(workdir, "wide", 8)["run_dir"])
    words, table = ready(text(str(workdir / "text.tsv"))).tokenizer.tokens, table_of(run)
    rows = rows_of(workdir, width)
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


def test_the_file_and_width_are_stored(workdir, summary):
    path = str(workdir / "glove6.txt")
    assert summary["vectors"] == path
    assert yaml.safe_load((workdir / "run" / "config.yaml").read_text())["vectors"] == path
    assert zoo.checkpoint.read_config(workdir / "run").info["vectors"] == 6
    assert torch.load(summary["checkpoint"], weights_only=True)["zoo_run"]["vectors"] == path


def test_parameters_of_fixed_and_trained_vectors(workdir, summary):
    net, vocab = zoo.load(workdir / "run").net, zoo.checkpoint.read_config(workdir / "run").info["vocab_size"]
    assert summary["parameters"]["embedding"] == 0
    assert zoo.count(net)["total"] == summary["parameters"]["total"]
    trained = fit(workdir, "trained", embedding="table(trained=true)")
    assert trained["parameters"]["embedding"] == 6 * vocab
    assert trained["parameters"]["total"] == summary["parameters"]["total"] + 6 * vocab


def test_the_real_twin_has_the_same_vectors(workdir, summary):
    real = fit(workdir, "real", algebra="real")
    assert real["parameters"]["total"] == summary["parameters"]["real_twin"] == real["parameters"]["real_twin"]


def test_the_model_does_not_need_the_file(workdir, summary, tmp_path):
    model = copytree(workdir / "run" / "model", tmp_path / "model")
    hidden = (workdir / "glove6.txt").rename(workdir / "hidden")
    try:
        assert zoo.load(model).evaluate() == pytest.approx(summary["metrics"], abs=1e-6)
        assert len(list(zoo.load(model).predict(["a good film", "a bad film"]))) == 2
    finally:
        hidden.rename(workdir / "glove6.txt")


# --- invalid input ---


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"data": "digits", "backbone": "vit(dim=16, depth=1, heads=1)"}, "mismatch", ["--vectors", "'digits'"]),
    ],
    ids=["images"],
)
def test_runs_that_do_not_support_vectors(workdir, changes, code, named):
    with raises(code, *named):
        fit(workdir, "refused", **changes)
    assert not (workdir / "refused").exists()


def test_a_network_without_a_word_embedding():
    with raises("unsupported", "--vectors"):
        load_vectors(torch.nn.Linear(2, 3), (torch.zeros(3, 2), torch.ones(3, dtype=torch.bool)))
