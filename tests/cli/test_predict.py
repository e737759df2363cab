"""``zoo predict`` on texts, and the other commands on a run of texts."""

import io
import json
import os
import subprocess
import sys

import pytest
from PIL import Image

import zoo
from zoo.cli.models import rows_in

TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("predict")
    for kind, backbone in (
        ("text", "fasttext(dim=8, hidden=8, positions=learned)"),
        ("pairs", "decomposable_attention(dim=8)"),
    ):
        data = f"{kind}(path='{corpus(folder / f'{kind}.tsv', kind)}')"
        zoo.fit(backbone=backbone, algebra="quaternion", data=data, run_dir=str(folder / kind), trainer=TRAINER)
    return folder


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_texts_are_columns(call, place):
    code, out, err = call("predict", place / "text", "a good film", "a bad plot")
    assert (code, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["a good film", "a bad plot"]
    assert all(row[1] in ("no", "yes") and 0.5 <= float(row[2]) <= 1 and len(row[2]) == 6 for row in rows)


def test_pairs_are_columns(call, place):
    code, out, _ = call("predict", place / "pairs", "a good film", "a bad plot")
    assert code == 0
    (line,) = out.splitlines()
    first, second, label, probability = line.split("\t")
    assert (first, second) == ("a good film", "a bad plot")
    assert label in ("same", "other")
    assert 0.5 <= float(probability) <= 1


def test_json_lines(call, place):
    code, out, _ = call("predict", place / "text", "a good\tfilm \N{SNOWMAN}", "x", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [set(row) for row in rows] == [{"text", "label", "probability"}] * 2
    assert rows[0]["text"] == "a good\tfilm \N{SNOWMAN}"
    (row,) = map(json.loads, call("predict", place / "pairs", "x", "y", "--json").out.splitlines())
    assert list(row) == ["first", "second", "label", "probability"]


def test_standard_input_and_files_say_the_same(call, place, pipe, tmp_path):
    content = "a good film\na bad plot, caf\N{LATIN SMALL LETTER E WITH ACUTE}\n".encode()
    (tmp_path / "lines.txt").write_bytes(content)
    expected = call("predict", place / "text", "lines.txt")
    assert (expected.code, len(expected.out.splitlines())) == (0, 2)
    for words in ((), ("-",)):
        pipe(content)
        assert call("predict", place / "text", *words) == expected
    assert call("predict", place / "text", "lines.txt", "lines.txt").out == expected.out * 2


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(refused, place, tmp_path):
    for name in ("lines", "lines.txt"):
        os.mkfifo(tmp_path / name)
        assert refused("predict", place / "text", name).startswith(f"{name}: this is a pipe or a device, not a file")


def test_a_terminal_is_not_waited_for(refused, place, monkeypatch):
    for stdin in (Terminal(), None):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert "nothing to predict: give image files, a text in quotes, or a file" in refused("predict", place / "text")


def test_truncate(call, refused, place):
    words = "film " * 30
    line = refused("predict", place / "text", words)
    assert "30 tokens, the model reads at most" in line
    code, out, err = call("predict", place / "text", words, "--truncate")
    assert (code, err) == (0, "")
    assert out.startswith(words)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a film\n\nb", "lines.txt:2: empty text"),
        (b"a film\n\xff\n", "lines.txt:2: "),
        (b"", "lines.txt is empty"),
        (b"a\n" + b"film " * 30, "lines.txt:2: 30 tokens"),
    ],
    ids=["empty", "bytes", "nothing", "long"],
)
def test_a_bad_line(refused, place, pipe, tmp_path, content, said):
    (tmp_path / "lines.txt").write_bytes(content)
    assert said in refused("predict", place / "text", "lines.txt")
    pipe(content)
    assert said.replace("lines.txt", "standard input") in refused("predict", place / "text")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"a\tb\na b\n", "lines.txt:2: 1 columns"), (b"a\tb\n\tb\n", "lines.txt:2: empty text")],
    ids=["tab", "half"],
)
def test_a_bad_pair(refused, place, tmp_path, content, said):
    (tmp_path / "lines.txt").write_bytes(content)
    assert said in refused("predict", place / "pairs", "lines.txt")
    assert "no second one for 'alone'" in refused("predict", place / "pairs", "alone")


def test_the_good_lines_before_a_bad_batch_are_not_lost(call, place, tmp_path):
    """They are printed as soon as they are known; the line that stops it is named."""
    (tmp_path / "lines.txt").write_text("a film\n" * 64 + "\n")
    code, out, err = call("predict", place / "text", "lines.txt")
    assert (code, len(out.splitlines())) == (2, 64)
    assert "lines.txt:65: empty text" in err


def test_through_a_real_pipe(place):
    """As a shell does it, with bytes that are not the locale's."""
    words = [sys.executable, "-m", "zoo", "predict", str(place / "text")]
    done = subprocess.run(
        words,
        input="a good film\ncaf\N{LATIN SMALL LETTER E WITH ACUTE}\n".encode(),
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.split("\t")[0] for line in done.stdout.decode().splitlines()] == [
        "a good film",
        "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    ]


# --- the other commands ---


def test_measuring(call, place):
    for command in ("test", "validate"):
        code, out, err = call(command, place / "pairs", "--json", "--trainer.accelerator", "cpu")
        assert (code, err) == (0, "")
        assert set(json.loads(out)) == {"loss", "accuracy", "f1", "auroc"}
    other = call("test", place / "text", "--data", f"text(path='{place / 'text.tsv'}', max_length=2)", "--json")
    assert other.code == 0


@pytest.mark.parametrize(
    ("backbone", "kind"),
    [
        ("fasttext(dim=8, hidden=8)", "text"),
        ("lstm(dim=8, hidden=8)", "pairs"),
        ("cnn(dim=8, filters=8)", "text"),
        ("transformer(dim=8, depth=1, heads=2, ffn=8)", "text"),
        ("decomposable_attention(dim=8)", "pairs"),
    ],
)
def test_info_counts_what_fit_trains(call, place, tmp_path, backbone, kind):
    data = f"{kind}(path='{place / f'{kind}.tsv'}')"
    words = ("--backbone", backbone, "--algebra", "quaternion", "--data", data)
    code, out, err = call("info", *words, "--json")
    assert (code, err) == (0, "")
    table = json.loads(out)
    options = {"backbone": backbone, "algebra": "quaternion", "data": data, "run_dir": str(tmp_path / "run")}
    made = zoo.fit(**options, trainer=TRAINER | {"limit_train_batches": 1, "max_epochs": 1})
    assert table["total"] == made["parameters"]
    assert sum(row["parameters"] for row in table["layers"]) == table["total"]["total"]
    code, out, _ = call("info", *words, "--scope", "attention")
    assert code == 0
    assert "of these in word tables: " in out
    embedded = json.loads(call("info", *words, "--embedding", "complex_order(frequency=dimension)", "--json").out)
    assert embedded["total"] != table["total"]
    assert embedded["total"]["real_twin"] != table["total"]["real_twin"]


def test_a_run_ends_with_what_to_do_next(call, place, tmp_path):
    data = f"pairs(path='{place / 'pairs.tsv'}')"
    words = ("fit", "--backbone", "fasttext(dim=8,hidden=8)", "--algebra", "complex", "--data", data)
    words = (*words, "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu")
    code, out, err = call(*words, "--run-dir", "one")
    assert (code, err) == (0, "")
    assert "test accuracy" in out
    (line,) = [line for line in out.splitlines() if "zoo predict" in line]
    assert '"one text" "another"' in line
    assert call("predict", "one", "one text", "another").code == 0
    code, out, err = call(*words, "--run-dir", "many", "--folds", "2")
    assert (code, err) == (0, "")
    mean, spread = next(line for line in out.splitlines() if "test accuracy" in line).split()[2::2]
    summary = json.loads((tmp_path / "many" / "summary.json").read_text())
    assert (mean, spread) == (f"{summary['metrics']['accuracy']:.4f}", f"{summary['std']['accuracy']:.4f}")
    (line,) = [line for line in out.splitlines() if "zoo test" in line]
    assert call(*line.partition("#")[0].split()[1:]).code == 0


def test_pictures_count_one_and_files_their_lines(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\n\n")
    (tmp_path / "lines.txt").write_bytes(b"one\ntwo\nthree\n")
    picture, lines = str(tmp_path / "picture.png"), str(tmp_path / "lines.txt")
    assert (rows_in([picture]), rows_in([lines]), rows_in([picture, lines])) == (1, 3, 4)
    assert rows_in([lines, "a text"]) is None
    assert rows_in(["a text " * 100]) is None


def test_an_unreadable_image_in_a_folder_does_not_stop_the_others(tmp_path, call):
    for number, name in enumerate(("a.png", "c.png")):
        Image.new("L", (8, 8), number * 200).save(tmp_path / name)
    (tmp_path / "b.png").write_bytes(b"nothing")
    code, out, err = call("predict", "vit-digits-quaternion", str(tmp_path), "--top", "2")
    assert (code, [line.split("\t")[0] for line in out.splitlines()]) == (1, [str(tmp_path / "a.png"), str(tmp_path / "c.png")])
    assert all(len(line.split("\t")) == 5 for line in out.splitlines())
    assert err.count("\n") == 1
    assert str(tmp_path / "b.png") in err
    assert call("predict", "vit-digits-quaternion", str(tmp_path / "b.png")).code == 2
