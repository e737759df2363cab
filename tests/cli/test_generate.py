"""``zoo generate`` and ``zoo predict``, and other commands with their models."""

import io
import json
import sys

import pytest
import yaml
from PIL import Image

import zoo
from tests.generation import SIZE
from zoo.cli import main
from zoo.tasks.options import Decoding

CPU = ("--trainer.accelerator", "cpu")
RUNS = ("gpt", "pairs")


@pytest.fixture(scope="module")
def root(generative_run):
    """The folder of the runs of this module."""
    for name in RUNS:
        folder = generative_run(name).parent
    return folder


@pytest.fixture(scope="module")
def models(root):
    return {name: zoo.load(root / name) for name in RUNS}


def samples(model: zoo.Model, prompt: str, count: int, **options) -> list[str]:
    return model.generate(prompt, count, **vars(Decoding(**options)))


@pytest.mark.parametrize(
    ("name", "prompt", "flags"),
    [
        ("gpt", "the café", {"length": 12, "seed": 4}),
        ("gpt", "the", {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.3, "length": 12, "seed": 9}),
        ("pairs", "six two one", {"beam": 3}),
    ],
)
def test_generate_prints_the_text_of_the_model(call, root, models, pipe, name, prompt, flags):
    """Language models print the prompt before the text; without a prompt they start with a newline."""
    words = ["generate", root / name, *(word for flag in flags.items() for word in (f"--{flag[0]}", flag[1]))]
    (text,) = samples(models[name], prompt or "\n", 1, **flags)
    expected = 0, ((prompt or "\n") if name == "gpt" else "") + text + "\n", ""
    assert call(*words, *(("--prompt", prompt) if prompt else ())) == expected
    if prompt:
        pipe(f"{prompt}\n".encode())
        assert call(*words, "--prompt", "-") == expected


@pytest.mark.parametrize("name", RUNS)
def test_several_texts(call, root, models, name):
    words = ("generate", root / name, "--prompt", "one" if name == "pairs" else "the", "--length", 4, "--temperature", 3)
    texts = samples(models[name], words[3], 3, length=4, temperature=3.0)
    shown = "" if name == "pairs" else "the"
    expected = "\n".join(f"--- {i}\n{shown}{text}\n" for i, text in enumerate(texts, 1))
    assert call(*words, "--num-samples", 3) == (0, expected, "")
    rows = call(*words, "--num-samples", 3, "--json").out.splitlines()
    assert [json.loads(row) for row in rows] == [{"prompt": words[3], "text": text} for text in texts]


def test_text_is_streamed(root, monkeypatch, models):
    shown: list[str] = []

    class Screen(io.StringIO):
        def flush(self) -> None:
            shown.append(self.getvalue())

    monkeypatch.setattr(sys, "stdout", Screen())
    assert main(["generate", str(root / "gpt"), "--prompt", "the", "--length", "9", "--temperature", "0"]) == 0
    (text,) = samples(models["gpt"], "the", 1, length=9, temperature=0.0)
    assert {"the" + text[:length] for length in range(10)} <= set(shown)


@pytest.mark.parametrize(
    ("name", "flags", "needles"),
    [
        ("gpt", ["--prompt", "the \N{SNOWMAN}"], ["'\N{SNOWMAN}'"]),
        ("gpt", ["--beam", "2", "--top-k", "3"], ["beam=2", "top_k=3"]),
    ],
)
def test_invalid_generate(refused, root, name, flags, needles):
    message = refused("generate", root / name, *flags)
    assert [needle for needle in needles if needle not in message] == []


def test_incompatible_task_and_data(refused, root):
    words = ("--backbone", f"transformer({SIZE})", "--algebra", "real", "--task")
    assert "'seq2seq'" in refused("fit", *words, "seq2sec")
    assert "'glosses(limit=60)'" in refused("fit", *words, "seq2seq", "--data", "glosses(limit=60)")
    assert "beam=0" in refused("fit", *words, "seq2seq", "--data", "glosses(task=seq2seq,limit=60)", *CPU, "--decoding.beam", 0)
    assert "beam=2" in refused("test", root / "pairs", "--decoding.beam", 2, "--decoding.temperature", 1, *CPU)
    assert "zoo generate" in refused("predict", root / "gpt", "the café")


# --- line by line ---


def test_predict_processes_files_line_by_line(call, root, models, pipe, tmp_path):
    content = b"one\n\ntwo three\n  \nsix"
    (tmp_path / "lines.txt").write_bytes(content)
    words = ("predict", root / "pairs", "lines.txt", "--beam", 2)
    first, second, third = models["pairs"].generative({"beam": 2}).generate(["one", "two three", "six"])
    assert call(*words) == (0, f"{first}\n\n{second}\n\n{third}\n", "")
    pipe(content)
    assert call("predict", root / "pairs", "--beam", 2).out == f"{first}\n\n{second}\n\n{third}\n"
    rows = [json.loads(row) for row in call(*words, "--json").out.splitlines()]
    assert [row["source"] for row in rows] == content.decode().split("\n")
    assert [row["target"] for row in rows] == [first, "", second, "", third]


# --- the other commands ---


def test_flags_override_the_decoding_options_of_the_run(call, root, tmp_path, monkeypatch):
    config = yaml.safe_load((root / "pairs/config.yaml").read_text())
    config |= {"decoding": {"beam": 3, "length": 4}, "run_dir": str(tmp_path / "beam")}
    config["trainer"]["max_epochs"] = 1
    zoo.fit(**config)
    used, configured = [], zoo.Model.configured

    def seen(model, *arguments):
        task = configured(model, *arguments)
        used.append(task.decoding)
        return task

    monkeypatch.setattr(zoo.Model, "configured", seen)
    (tmp_path / "short.yaml").write_text("decoding:\n  length: 2\n")
    for flags in ((), ("--decoding.beam", 1), ("-c", "short.yaml"), ("-c", "short.yaml", "--decoding.length", 3)):
        assert call("test", tmp_path / "beam", *flags, *CPU).code == 0
    assert [(options.beam, options.length) for options in used] == [(3, 4), (1, 4), (3, 2), (3, 3)]


def test_fit_suggests_generate_and_info_agrees(call, tmp_path):
    words = ("--backbone", f"transformer({SIZE})", "--algebra", "complex", "--data", "glosses(task=seq2seq,limit=60,vocab=400)")
    limits = ("--trainer.max_epochs", 1, "--trainer.limit_train_batches", 2, *CPU)
    code, out, err = call("fit", *words, *limits, "--run-dir", "run")
    assert (code, err) == (0, "")
    (suggestion,) = [row for row in out.splitlines() if "zoo generate" in row]
    assert suggestion.split("#")[0].strip() == 'zoo generate run --prompt "some text"'
    assert call("generate", "run", "--prompt", "some text", "--length", 4).code == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert json.loads(call("info", *words, "--json").out)["total"] == summary["parameters"]


TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}


@pytest.fixture(scope="module")
def texts_root(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("predict")
    for kind, backbone in (
        ("text", "fasttext(dim=8, hidden=8, positions=learned)"),
        ("pairs", "decomposable_attention(dim=8)"),
    ):
        data = f"{kind}(path='{corpus(folder / f'{kind}.tsv', kind)}')"
        zoo.fit(backbone=backbone, algebra="quaternion", data=data, run_dir=str(folder / kind), trainer=TRAINER)
    return folder


@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_output_as_columns_or_json(call, texts_root, kind):
    texts = ("a good\N{SNOWMAN} film", "a bad plot")
    code, out, err = call("predict", texts_root / kind, *texts)
    assert (code, err) == (0, "")
    inputs = [list(texts)] if kind == "pairs" else [[text] for text in texts]
    labels = ("same", "other") if kind == "pairs" else ("no", "yes")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[:-2] for row in rows] == inputs
    assert all(label in labels and 0.5 <= float(share) <= 1 and len(share) == 6 for *_, label, share in rows)
    names = ["first", "second"] if kind == "pairs" else ["text"]
    json_rows = [json.loads(line) for line in call("predict", texts_root / kind, *texts, "--json").out.splitlines()]
    assert [list(row) for row in json_rows] == [[*names, "label", "probability"]] * len(rows)
    assert [[row[name] for name in names] for row in json_rows] == inputs


def test_standard_input_and_files_are_equivalent(call, texts_root, pipe, tmp_path):
    """Standard input is UTF-8 whatever the locale is."""
    content = "a good film\na bad plot, caf\N{LATIN SMALL LETTER E WITH ACUTE}\n".encode()
    (tmp_path / "lines.txt").write_bytes(content)
    expected = call("predict", texts_root / "text", "lines.txt")
    assert (expected.code, len(expected.out.splitlines())) == (0, 2)
    pipe(content)
    assert call("predict", texts_root / "text") == expected


def test_predict_does_not_wait_for_a_terminal(refused, texts_root, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    for stdin in (terminal, None):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert "missing INPUT" in refused("predict", texts_root / "text")


@pytest.mark.parametrize(("policy", "code", "count"), [("report", 1, 66), ("skip", 0, 65), ("error", 2, 64)])
def test_an_invalid_line_is_reported_skipped_or_ends_the_prediction(call, texts_root, tmp_path, policy, code, count):
    (tmp_path / "lines.txt").write_text("a film\n" * 64 + "\n" + "a plot\n")
    words = ("predict", texts_root / "text", "lines.txt", *(() if policy == "report" else ("--on-bad-rows", policy)))
    found, out, err = call(*words)
    lines = out.splitlines()
    assert (found, len(lines)) == (code, count)
    reason = f"{tmp_path / 'lines.txt'}:65: empty text; remove it"
    assert err.endswith(f"{reason}\n".replace(f"{tmp_path}/", ""))
    if policy == "report":
        assert lines[64].endswith("error: lines.txt:65: empty text; remove it")
    else:
        assert "error" not in out
    if policy != "error":
        assert lines[-1].startswith("a plot\t")
        assert err.startswith("zoo: 1 of 66 inputs")
        rows = [json.loads(line) for line in call(*words, "--json").out.splitlines()]
        assert [row for row in rows if "error" in row] == [
            {"text": "", "error": "lines.txt:65: empty text; remove it"} for _ in range(policy == "report")
        ]


def test_unreadable_images_in_a_folder_are_reported(tmp_path, call):
    for number, name in enumerate(("a.png", "c.png")):
        Image.new("L", (8, 8), number * 200).save(tmp_path / name)
    (tmp_path / "b.png").write_bytes(b"nothing")
    (tmp_path / "._a.png").write_bytes(b"a resource fork")
    code, out, err = call("predict", "vit-digits-quaternion", str(tmp_path), "--top", "2")
    assert code == 1
    assert [line.split("\t")[0] for line in out.splitlines()] == [str(tmp_path / f"{name}.png") for name in "abc"]
    assert [len(line.split("\t")) for line in out.splitlines()] == [5, 2, 5]
    assert err.count("\n") == 1
    assert str(tmp_path / "b.png") in err
    code, out, _ = call("predict", "vit-digits-quaternion", str(tmp_path), "--on-bad-rows", "skip")
    assert (code, len(out.splitlines())) == (0, 2)
    assert call("predict", "vit-digits-quaternion", str(tmp_path / "b.png")).code == 2
    missing = call("predict", "vit-digits-quaternion", str(tmp_path / "d.png"))
    assert (missing.code, missing.err) == (2, f"zoo: {tmp_path / 'd.png'}: not a readable image (No such file or directory)\n")


# --- the other commands ---


def test_fit_suggests_the_next_commands(call, texts_root):
    data = f"pairs(path='{texts_root / 'pairs.tsv'}')"
    words = ("fit", "--backbone", "fasttext(dim=8,hidden=8)", "--algebra", "complex", "--data", data)
    words = (*words, "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu")
    code, out, err = call(*words, "--run-dir", "one")
    assert (code, err) == (0, "")
    assert "test accuracy" in out
    assert [line for line in out.splitlines() if 'zoo predict one "one text" "another"' in line]
    (line,) = [line for line in out.splitlines() if "zoo test" in line]
    assert call(*line.partition("#")[0].split()[1:]).code == 0
