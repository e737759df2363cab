"""``zoo generate``, and other commands with generative models."""

import io
import json
import sys

import pytest
import yaml

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
