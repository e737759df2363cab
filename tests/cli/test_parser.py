"""Flags and configuration files: precedence, types and errors."""

import json
import re
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

from tests.errors import raises
from zoo.cli.commands import load_command
from zoo.cli.parser import Parser, flag_of
from zoo.registry import build_options
from zoo.training.options import Fit, Optimizer
from zoo.training.resolve import effective as effective_options

NAMES = ("--backbone", "vit", "--algebra", "real")
UNSET = {"betas": None, "eps": None, "mup_base_width": None}


def parse(command, *words):
    return Parser(command, load_command(command)).parse(list(words))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two overlapping configurations, and a function that writes another."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str | bytes) -> None:
        Path(f"{name}.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())

    write("a", "backbone: vit\nalgebra: quaternion\noptimizer: {name: sgd, lr: 0.1}\ntrainer: {max_epochs: 3, precision: 32}\n")
    write("b", "algebra: complex\noptimizer: {lr: 0.2}\ntrainer: {max_epochs: 4}\n")
    return write


@pytest.fixture
def effective(call):
    """The effective configuration of ``zoo fit``."""

    def read(*words):
        code, out, err = call("fit", *words, "--print_config")
        assert (code, err) == (0, "")
        return yaml.safe_load(out)

    return read


def test_print_config_includes_defaults(effective, tmp_path):
    """Defaults come from the options class and from the backbone."""
    values, expected = effective(*NAMES), asdict(effective_options(Fit("vit", "real")))
    assert values == json.loads(json.dumps({key: value for key, value in expected.items() if value is not None}))
    assert values["optimizer"]["lr"] == 2e-3
    assert (values["data"], values["batch_size"], values["trainer"]) == ("digits", 32, {"max_epochs": 50})
    assert not list(tmp_path.iterdir())


def test_later_files_override_earlier_ones(files, effective):
    values = effective("-c", "a.yaml")
    assert values["optimizer"] == {"name": "sgd", "lr": 0.1, "weight_decay": 0.05} | UNSET
    assert values["trainer"] == {"max_epochs": 3, "precision": 32}
    values = effective("-c", "a.yaml", "--config", "b.yaml")
    assert (values["backbone"], values["algebra"]) == ("vit", "complex")
    assert values["optimizer"] == {"name": "sgd", "lr": 0.2, "weight_decay": 0.05} | UNSET
    assert values["trainer"] == {"max_epochs": 4, "precision": 32}


@pytest.mark.parametrize(
    "words",
    [
        ["--optimizer.lr", "9", "--trainer.max_epochs=7", "-c", "a.yaml", "-c", "b.yaml"],
        ["-c", "a.yaml", "--optimizer.lr=9", "--trainer.max_epochs", "7", "-c", "b.yaml"],
    ],
)
def test_flags_override_files_in_any_order(files, effective, words):
    values = effective(*words)
    assert (values["algebra"], values["optimizer"]["lr"]) == ("complex", 9)
    assert values["trainer"] == {"max_epochs": 7, "precision": 32}


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--trainer.max_steps", "-1"], "trainer.max_steps", -1),
        (["--optimizer.betas", "0.9,0.99"], "optimizer.betas", (0.9, 0.99)),
        (["--optimizer", "sgd(lr=.1)"], "optimizer.name", "sgd"),
        (["--optimizer", "sgd(lr=.1)"], "optimizer.lr", 0.1),
        (["--optimizer.lr", "0.2", "--optimizer", "sgd(lr=.1)"], "optimizer.lr", 0.2),
        (["--schedule", "linear(warmup=0.5)"], "schedule.warmup", 0.5),
        (["--run-dir", "a-b_c"], "run_dir", "a-b_c"),
        (["--trainer.devices", "0,1"], "trainer.devices", "0,1"),
        (["--data", "digits(size=16,seed=1)"], "data", "digits(size=16,seed=1)"),
        (["--beam", "4"], "decoding.beam", 4),
        (["--seed", "3"], "decoding.seed", 0),  # the seed of the run
    ],
    ids=str,
)
def test_values_of_flags(words, name, value):
    parsed = parse("fit", *NAMES, *words)["options"]
    for part in name.split("."):
        parsed = parsed[part] if isinstance(parsed, dict) else getattr(parsed, part)
    assert parsed == value


@pytest.mark.parametrize(("text", "rate"), [("0.2", 0.2), ("1e-1", 0.1), ("cubic(final=0.9, rounds=3)",) * 2], ids=str)
def test_a_flag_is_a_number_or_a_spec(text, rate):
    assert parse("lottery", *NAMES, "--rate", text)["options"].rate == rate


def test_numbers_in_files_as_in_python(files, effective):
    """PyYAML alone reads 1e-3 as a string."""
    files("c", "optimizer: {lr: 1e-3, betas: [0.8, 0.9]}\nvectors:\n")
    optimizer = effective("-c", "a.yaml", "-c", "c.yaml")["optimizer"]
    assert (optimizer["lr"], optimizer["betas"]) == (0.001, [0.8, 0.9])


def test_the_spec_of_an_optimizer_in_files_and_in_python(files, effective):
    files("c", "optimizer: sgd(lr=.1)\n")
    optimizer = effective("-c", "a.yaml", "-c", "c.yaml")["optimizer"]
    assert (optimizer["name"], optimizer["lr"]) == ("sgd", 0.1)
    options = build_options(Fit, {"backbone": "vit", "algebra": "real", "optimizer": "sgd(lr=.1)"})
    assert options.optimizer == Optimizer("sgd", 0.1)
    for wrong, code in (("sgd(lrr=.1)", "unknown"), ("sgd(name=adamw)", "invalid"), ("sgd(lr=a)", "invalid")):
        with raises(code):
            parse("fit", *NAMES, "--optimizer", wrong)
        with raises(code):
            build_options(Fit, {"backbone": "vit", "algebra": "real", "optimizer": wrong})


@pytest.mark.parametrize("command", ["fit", "test", "generate"])
def test_every_option_is_a_flag_with_help(command, capsys):
    with pytest.raises(SystemExit):
        parse(command, "--help")
    page = " ".join(capsys.readouterr().out.split())
    kind = get_type_hints(load_command(command))["options"]
    for field in fields(kind):
        for option in [f"{field.name}.{f.name}" for f in fields(field.type)] if is_dataclass(field.type) else [field.name]:
            if option not in ("trainer", "decoding"):
                assert re.search(rf"{flag_of(option)} \S+ \w[^(]{{10,}}", page), option


def test_trained_models_get_only_given_decoding_options(files):
    files("short", "decoding: {length: 2}")
    assert parse("test", "run")["options"].decoding == {}
    assert parse("test", "run", "-c", "short.yaml", "--beam", "1")["options"].decoding == {"length": 2, "beam": 1}
    assert parse("generate", "run", "--seed", "3")["options"].decoding == {"seed": 3}


@pytest.mark.parametrize("word", ["-", "-3", "- a text"])
def test_texts_may_start_with_a_dash(word):
    assert parse("predict", "run", word)["input"] == [word]
    assert parse("generate", "run", "--prompt", word)["prompt"] == word


@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (["--optimizer.betas", "0.9,x"], ["optimizer.betas", "x"]),
        (["--name", "3"], ["--optimizer.name", "--schedule.name"]),
        (["--optimzer.lr", "3"], ["--optimzer.lr", "--optimizer.lr"]),
        (["-c", "."], ["config", "'.'"]),
    ],
    ids=str,
)
def test_invalid_flags(refused, words, needles):
    line = refused("fit", *NAMES, *words)
    assert [needle for needle in needles if needle not in line] == []


@pytest.mark.parametrize(
    ("text", "needles"),
    [
        ("trainer:", ["'trainer'"]),
        ("trainer: {max_epoch: 3}", ["trainer.max_epoch"]),
        ("backbone: [1, 2\n x: :", ["line "]),
        ("seed: true", ["seed", "True"]),
        ('backbone: !!python/object/apply:os.system ["touch owned"]', ["python/object/apply:os.system"]),
    ],
)
def test_invalid_files(files, refused, text, needles):
    files("bad", text)
    line = refused("fit", *NAMES, "-c", "bad.yaml")
    assert [needle for needle in ["bad.yaml", *needles] if needle not in line] == []
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    ("words", "task", "embedding"),
    [
        (("vit", "phm(n=4, shared=true)", "--data", "digits(size=16)"), "image_classification", None),
        (("gpt", "real"), "language_model", "table"),
    ],
    ids=str,
)
def test_print_config_is_effective_and_idempotent(call, tmp_path, words, task, embedding):
    backbone, algebra, *more = words
    code, out, err = call("fit", "--backbone", backbone, "--algebra", algebra, *more, "--print_config")
    assert (code, err) == (0, "")
    config = yaml.safe_load(out)
    assert (config["task"].partition("(")[0], config.get("embedding")) == (task, embedding)
    (tmp_path / "again.yaml").write_text(out)
    assert call("fit", "-c", "again.yaml", "--print_config") == (0, out, "")
