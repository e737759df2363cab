"""Options given in Python are checked like flags: one line says which one, and what it should be."""

from pathlib import Path

import pytest

import zoo
from zoo.errors import InputError
from zoo.training.options import Fit, Optimizer, build

NAMES = {"backbone": "vit", "algebra": "real"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "1"}, "seed='1' must be a whole number"),
        ({"optimizer": {"lr": "0.1"}}, "lr='0.1' must be a number or none"),
        ({"optimizer": "sgd"}, "optimizer='sgd' must be a dict"),
        ({"schedule": {"warmup": "x"}}, "warmup='x' must be a number"),
        ({"schedule": {"floor": None}}, "floor=None must be a number"),
        ({"optimizer": {"eps": "small"}}, "eps='small' must be a number or none"),
        ({"ema": True}, "ema=True must be a number or none"),
        ({"keep": 2.0}, r"keep=2\.0 must be a whole number"),
        ({"trainer": None}, "trainer=None must be a dict"),
        ({"algebra": 3}, "algebra=3 must be text"),
        ({"embedding": 3}, "embedding=3 must be text or none"),
        ({"vectors": True}, "vectors=True must be text or none"),
        ({"folds": 2.5}, r"folds=2\.5 must be a whole number or none"),
        ({"folds": "10"}, "folds='10' must be a whole number or none"),
        ({"fold": 3}, "unknown option 'fold': did you mean 'folds'"),
        ({"optimiser": {}}, "unknown option 'optimiser': did you mean 'optimizer'"),
        ({"optimizer": {"learning_rate": 1.0}}, "unknown option 'learning_rate'"),
    ],
    ids=str,
)
def test_a_value_of_another_kind(change, message):
    with pytest.raises(InputError, match=message):
        zoo.fit(**(NAMES | change))


def test_a_missing_option_is_named():
    with pytest.raises(InputError, match="algebra"):
        build(Fit, {"backbone": "vit"})


def test_options_that_are_built_already_and_paths_are_taken():
    made = build(Fit, NAMES | {"optimizer": Optimizer(lr=0.5), "run_dir": Path("here")})
    assert (made.optimizer.lr, made.run_dir) == (0.5, "here")


def test_a_file_of_vectors_may_be_a_path():
    assert build(Fit, NAMES | {"vectors": Path("glove.txt")}).vectors == "glove.txt"


def test_an_embedding_is_checked_before_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="unknown embedding 'tabel': did you mean 'table'"):
        zoo.fit(**NAMES | {"backbone": "fasttext", "embedding": "tabel"})
    assert list(tmp_path.iterdir()) == []


def test_an_algebra_stands_for_its_spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="unknown data set 'nothing'"):
        zoo.fit(backbone="vit", algebra=zoo.algebra("quaternion"), data="nothing")


def test_an_optimizer_that_cannot_work_here_is_refused_before_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"(optimizer 'bnbadamw' does not work here|unknown optimizer 'bnbadamw')"):
        zoo.fit(**NAMES, optimizer={"name": "bnbadamw"})
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_numbers_becomes_what_files_and_flags_give():
    assert build(Fit, NAMES | {"optimizer": {"betas": [0.9, 0.99]}}).optimizer.betas == (0.9, 0.99)


def test_betas_that_are_none_are_refused_before_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for betas in ("high", [0.9], 3):
        with pytest.raises(InputError, match=r"betas="):
            zoo.fit(**NAMES, optimizer={"betas": betas})
    assert list(tmp_path.iterdir()) == []
