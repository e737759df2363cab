"""Measuring a model on data of a third party, whose module says which options a model decides and which say where rows are."""

import json
import os
import signal
from shutil import copytree

import pytest
import torch
from lightning.pytorch import Callback
from torch.utils.data import TensorDataset
from zoo_datasets import text_sets

import zoo
from tests.faults.hostile import seal
from zoo.cli import main
from zoo.data import DataModule, ready
from zoo.data.info import VectorInfo
from zoo.data.text import TextData, text_options
from zoo.data.text.local import text
from zoo.errors import InputError, Interrupted

TRAINER = {"max_epochs": 1, "limit_train_batches": 3, "accelerator": "cpu", "enable_progress_bar": False}


class Reviews(TextData):
    """Texts in a folder of their own kind, of which an option `alphabet` decides how they become tokens."""

    model_options = (*TextData.model_options, "alphabet")
    source_options = ("folder", "part")


@text_options
def reviews(folder: str, part: int = 1, alphabet: str = "latin", **options) -> TextData:
    """Reviews."""
    splits = text(f"{folder}/{part}.tsv")._splits
    return Reviews(splits, "text_classification", **options)


class Waves(DataModule[VectorInfo]):
    """Vectors sampled at a rate that a trained model decides."""

    task = "regression"
    model_options = ("rate",)

    def __init__(self, rate: int, **options) -> None:
        super().__init__(**options)
        self.rate = rate

    def load(self) -> VectorInfo:
        return VectorInfo(in_features=self.rate, out_features=1, sizes=dict.fromkeys(("train", "val", "test"), 40))

    def dataset(self, split):
        x = torch.arange(40.0 * self.rate).view(40, self.rate).sin()
        return TensorDataset(x, x[:, :1])


def waves(path: str = "a", rate: int = 8, batch_size: int = 8, num_workers: int = 0, seed: int = 0) -> Waves:
    """Waves."""
    return Waves(rate, batch_size=batch_size, num_workers=num_workers, seed=seed)


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("evaluation")
    corpus(folder / "1.tsv", "text", 60)
    corpus(folder / "2.tsv", "text", 60, seed=1)
    zoo.register("datasets", "reviews", reviews)
    zoo.register("datasets", "waves", waves)
    yield folder
    zoo.registry.unregister("datasets", "reviews")
    zoo.registry.unregister("datasets", "waves")


@pytest.fixture(scope="module")
def model(place) -> zoo.Model:
    run, data = str(place / "run"), f"reviews(folder='{place}')"
    zoo.fit(backbone="fasttext(dim=8, hidden=8)", algebra="real", data=data, run_dir=run, trainer=TRAINER)
    return zoo.load(run)


def test_its_options_that_a_model_decides_are_refused(model, place):
    for option in ("alphabet=greek", "min_count=2"):
        wanted = f"sets {option.partition('=')[0]}, but the model has a tokenizer of its own: leave that out"
        with pytest.raises(InputError, match=wanted):
            model.evaluate(f"reviews(folder='{place}', {option})")


def test_other_rows_are_measured_whole_and_the_same_rows_held_out(model, place):
    """Which of the two they are, the options say that the data module names."""
    own = model.evaluate()
    assert model.evaluate(f"reviews(folder='{place}/../{place.name}', max_length=500)") == pytest.approx(own)
    data = ready(text(str(place / "2.tsv")))
    rows = [row for table in data.splits.values() for row in zip(table.texts[0], table.labels, strict=True)]
    said = model.predict([words for words, _ in rows])
    right = sum(row["label"] == label for row, (_, label) in zip(said, rows, strict=True))
    found = model.evaluate(f"reviews(folder='{place}', part=2)")
    assert found["accuracy"] == pytest.approx(right / len(rows))


def test_the_fold_of_the_training_is_measured(place, capsys):
    """Another one would hold rows that the model was trained on."""
    run, path = str(place / "fold"), place / "2.tsv"
    trainer = TRAINER | {"max_epochs": 3}
    zoo.fit(backbone="fasttext(dim=8)", algebra="real", data=f"text(path='{path}', fold=3)", run_dir=run, trainer=trainer)
    model = zoo.load(run)
    assert model.evaluate(f"text(path='{path}', max_length=500)") == model.evaluate()
    assert model.evaluate(f"text(path='{path}', fold=3, val=0.1)") == model.evaluate()
    assert model.evaluate(f"text(path='{path}', val=0.3)") == model.evaluate()  # what is tested is cut before
    for option, split in (("fold=0", "test"), ("folds=5", "test"), ("val=0.2", "val")):
        with pytest.raises(InputError, match=r"rows that it has seen would be measured: leave \w+ out"):
            model.evaluate(f"text(path='{path}', {option})", split)
    assert capsys.readouterr().err == ""
    before = path.read_text()
    path.write_text(before + before.splitlines()[-1] + "\n")
    try:
        model.evaluate()
    finally:
        path.write_text(before)
    assert "the data have changed since the training" in capsys.readouterr().err


def test_no_batches_are_no_measurement(model, place):
    with pytest.raises(InputError, match="limit_test_batches=0 leaves nothing to measure"):
        model.evaluate(trainer={"limit_test_batches": 0})
    run, trainer = str(place / "untested"), TRAINER | {"limit_test_batches": 0}
    assert zoo.fit(backbone="linear", algebra="real", data="waves", run_dir=run, trainer=trainer)["metrics"] == {}


def test_an_option_of_other_data_comes_from_the_data_of_the_model(place):
    """Without a tokenizer too: what the spec leaves out is as in training, and another value is refused."""
    zoo.fit(backbone="linear", algebra="real", data="waves(rate=4)", run_dir=str(place / "waves"), trainer=TRAINER)
    model = zoo.load(place / "waves")
    assert model.evaluate("waves(path=b)") == model.evaluate("waves(path=b, rate=4)") == model.evaluate()
    with pytest.raises(InputError, match=r"sets rate, but the model has a value of its own: leave that out"):
        model.evaluate("waves(rate=8)")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_is_named(model, number):
    class Send(Callback):
        def on_test_batch_start(self, *_):
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match="stopped before everything was measured") as stop:
        model.evaluate(batch_size=1, trainer={"callbacks": [Send()], "accelerator": "cpu", "enable_progress_bar": False})
    assert stop.value.signum == number


def test_a_model_without_its_run_fetches_nothing_by_itself(model, place, tmp_path, monkeypatch, capsys):
    """What its configuration names may be a stranger's choice; a run folder is the user's own, and --data says it."""
    folder = copytree(place / "run" / "model", tmp_path / "downloaded" / "x" / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"data": "mr"}))
    seal(folder)
    asked = []
    monkeypatch.setattr(text_sets, "load", lambda name, *_, **__: asked.append(name) or {})
    said = f"zoo: '{folder}' was trained on mr, which may have to be downloaded: confirm it with --data mr\n"
    for command in ("test", "prune"):
        assert (main([command, str(folder)]), capsys.readouterr().err, asked) == (2, said, [])
    assert (main(["test", str(folder), "--data", "mr"]), asked) == (2, ["mr"])
    (tmp_path / "downloaded" / "config.yaml").touch()
    assert (main(["test", str(folder)]), asked) == (2, ["mr", "mr"])
