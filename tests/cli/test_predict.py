"""``zoo predict`` with texts and images, and other commands with text models."""

import io
import json
import os
import subprocess
import sys

import pytest
from PIL import Image

import zoo

TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}


@pytest.fixture(scope="module")
def root(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("predict")
    for kind, backbone in (
        ("text", "fasttext(dim=8, hidden=8, positions=learned)"),
        ("pairs", "decomposable_attention(dim=8)"),
    ):
        data = f"{kind}(path='{corpus(folder / f'{kind}.tsv', kind)}')"
        zoo.fit(backbone=backbone, algebra="quaternion", data=data, run_dir=str(folder / kind), trainer=TRAINER)
    return folder


@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_output_as_columns_or_json(call, root, kind):
    texts = ("a good\N{SNOWMAN} film", "a bad plot")
    code, out, err = call("predict", root / kind, *texts)
    assert (code, err) == (0, "")
    inputs = [list(texts)] if kind == "pairs" else [[text] for text in texts]
    labels = ("same", "other") if kind == "pairs" else ("no", "yes")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[:-2] for row in rows] == inputs
    assert all(label in labels and 0.5 <= float(share) <= 1 and len(share) == 6 for *_, label, share in rows)
    names = ["first", "second"] if kind == "pairs" else ["text"]
    json_rows = [json.loads(line) for line in call("predict", root / kind, *texts, "--json").out.splitlines()]
    assert [list(row) for row in json_rows] == [[*names, "label", "probability"]] * len(rows)
    assert [[row[name] for name in names] for row in json_rows] == inputs


def test_standard_input_and_files_are_equivalent(call, root, tmp_path):
    content = "a good film\na bad plot, caf\N{LATIN SMALL LETTER E WITH ACUTE}\n".encode()
    (tmp_path / "lines.txt").write_bytes(content)
    expected = call("predict", root / "text", "lines.txt")
    assert (expected.code, len(expected.out.splitlines())) == (0, 2)
    # As a separate process, with input that is not in the encoding of the locale:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    words = [sys.executable, "-m", "zoo", "predict", str(root / "text")]
    done = subprocess.run(words, input=content, capture_output=True, check=False, timeout=120, env=environment)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, expected.out, b"")


def test_predict_does_not_wait_for_a_terminal(refused, root, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    for stdin in (terminal, None):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert "missing INPUT" in refused("predict", root / "text")


def test_rows_before_an_invalid_line_are_printed(call, root, tmp_path):
    """The error names the invalid line."""
    (tmp_path / "lines.txt").write_text("a film\n" * 64 + "\n")
    code, out, err = call("predict", root / "text", "lines.txt")
    assert (code, len(out.splitlines())) == (2, 64)
    assert "lines.txt:65" in err


def test_unreadable_images_in_a_folder_are_skipped(tmp_path, call):
    for number, name in enumerate(("a.png", "c.png")):
        Image.new("L", (8, 8), number * 200).save(tmp_path / name)
    (tmp_path / "b.png").write_bytes(b"nothing")
    code, out, err = call("predict", "vit-digits-quaternion", str(tmp_path), "--top", "2")
    assert (code, [line.split("\t")[0] for line in out.splitlines()]) == (1, [str(tmp_path / "a.png"), str(tmp_path / "c.png")])
    assert all(len(line.split("\t")) == 5 for line in out.splitlines())
    assert err.count("\n") == 1
    assert str(tmp_path / "b.png") in err
    assert call("predict", "vit-digits-quaternion", str(tmp_path / "b.png")).code == 2
    missing = call("predict", "vit-digits-quaternion", str(tmp_path / "d.png"))
    assert (missing.code, missing.err) == (2, f"zoo: {tmp_path / 'd.png'}: not a readable image (No such file or directory)\n")


# --- the other commands ---


def test_fit_suggests_the_next_commands(call, root):
    data = f"pairs(path='{root / 'pairs.tsv'}')"
    words = ("fit", "--backbone", "fasttext(dim=8,hidden=8)", "--algebra", "complex", "--data", data)
    words = (*words, "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu")
    code, out, err = call(*words, "--run-dir", "one")
    assert (code, err) == (0, "")
    assert "test accuracy" in out
    assert [line for line in out.splitlines() if 'zoo predict one "one text" "another"' in line]
    (line,) = [line for line in out.splitlines() if "zoo test" in line]
    assert call(*line.partition("#")[0].split()[1:]).code == 0
