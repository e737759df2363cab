"""Prediction from texts, files and standard input; evaluation on data of third parties and options of the split."""

import io
import json
import os
import signal
from shutil import copytree

import datasets
import numpy as np
import pytest
import torch
from lightning.pytorch import Callback

import zoo
from tests.errors import raises
from tests.faults.hostile import seal
from zoo.atomic import write_json
from zoo.checkpoint.manifest import file_record, read_json, sealed
from zoo.cli import main
from zoo.data import ready
from zoo.data.text import TextData, pairs, ranking, text
from zoo.errors import Interrupted
from zoo.registry import passes_options_to

BATCH = 64
TRAINER = {"max_epochs": 3, "accelerator": "cpu", "enable_progress_bar": False}


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus):
    """A text model and a pair model with dropout, attention and positions, so that mistakes with padding show."""
    folder = tmp_path_factory.mktemp("predict")
    nets = {"text": "transformer(dim=8, depth=1, heads=2, ffn=8, positions=learned)", "pairs": "decomposable_attention(dim=8)"}
    for kind, backbone in nets.items():
        data = f"{kind}(path='{corpus(folder / f'{kind}.tsv', kind)}')"
        options = {"run_dir": str(folder / kind), "trainer": TRAINER, "optimizer": {"lr": 0.05}}
        zoo.fit(backbone=backbone, algebra="quaternion", data=data, **options)
    return folder


@pytest.fixture
def run(place):
    return place / "text"


@pytest.fixture
def lines(place):
    return [line.split("\t")[0] for line in (place / "text.tsv").read_text().splitlines()[1:]]


def predict(run, inputs, stdin=None, **options):
    return zoo.load(run).predict_iter(inputs, stdin=stdin, **options)


def stdin(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="ascii")


def probabilities(run, words) -> torch.Tensor:
    """Probabilities of a single text without padding."""
    tokenizer = ready(text(str(run.parent / "text.tsv"))).tokenizer
    with torch.no_grad():
        return zoo.load(run).net(tokenizer.encode([words]).padded()).softmax(-1)[0]


# --- sources of texts ---


def test_predictions_equal_those_of_the_network(run, lines):
    for row in predict(run, lines[:8]):
        expected = probabilities(run, row["text"])
        assert row["label"] == ("no", "yes")[int(expected.argmax())]
        assert row["probability"] == pytest.approx(float(expected.max()), abs=2e-6)
    assert {row["label"] for row in predict(run, lines)} == {"no", "yes"}


def test_texts_files_and_standard_input_have_the_same_predictions(run, lines, tmp_path):
    expected = list(predict(run, lines))
    assert [row["text"] for row in expected] == lines
    file = tmp_path / "lines.txt"
    for content in ("\n".join(lines), "".join(f"{line}\n" for line in lines), "".join(f"{line}\r\n" for line in lines)):
        file.write_bytes(content.encode())
        assert list(predict(run, [file])) == expected
        assert list(predict(run, ["-"], stdin(file.read_bytes()))) == expected


def test_only_a_line_feed_ends_a_line(run, tmp_path):
    (tmp_path / "lines").write_bytes("a good\x85film\na\u2028plot\nit\x0cis\n".encode())
    assert [row["text"] for row in predict(run, [tmp_path / "lines"])] == ["a good\x85film", "a\u2028plot", "it\x0cis"]


def test_a_byte_order_mark_is_ignored(run, tmp_path):
    (tmp_path / "lines").write_bytes(b"\xef\xbb\xbfa good film\n")
    assert [row["text"] for row in predict(run, [tmp_path / "lines"])] == ["a good film"]
    assert [row["text"] for row in predict(run, ["-"], stdin(b"\xef\xbb\xbfa good film"))] == ["a good film"]


# --- batches ---


def test_a_prediction_does_not_depend_on_the_other_lines(run, lines):
    """Neither on their lengths, number and order, nor on the end of a batch."""
    many = [lines[i % len(lines)] for i in range(2 * BATCH + 3)]
    assert len({len(line.split()) for line in many}) > 3
    alone = {line: next(iter(predict(run, [line])))["probability"] for line in lines}
    for order in (many, many[::-1]):
        rows = list(predict(run, order))
        assert [row["text"] for row in rows] == order
        assert [row["probability"] for row in rows] == pytest.approx([alone[line] for line in order], abs=2e-6)


# --- pairs ---


def test_pairs_as_arguments_and_separated_by_a_tab(place, tmp_path):
    rows = [line.split("\t")[:2] for line in (place / "pairs.tsv").read_text().splitlines()[1:]]
    (tmp_path / "two").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    predictions = list(predict(place / "pairs", [tmp_path / "two"]))
    assert predictions == list(predict(place / "pairs", [side for row in rows for side in row]))
    assert predictions == list(predict(place / "pairs", ["-"], stdin((tmp_path / "two").read_bytes())))
    tokenizer, net = ready(pairs(str(place / "pairs.tsv"))).tokenizer, zoo.load(place / "pairs").net
    for row, (first, second) in zip(predictions, rows, strict=True):
        assert (row["first"], row["second"]) == (first, second)
        with torch.no_grad():
            expected = net(tokenizer.encode([first]).padded(), tokenizer.encode([second]).padded()).softmax(-1)[0]
        assert row["label"] == ("other", "same")[int(expected.argmax())]
        assert row["probability"] == pytest.approx(float(expected.max()), abs=2e-6)


def test_a_ranking_model_predicts_the_relevance_of_an_answer(corpus, tmp_path):
    data = f"ranking(path='{corpus(tmp_path / 'ranking.tsv', 'ranking')}')"
    zoo.fit(backbone="fasttext(dim=8, hidden=8)", algebra="real", data=data, run_dir=str(tmp_path / "run"), trainer=TRAINER)
    question, *_ = (tmp_path / "ranking.tsv").read_text().splitlines()[1].split("\t")
    (row,) = predict(tmp_path / "run", [question, "an answer"])
    assert row.keys() == {"question", "answer", "relevance"}
    tokenizer = ready(ranking(str(tmp_path / "ranking.tsv"))).tokenizer
    with torch.no_grad():
        expected = zoo.load(tmp_path / "run").net(*(tokenizer.encode([side]).padded() for side in (question, "an answer")))
    assert row["relevance"] == pytest.approx(expected.softmax(-1)[0, 1].item(), abs=1e-5)


# --- invalid input ---


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_every_text_has_a_prediction_or_a_reason_in_order(run, lines, batch_size):
    """The predictions of the others do not change."""
    bad = {
        2: "",
        3: "  ",
        5: None,
        9: float("nan"),
        10: ("a", "b"),
        11: "x\udcff",
        12: "film " * 40,
        14: "no.txt",
    }
    inputs = [bad.get(i, line) for i, line in enumerate(lines[:16])]
    model, good = zoo.load(run), [line for i, line in enumerate(lines[:16]) if i not in bad]
    rows = model.predict(inputs, batch_size=batch_size)
    assert len(rows) == 16
    assert {i for i, row in enumerate(rows) if "error" in row} == bad.keys()
    predictions = [row for row in rows if "error" not in row]
    assert predictions == model.predict(inputs, batch_size=batch_size, on_bad_rows="skip")
    expected = model.predict(good)
    assert [row["text"] for row in predictions] == good
    assert [row["label"] for row in predictions] == [row["label"] for row in expected]
    assert [row["probability"] for row in predictions] == pytest.approx([row["probability"] for row in expected], abs=2e-6)
    assert all(f"input {i}" in rows[i]["error"] for i in bad if i != 14)
    assert (rows[2]["text"], "empty text" in rows[2]["error"], "40 tokens" in rows[12]["error"]) == ("", True, True)
    assert rows[14]["error"] == "file 'no.txt' does not exist"
    with raises("invalid", "input 2", "empty text"):
        model.predict(inputs, batch_size=batch_size, on_bad_rows="error")
    with raises("invalid", "input 0", "empty text"):
        model.predict(["", None])
    with raises("invalid", "on_bad_rows='drop'"):
        model.predict(inputs, on_bad_rows="drop")


def test_arrays_and_series_of_texts(run, lines):
    model = zoo.load(run)
    expected = model.predict(lines[:3])
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame({"other": lines[:3]}), pandas.DataFrame({"label": [1, 2, 3], "text": lines[:3]})]
    arrays = [np.array(lines[:3]), list(np.array(lines[:3])), np.array(lines[:3], object)]
    for texts in (*arrays, pandas.Series(lines[:3]), *frames):
        assert model.predict(texts) == expected
    with raises("invalid", "input 0: got 2 texts, expected one"):
        model.predict(frames[1].rename(columns={"text": "review"}).astype(str))


@pytest.mark.parametrize(
    ("kind", "content", "code", "location", "value"),
    [
        ("text", b"a\n\nb\n", "invalid", ":2: ", "empty text"),
        ("text", b"a\nfilm \xff\n", "data", ":2: ", "UTF-8"),
        ("text", b"", "invalid", "", "empty"),
        ("text", b"a\nb\n" + b"film " * 40, "data", ":3: ", "40 tokens"),
        ("pairs", b"a\tb\na b\n", "invalid", ":2: ", "1 texts"),
    ],
)
def test_an_invalid_line_is_named(place, tmp_path, kind, content, code, location, value):
    (tmp_path / "lines").write_bytes(content)
    with raises(code, f"lines{location}", value):
        list(predict(place / kind, [tmp_path / "lines"], on_bad_rows="error"))
    with raises(code, f"standard input{location}", value):
        list(predict(place / kind, ["-"], stdin(content), on_bad_rows="error"))


def test_a_text_that_is_too_long_is_truncated_on_request(run):
    max_length = zoo.checkpoint.read_config(run).info["max_length"]
    words = ["film"] * max_length
    (whole,) = predict(run, [" ".join(words)])
    (truncated,) = predict(run, [" ".join([*words, "bad", "bad"])], truncation=True)
    assert truncated["probability"] == whole["probability"]
    with raises("data", max_length + 2, max_length):
        list(predict(run, [" ".join([*words, "bad", "bad"])]))


@pytest.mark.parametrize("name", ["../secret.json", "/etc/hostname", ""])
def test_a_tokenizer_outside_the_folder_is_not_loaded(run, name, tmp_path):
    model = copytree(run / "model", tmp_path / "model")
    (tmp_path / "secret.json").write_bytes((model / "tokenizer.json").read_bytes())
    config = read_json(model / "config.json")
    write_json(model / "config.json", config | {"info": config["info"] | {"tokenizer": name}})
    manifest = read_json(model / "manifest.json")
    manifest["files"]["config.json"] = file_record(model / "config.json")
    write_json(model / "manifest.json", sealed(manifest))
    with raises("corrupt", repr(name)):
        list(predict(model, ["a good film"]))


def test_files_that_are_not_lists_of_texts(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text("text,label\na,b\n")
    (tmp_path / "reviews.tsv").write_text("text\tlabel\na\tb\n")
    (tmp_path / "reviews.jsonl.gz").touch()
    (tmp_path / "folder").mkdir()
    for name in ("missing.tsv", "reviews.csv", "reviews.tsv", "reviews.jsonl.gz", "folder"):
        with raises("missing" if name in ("missing.tsv", "folder") else "invalid", name):
            list(predict(run, [name]))


SHORT = {"max_epochs": 1, "limit_train_batches": 3, "accelerator": "cpu", "enable_progress_bar": False}


class Reviews(TextData):
    """Texts in a folder, with an option `alphabet` that determines their tokens."""

    model_options = (*TextData.model_options, "alphabet")
    source_options = ("folder", "part")


@passes_options_to(TextData)
def reviews(folder: str, part: int = 1, alphabet: str = "latin", **options) -> TextData:
    """Reviews."""
    splits = text(f"{folder}/{part}.tsv")._splits
    return Reviews(splits, "text_classification", **options)


@pytest.fixture(scope="module")
def reviews_folder(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("evaluation")
    corpus(folder / "1.tsv", "text", 60)
    corpus(folder / "2.tsv", "text", 60, seed=1)
    zoo.register("datasets", "reviews", reviews)
    yield folder
    zoo.registry.unregister("datasets", "reviews")


@pytest.fixture(scope="module")
def model(reviews_folder) -> zoo.Model:
    run, data = str(reviews_folder / "run"), f"reviews(folder='{reviews_folder}', alphabet=greek)"
    zoo.fit(backbone="fasttext(dim=8, hidden=8)", algebra="real", data=data, run_dir=run, trainer=SHORT)
    return zoo.load(run)


def test_libraries_print_nothing(model, capfd, recwarn, caplog):
    with caplog.at_level("INFO"):
        model.evaluate()
    assert (*capfd.readouterr(), caplog.messages, [str(warning.message) for warning in recwarn]) == ("", "", [], [])


def test_options_that_determine_the_tokens_are_fixed_by_the_model(model, reviews_folder):
    for option in ("alphabet=latin", "min_count=2"):
        with raises("invalid", option.partition("=")[0], "tokenizer"):
            model.evaluate(f"reviews(folder='{reviews_folder}', {option})")


def test_the_test_split_of_the_training_data_and_all_rows_of_other_data_are_used(model, reviews_folder):
    """`source_options` of the data module tell whether the data are the training data."""
    expected = model.evaluate()
    for more in ("max_length=500", "alphabet=greek"):
        assert model.evaluate(f"reviews(folder='{reviews_folder}/../{reviews_folder.name}', {more})") == pytest.approx(expected)
    data = ready(text(str(reviews_folder / "2.tsv")))
    rows = [row for table in data.splits.values() for row in zip(table.texts[0], table.labels, strict=True)]
    predictions = model.predict([words for words, _ in rows])
    right = sum(row["label"] == label for row, (_, label) in zip(predictions, rows, strict=True))
    assert model.evaluate(f"reviews(folder='{reviews_folder}', part=2)")["accuracy"] == pytest.approx(right / len(rows))


def test_the_fold_of_the_training_is_used(reviews_folder, capsys):
    """Other folds contain training rows."""
    run, path = str(reviews_folder / "fold"), reviews_folder / "2.tsv"
    trainer = SHORT | {"max_epochs": 3}
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


def test_evaluation_needs_a_batch(model, reviews_folder):
    with raises("invalid", "limit_test_batches=0"):
        model.evaluate(trainer={"limit_test_batches": 0})
    run, trainer = str(reviews_folder / "untested"), SHORT | {"limit_test_batches": 0}
    assert zoo.fit(backbone="linear", algebra="real", data="hamilton(rows=200)", run_dir=run, trainer=trainer)["metrics"] == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_the_evaluation(model, number):
    class Send(Callback):
        def on_test_batch_start(self, *_):
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match="interrupted") as error:
        model.evaluate(batch_size=1, trainer={"callbacks": [Send()], "accelerator": "cpu", "enable_progress_bar": False})
    assert error.value.signum == number


def test_the_data_of_a_downloaded_model_are_not_downloaded_automatically(model, reviews_folder, tmp_path, monkeypatch, capsys):
    """The configuration of a downloaded model is untrusted; that of a run folder and --data are not."""
    folder = copytree(reviews_folder / "run" / "model", tmp_path / "downloaded" / "x" / "model")
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
