"""``zoo generate``, and the other commands on runs that write."""

import io
import json
import os
import random
import subprocess
import sys
from dataclasses import fields

import pytest
import yaml

import zoo
from zoo.cli import main
from zoo.cli.models import line
from zoo.tasks.decoding.options import Decoding

SIZE = "dim=16, depth=1, heads=2, ffn=32"
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "limit_train_batches": 20}
NUMBERS = {"one": "un", "two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "six": "six"}
CPU = ("--trainer.accelerator", "cpu")
RUNS = {
    "gpt": (f"gpt({SIZE})", "corpus(path='{place}/text.txt', max_length=32)"),
    "pairs": (
        f"transformer({SIZE}, positions=learned)",
        "parallel(path='{place}/en-fr', source=en, target=fr, tokenizer=space)",
    ),
    "text": ("fasttext(dim=8, hidden=8)", "text(path='{place}/text.tsv')"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus):
    """The folder of the data and of the runs of this module."""
    folder, draw = tmp_path_factory.mktemp("generate"), random.Random(0)
    words = ["the", "café", "was", "naïve", "and", "old"]
    text = "".join(" ".join(draw.choices(words, k=6)) + "\n" for _ in range(150))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    corpus(folder / "text.tsv", "text")
    (folder / "en-fr").mkdir()
    for split, count in (("train", 200), ("test", 20)):
        rows = [draw.choices(list(NUMBERS), k=draw.randrange(1, 5)) for _ in range(count)]
        (folder / "en-fr" / f"{split}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / "en-fr" / f"{split}.fr").write_text("".join(" ".join(map(NUMBERS.get, row)) + "\n" for row in rows))
    for name, (backbone, data) in RUNS.items():
        trainer = TRAINER | ({"max_epochs": 8} if name == "pairs" else {})
        options = {"data": data.format(place=folder), "batch_size": 8, "optimizer": {"lr": 0.01}, "trainer": trainer}
        zoo.fit(backbone=backbone, algebra="quaternion", run_dir=str(folder / name), **options)
    return folder


@pytest.fixture(scope="module")
def models(place):
    return {name: zoo.load(place / name) for name in ("gpt", "pairs")}


def samples(model: zoo.Model, prompt: str, count: int, options: Decoding) -> list[str]:
    return model.generate(prompt, count, **vars(options))


def write(model: zoo.Model, prompts: list[str], options: Decoding) -> list[str]:
    return model.generative(vars(options)).generate(prompts)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# --- what is printed ---


def test_the_prompt_and_what_follows(call, place, models):
    code, out, err = call("generate", place / "gpt", "--prompt", "the café", "--length", 12, "--seed", 4)
    assert (code, err) == (0, "")
    (text,) = samples(models["gpt"], "the café", 1, Decoding(length=12, seed=4))
    assert out == f"the café{text}\n"
    assert len(text) == 12
    other = call("generate", place / "gpt", "--prompt", "the café", "--length", 12, "--seed", 5)
    assert other.out != out
    assert call("generate", place / "gpt", "--prompt", "the café", "--length", 12, "--seed", 4).out == out


def test_an_answer_stands_alone(call, place, models):
    for flags, options in (((), Decoding()), (("--beam", 3), Decoding(beam=3))):
        code, out, err = call("generate", place / "pairs", "--prompt", "six two one", *flags)
        assert (code, err) == (0, "")
        assert out == samples(models["pairs"], "six two one", 1, options)[0] + "\n"


def test_without_a_prompt_a_new_line_begins(call, place, models):
    code, out, _ = call("generate", place / "gpt", "--length", 9)
    assert (code, out) == (0, "\n" + samples(models["gpt"], "\n", 1, Decoding(length=9))[0] + "\n")


def test_a_prompt_from_standard_input(call, place, pipe):
    expected = call("generate", place / "gpt", "--prompt", "the café\nwas", "--length", 9)
    pipe("the café\nwas\n".encode())
    assert call("generate", place / "gpt", "--prompt", "-", "--length", 9) == expected
    assert expected.code == 0


def test_several_texts(call, place, models):
    code, out, err = call("generate", place / "gpt", "--prompt", "the", "--length", 9, "--num-samples", 3)
    assert (code, err) == (0, "")
    texts = samples(models["gpt"], "the", 3, Decoding(length=9))
    assert len(set(texts)) > 1
    assert out == "\n".join(f"--- {i}\nthe{text}\n" for i, text in enumerate(texts, 1))
    code, out, _ = call("generate", place / "pairs", "--prompt", "one", "--num-samples", 2, "--temperature", 3)
    assert out == "\n".join(
        f"--- {i}\n{text}\n" for i, text in enumerate(samples(models["pairs"], "one", 2, Decoding(temperature=3)), 1)
    )


@pytest.mark.parametrize("count", [1, 2])
def test_json_lines(call, place, models, count):
    code, out, err = call("generate", place / "gpt", "--prompt", "the café", "--length", 9, "--num-samples", count, "--json")
    assert (code, err) == (0, "")
    texts = samples(models["gpt"], "the café", count, Decoding(length=9))
    assert [json.loads(row) for row in out.splitlines()] == [{"prompt": "the café", "text": text} for text in texts]
    assert "café" in out


def test_words_are_shown_as_they_come(place, monkeypatch, models):
    shown: list[str] = []

    class Screen(io.StringIO):
        def flush(self) -> None:
            shown.append(self.getvalue())

    monkeypatch.setattr(sys, "stdout", Screen())
    assert main(["generate", str(place / "gpt"), "--prompt", "the", "--length", "9", "--temperature", "0"]) == 0
    (text,) = samples(models["gpt"], "the", 1, Decoding(length=9, temperature=0.0))
    assert [part for part in shown if part] == sorted(part for part in shown if part)
    assert {"the" + text[:length] for length in range(10)} <= set(shown)


@pytest.mark.slow  # tests.cli.test_predict tries a pipe too
def test_through_a_real_pipe(place, models):
    """As a shell does it, with bytes that are not the locale's."""
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "generate", str(place / "gpt"), "--prompt", "-", "--length", "9"],
        input="the café\n".encode(),
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == "the café" + samples(models["gpt"], "the café", 1, Decoding(length=9))[0] + "\n"


# --- flags ---


@pytest.mark.parametrize("command", ["generate", "predict"])
def test_every_option_of_decoding_is_a_flag_with_its_help(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    page = " ".join(capsys.readouterr().out.split())
    for field in fields(Decoding):
        assert f"--decoding.{field.name.replace('_', '-')} " in page
    assert "Exponent of GNMT's length penalty" in page
    assert "0.8 for language models" in page


def test_flags_reach_the_decoding(call, place, models):
    flags = ("--temperature", 1.5, "--top-k", 5, "--top_p", 0.9, "--repetition-penalty", 1.3, "--length", 12, "--seed", 9)
    options = Decoding(temperature=1.5, top_k=5, top_p=0.9, repetition_penalty=1.3, length=12, seed=9)
    assert (
        call("generate", place / "gpt", "--prompt", "the", *flags).out == f"the{samples(models['gpt'], 'the', 1, options)[0]}\n"
    )
    words = ("generate", place / "gpt", "--prompt", "the", "--length", 14)
    beams = {call(*words, "--beam", 4, "--length_penalty", penalty).out for penalty in (0, 1)}
    assert beams <= {
        f"the{samples(models['gpt'], 'the', 1, Decoding(beam=4, length=14, length_penalty=x))[0]}\n" for x in (0.0, 1.0)
    }


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "flags", "needles"),
    [
        ("gpt", ["--prompt", "the \N{SNOWMAN}"], ["prompt 'the \N{SNOWMAN}'", "never seen '\N{SNOWMAN}'"]),
        ("gpt", ["--prompt", "the " * 9], ["a prompt of 36 tokens", "positions for 32"]),
        ("gpt", ["--prompt", "the " * 8], ["a prompt of 32 tokens", "use a shorter prompt"]),
        ("gpt", ["--prompt", "the", "--length", "30"], ["3 tokens and 30 more", "positions for 32", "use --length 29"]),
        ("gpt", ["--prompt", "the", "--length", "30", "--beam", "2"], ["3 tokens and 30 more", "use --length 29"]),
        ("gpt", ["--prompt", "the", "--length", "30", "--num-samples", "2"], ["3 tokens and 30 more", "use --length 29"]),
        ("gpt", ["--prompt", "the", "--length", "30", "--json"], ["3 tokens and 30 more", "use --length 29"]),
        ("gpt", ["--num-samples", "0"], ["--num-samples 0: must be a whole number from 1"]),
        ("gpt", ["--num-samples", "two"], ["num_samples", "two"]),
        ("gpt", ["--beam", "2", "--temperature", "1"], ["beam=2 and temperature=1.0", "use one of the two"]),
        ("gpt", ["--beam", "2", "--top-k", "3"], ["beam=2 and top_k=3"]),
        ("gpt", ["--temperature", "0", "--top-k", "3"], ["top_k=3", "temperature of 0"]),
        ("gpt", ["--length-penalty", "1"], ["length_penalty=1.0 has no effect without a beam"]),
        ("gpt", ["--top-p", "2"], ["top_p=2.0"]),
        ("gpt", ["--top-k", "many"], ["top_k", "many"]),
        ("gpt", ["--length", "0"], ["length=0"]),
        ("gpt", ["--beem", "2"], ["--beem"]),
        ("pairs", [], ["this model answers a text: give it one with --prompt"]),
        ("text", ["--prompt", "a film"], ["a model of text_classification generates no text: use zoo predict"]),
        ("nowhere", ["--prompt", "a film"], ["nowhere"]),
    ],
)
def test_one_line(refused, place, name, flags, needles):
    said = refused("generate", place / name, *flags)
    assert [needle for needle in needles if needle not in said] == []


def test_a_prompt_that_is_no_text(refused, place, pipe):
    assert "UTF-8" in refused("generate", place / "gpt", "--prompt", "the \udcff")
    pipe(b"the \xff")
    assert "UTF-8" in refused("generate", place / "gpt", "--prompt", "-")


def test_a_language_model_predicts_nothing(refused, place):
    said = refused("predict", place / "gpt", "the café")
    assert said.endswith("use zoo generate RUN --prompt TEXT")


@pytest.mark.parametrize("command", ["fit", "info"])
@pytest.mark.parametrize(
    ("flags", "needles"),
    [
        (["--backbone", "transformer", "--task", "seq2sec"], ["unknown task 'seq2sec': did you mean 'seq2seq'?"]),
        (["--backbone", "transformer", "--task", "poetry"], ["unknown task 'poetry'", "text_classification", "seq2seq"]),
        (
            ["--backbone", "transformer", "--task", "seq2seq", "--data", "glosses(limit=60)"],
            ["--task seq2seq: 'glosses(limit=60)' is for text_classification; use --data 'glosses(task=seq2seq)'"],
        ),
        (["--backbone", "gpt", "--data", "glosses(limit=60)"], ["gpt reads running text", "holds texts", "transformer can"]),
        (
            ["--backbone", "gpt", "--data", "glosses(task=seq2seq,limit=60)"],
            ["gpt reads running text", "holds texts and their answers", "transformer can"],
        ),
        (
            ["--backbone", "lstm", "--data", "glosses(task=language_model,limit=60)"],
            ["lstm reads texts", "holds running text", "gpt, transformer_xl can"],
        ),
        (["--backbone", "gpt", "--data", "glosses(task=poems)"], ["glosses: no task 'poems'", "language_model, seq2seq"]),
    ],
)
def test_what_does_not_belong_together(refused, command, flags, needles):
    said = refused(command, "--algebra", "real", *flags)
    assert [needle for needle in needles if needle not in said] == []


def test_only_what_writes_is_decoded_when_it_is_tested(refused, place):
    said = refused("test", place / "pairs", "--decoding.beam", 2, "--decoding.temperature", 1, *CPU)
    assert said.startswith("beam=2 and temperature=1.0")
    words = ("--backbone", f"transformer({SIZE})", "--algebra", "real", "--task", "seq2seq", *CPU)
    said = refused("fit", *words, "--data", "glosses(task=seq2seq,limit=60)", "--decoding.beam", 0)
    assert said.startswith("beam=0")


# --- line by line ---


def test_a_file_is_answered_line_by_line(call, place, models, pipe, tmp_path):
    content = b"one\n\ntwo three\n  \nsix"
    (tmp_path / "lines.txt").write_bytes(content)
    code, out, err = call("predict", place / "pairs", "lines.txt", "--beam", 2)
    assert (code, err) == (0, "")
    first, second, third = write(models["pairs"], ["one", "two three", "six"], Decoding(beam=2))
    assert out == f"{first}\n\n{second}\n\n{third}\n"
    for words in ((), ("-",)):
        pipe(content)
        assert call("predict", place / "pairs", *words, "--beam", 2).out == out
    rows = [json.loads(row) for row in call("predict", place / "pairs", "lines.txt", "--json", "--beam", 2).out.splitlines()]
    assert [row["source"] for row in rows] == content.decode().split("\n")
    assert [row["target"] for row in rows] == out.split("\n")[:-1]


def test_a_text_in_quotes(call, place, models):
    code, out, _ = call("predict", place / "pairs", "six two", "one")
    assert (code, out.splitlines()) == (0, write(models["pairs"], ["six two", "one"], Decoding()))


def test_a_long_line_is_named_or_cut(call, refused, place, tmp_path):
    (tmp_path / "lines.txt").write_text("one\n\n" + "two " * 9 + "\nsix\n")
    said = refused("predict", place / "pairs", "lines.txt")
    assert "lines.txt:3: 9 tokens, the model reads at most" in said
    assert "--truncate" in said
    code, out, err = call("predict", place / "pairs", "lines.txt", "--truncate")
    assert (code, err, len(out.splitlines())) == (0, "", 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "lines.txt is empty"), (b"one\n\xff\n", "lines.txt:2: "), (b"one\ttwo\n", "lines.txt:1: a tab")],
    ids=["nothing", "bytes", "tab"],
)
def test_a_bad_file(refused, place, tmp_path, content, said):
    (tmp_path / "lines.txt").write_bytes(content)
    assert said in refused("predict", place / "pairs", "lines.txt")


def test_an_answer_is_one_line_whatever_is_written():
    assert line({"source": "one", "target": "un\ndeux\u2028trois\r\n"}) == "un deux trois"
    assert line({"source": "", "target": ""}) == ""
    assert line({"text": "a", "label": "yes", "probability": 0.5}) == "a\tyes\t0.5000"


def test_lines_are_counted_on_a_terminal_while_they_go_elsewhere(call, place, monkeypatch, tmp_path):
    (tmp_path / "lines.txt").write_text("one\n" * 70)
    expected = call("predict", place / "pairs", "lines.txt")
    assert (expected.err, len(expected.out.splitlines())) == ("", 70)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert call("predict", place / "pairs", "lines.txt").out == expected.out
    assert "predicting" in screen.getvalue()
    screen, out = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["predict", str(place / "pairs"), "lines.txt"]) == 0
    assert (out.getvalue(), screen.getvalue()) == (expected.out, "")


# --- the other commands ---


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("gpt", {"loss", "perplexity", "bits_per_character", "bits_per_byte"}),
        ("pairs", {"loss", "exact_match", "bleu", "chrf"}),
    ],
)
def test_measuring(call, place, name, metrics):
    code, out, err = call("test", place / name, "--json", *CPU)
    assert (code, err) == (0, "")
    summary = json.loads((place / name / "summary.json").read_text())["metrics"]
    assert json.loads(out) == pytest.approx(summary, rel=1e-5)
    assert set(summary) == metrics
    code, out, err = call("validate", place / name, "--json", *CPU)
    assert (code, err) == (0, "")
    assert set(json.loads(out)) == metrics - {"bleu", "chrf"}
    plain = call("test", place / name, *CPU).out
    assert all(f"test {metric}" in plain for metric in metrics)


def test_a_beam_is_asked_for_when_measuring(call, place):
    greedy = json.loads((place / "pairs/summary.json").read_text())["metrics"]
    code, out, err = call("test", place / "pairs", "--json", "--decoding.length", 1, *CPU)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["loss"] == pytest.approx(greedy["loss"], rel=1e-5)
    assert found["chrf"] < greedy["chrf"]


def test_measuring_decodes_as_the_run_did_but_for_what_is_said(call, place, tmp_path, monkeypatch):
    config = yaml.safe_load((place / "pairs/config.yaml").read_text())
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
    zoo.load(tmp_path / "beam").evaluate(**vars(Decoding()), trainer={"accelerator": "cpu"})
    assert used[-1] == Decoding()


@pytest.mark.parametrize(
    ("backbone", "data"),
    [
        ("gpt", "glosses(task=language_model,limit=60)"),
        ("transformer_xl", "glosses(task=language_model,limit=60)"),
        ("transformer", "glosses(task=seq2seq,limit=60,vocab=400)"),
    ],
)
def test_a_run_ends_with_what_to_do_next_and_info_counts_it(call, tmp_path, backbone, data):
    words = ("--backbone", f"{backbone}({SIZE.replace(' ', '')})", "--algebra", "complex", "--data", data)
    limits = ("--trainer.max_epochs", 1, "--trainer.limit_train_batches", 2, *CPU)
    code, out, err = call("fit", *words, *limits, "--run-dir", "run")
    assert (code, err) == (0, "")
    (said,) = [row for row in out.splitlines() if "zoo generate" in row]
    assert said.split("#")[0].strip() == 'zoo generate run --prompt "some text"'
    assert call("generate", "run", "--prompt", "some text", "--length", 4).code == 0
    total = json.loads(call("info", *words, "--json").out)["total"]
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert total == summary["parameters"]


def test_a_text_may_be_longer_than_the_name_of_a_file(call, place):
    code, out, err = call("predict", place / "pairs", "one two " * 100, "--truncate")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
