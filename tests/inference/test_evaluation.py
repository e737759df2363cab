"""Evaluation on data of third parties: options fixed by the model, options of the split, and where the rows come from."""

import json
import os
import signal
from shutil import copytree

import datasets
import pytest
from lightning.pytorch import Callback

import zoo
from tests.errors import raises
from tests.faults.hostile import seal
from zoo.cli import main
from zoo.data import ready
from zoo.data.options import options_of
from zoo.data.text import TextData, text
from zoo.errors import Interrupted

TRAINER = {"max_epochs": 1, "limit_train_batches": 3, "accelerator": "cpu", "enable_progress_bar": False}


class Reviews(TextData):
    """Texts in a folder, with an option `alphabet` that determines their tokens."""

    model_options = (*TextData.model_options, "alphabet")
    source_options = ("folder", "part")


@options_of(TextData)
def reviews(folder: str, part: int = 1, alphabet: str = "latin", **options) -> TextData:
    """Reviews."""
    splits = text(f"{folder}/{part}.tsv")._splits
    return Reviews(splits, "text_classification", **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("evaluation")
    corpus(folder / "1.tsv", "text", 60)
    corpus(folder / "2.tsv", "text", 60, seed=1)
    zoo.register("datasets", "reviews", reviews)
    yield folder
    zoo.registry.unregister("datasets", "reviews")


@pytest.fixture(scope="module")
def model(place) -> zoo.Model:
    run, data = str(place / "run"), f"reviews(folder='{place}', alphabet=greek)"
    zoo.fit(backbone="fasttext(dim=8, hidden=8)", algebra="real", data=data, run_dir=run, trainer=TRAINER)
    return zoo.load(run)


def test_libraries_print_nothing(model, capfd, recwarn, caplog):
    with caplog.at_level("INFO"):
        model.evaluate()
    assert (*capfd.readouterr(), caplog.messages, [str(warning.message) for warning in recwarn]) == ("", "", [], [])


def test_options_that_determine_the_tokens_are_fixed_by_the_model(model, place):
    for option in ("alphabet=latin", "min_count=2"):
        with raises("invalid", option.partition("=")[0], "tokenizer"):
            model.evaluate(f"reviews(folder='{place}', {option})")


def test_the_test_split_of_the_training_data_and_all_rows_of_other_data_are_used(model, place):
    """`source_options` of the data module tell whether the data are the training data."""
    expected = model.evaluate()
    for more in ("max_length=500", "alphabet=greek"):
        assert model.evaluate(f"reviews(folder='{place}/../{place.name}', {more})") == pytest.approx(expected)
    data = ready(text(str(place / "2.tsv")))
    rows = [row for table in data.splits.values() for row in zip(table.texts[0], table.labels, strict=True)]
    predictions = model.predict([words for words, _ in rows])
    right = sum(row["label"] == label for row, (_, label) in zip(predictions, rows, strict=True))
    assert model.evaluate(f"reviews(folder='{place}', part=2)")["accuracy"] == pytest.approx(right / len(rows))


def test_the_fold_of_the_training_is_used(place, capsys):
    """Other folds contain training rows."""
    run, path = str(place / "fold"), place / "2.tsv"
    trainer = TRAINER | {"max_epochs": 3}
    zoo.fit(backbone="fasttext(dim=8)", algebra="real", data=f"text(path='{path}', fold=3)", run_dir=run, trainer=trainer)
    model = zoo.load(run)
    assert model.evaluate(f"text(path='{path}', max_length=500)") == model.evaluate()
    assert model.evaluate(f"text(path='{path}', fold=3, val=0.1)") == model.evaluate()
    assert model.evaluate(f"text(path='{path}', val=0.3)") == model.evaluate()  # the test split is drawn first
    for option, split in (("fold=0", "test"), ("folds=5", "test"), ("val=0.2", "val")):
        with raises("invalid", option, "training rows"):
            model.evaluate(f"text(path='{path}', {option})", split)
    assert capsys.readouterr().err == ""
    before = path.read_text()
    path.write_text(before + before.splitlines()[-1] + "\n")
    try:
        model.evaluate()
    finally:
        path.write_text(before)
    assert "the data have changed since the training" in capsys.readouterr().err


def test_evaluation_needs_a_batch(model, place):
    with raises("invalid", "limit_test_batches=0"):
        model.evaluate(trainer={"limit_test_batches": 0})
    run, trainer = str(place / "untested"), TRAINER | {"limit_test_batches": 0}
    assert zoo.fit(backbone="linear", algebra="real", data="hamilton(rows=200)", run_dir=run, trainer=trainer)["metrics"] == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_the_evaluation(model, number):
    class Send(Callback):
        def on_test_batch_start(self, *_):
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match="interrupted") as error:
        model.evaluate(batch_size=1, trainer={"callbacks": [Send()], "accelerator": "cpu", "enable_progress_bar": False})
    assert error.value.signum == number


def test_the_data_of_a_downloaded_model_are_not_downloaded_automatically(model, place, tmp_path, monkeypatch, capsys):
    """The configuration of a downloaded model is untrusted; that of a run folder and --data are not."""
    folder = copytree(place / "run" / "model", tmp_path / "downloaded" / "x" / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"data": "mr"}))
    seal(folder)
    asked, name = [], "cornell-movie-review-data/rotten_tomatoes"
    monkeypatch.setattr(datasets, "load_dataset", lambda repository, *_, **__: asked.append(repository) or {})
    said = f"zoo: '{folder}' was trained on mr, which may have to be downloaded: confirm it with --data mr\n"
    for command in ("test", "prune"):
        assert (main([command, str(folder)]), capsys.readouterr().err, asked) == (2, said, [])
    assert (main(["test", str(folder), "--data", "mr"]), asked) == (2, [name])
    (tmp_path / "downloaded" / "config.yaml").touch()
    assert (main(["test", str(folder)]), asked) == (2, [name, name])
