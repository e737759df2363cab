"""Flags and files: what composes, what wins, and what is said about a bad one."""

import json
import re
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path

import pytest
import yaml

from zoo.cli.commands import load_command
from zoo.cli.fit import make_parser
from zoo.cli.models import Evaluate, Generate, Predict
from zoo.cli.parser import Parser, flag_of, is_flag
from zoo.errors import InputError
from zoo.training.options import TRAINER_ARGUMENTS, Average, Fit, Info
from zoo.training.resolve import effective as effective_options

NAMES = ("--backbone", "vit", "--algebra", "real")
CALLS = {"fit": NAMES} | dict.fromkeys(("test", "validate", "predict", "generate"), ("run",))
LEFT_OPEN = {"betas": None, "eps": None, "mup_base_width": None}


@pytest.fixture
def files(tmp_path):
    """Two configurations that overlap, and a way to write another."""

    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    write("a", "backbone: vit\nalgebra: quaternion\noptimizer: {name: sgd, lr: 0.1}\ntrainer: {max_epochs: 3, precision: 32}\n")
    write("b", "algebra: complex\noptimizer: {lr: 0.2}\ntrainer: {max_epochs: 4}\n")
    return write


@pytest.fixture
def effective(call):
    """The configuration that ``zoo fit`` would run with."""

    def read(*words):
        code, out, err = call("fit", *words, "--print_config")
        assert (code, err) == (0, "")
        return yaml.safe_load(out)

    return read


def test_what_is_printed_is_what_a_run_would_have(effective):
    """Defaults are those of the options class, and of the backbone: nothing is left to be found out later."""
    values = effective(*NAMES)
    assert values == asdict_without_none(effective_options(Fit("vit", "real")))
    assert values["optimizer"]["lr"] == 2e-3
    assert (values["data"], values["batch_size"], values["trainer"]) == ("digits", 32, {"max_epochs": 50})


def asdict_without_none(options: Fit) -> dict:
    """The options as YAML has them: without what is left open, and lists for tuples."""
    return json.loads(json.dumps({key: value for key, value in asdict(options).items() if value is not None}))


def test_one_file_alone(files, effective):
    values = effective("-c", "a.yaml")
    assert values["algebra"] == "quaternion"
    assert values["optimizer"] == {"name": "sgd", "lr": 0.1, "weight_decay": 0.05} | LEFT_OPEN
    assert values["trainer"] == {"max_epochs": 3, "precision": 32}


def test_a_later_file_wins_key_by_key(files, effective):
    values = effective("-c", "a.yaml", "--config", "b.yaml")
    assert values["backbone"] == "vit"
    assert values["algebra"] == "complex"
    assert values["optimizer"] == {"name": "sgd", "lr": 0.2, "weight_decay": 0.05} | LEFT_OPEN
    assert values["trainer"] == {"max_epochs": 4, "precision": 32}
    assert effective("-c", "b.yaml", "-c", "a.yaml")["optimizer"]["lr"] == 0.1


@pytest.mark.parametrize(
    "words",
    [
        ["--optimizer.lr", "9", "--trainer.max_epochs=7", "-c", "a.yaml", "-c", "b.yaml"],
        ["-c", "a.yaml", "--optimizer.lr=9", "--trainer.max_epochs", "7", "-c", "b.yaml"],
        ["--config=a.yaml", "-cb.yaml", "--optimizer.lr", "9", "--trainer.max_epochs", "7"],
        ["--optimizer.lr", "9", "--trainer.max_epochs", "7", "-ca.yaml", "--config=b.yaml"],
    ],
)
def test_flags_win_wherever_they_stand(files, effective, words):
    values = effective(*words)
    assert values["algebra"] == "complex"
    assert values["optimizer"]["lr"] == 9
    assert values["trainer"] == {"max_epochs": 7, "precision": 32}


def test_the_last_of_two_equal_flags_wins(effective):
    assert effective(*NAMES, "--seed", "1", "--seed", "2")["seed"] == 2


def test_dashes_and_underscores_are_the_same(effective):
    dashes = effective(
        *NAMES, "--batch-size", "8", "--optimizer.weight-decay=0.5", "--trainer.max-epochs", "2", "--run-dir", "a-b_c"
    )
    under = effective(
        *NAMES, "--batch_size", "8", "--optimizer.weight_decay=0.5", "--trainer.max_epochs", "2", "--run_dir", "a-b_c"
    )
    assert dashes == under
    assert dashes["batch_size"] == 8
    assert dashes["run_dir"] == "a-b_c"


def test_numbers_in_files_may_be_written_as_in_python(files, effective):
    """PyYAML alone reads 1e-3 as a string."""
    files("c", "optimizer: {lr: 1e-3}")
    assert effective("-c", "a.yaml", "-c", "c.yaml")["optimizer"]["lr"] == 0.001


def test_negative_numbers_are_values(call):
    assert make_parser("fit").parse([*NAMES, "--optimizer.lr", "-1"])["optimizer"]["lr"] == -1


def test_trainer_values_are_yaml(effective):
    flags = ["--trainer.devices", "[0, 1]", "--trainer.limit_train_batches", "0.5", "--trainer.logger", "false"]
    expected = {"max_epochs": 50, "devices": [0, 1], "limit_train_batches": 0.5, "logger": False, "precision": "bf16-mixed"}
    assert effective(*NAMES, *flags, "--trainer.precision", "bf16-mixed")["trainer"] == expected


@pytest.mark.parametrize("words", [["0.9,0.99"], ["[0.9, 0.99]"], ["0.9, 0.99"], ["(0.9,0.99)"]], ids=str)
def test_two_numbers_with_or_without_brackets(effective, words):
    assert effective(*NAMES, "--optimizer.betas", *words)["optimizer"]["betas"] == [0.9, 0.99]
    assert effective(*NAMES, f"--optimizer.betas={words[0]}")["optimizer"]["betas"] == [0.9, 0.99]


def test_two_numbers_in_a_file(files, effective):
    files("c", "optimizer: {betas: [0.8, 0.9]}")
    assert effective("-c", "a.yaml", "-c", "c.yaml")["optimizer"]["betas"] == [0.8, 0.9]
    assert effective("-c", "c.yaml", *NAMES, "--optimizer.betas", "null")["optimizer"].get("betas") is None


def test_a_comma_elsewhere_stays_what_it_is(effective):
    assert effective(*NAMES, "--data", "digits(size=16,seed=1)", "--trainer.devices", "0,1")["trainer"]["devices"] == "0,1"


def test_what_is_printed_is_itself_a_file_that_gives_the_same(files, effective):
    values = effective("-c", "a.yaml", "-c", "b.yaml", "--data", "digits(size=16)", "--algebra", "phm(n=4, shared=true)")
    files("again", yaml.safe_dump(values))
    assert effective("-c", "again.yaml") == values
    assert values["algebra"] == "phm(n=4, shared=True)"


def test_print_config_starts_nothing(files, call, tmp_path):
    before = sorted(tmp_path.iterdir())
    call("fit", "-c", "a.yaml", "--print-config")
    assert sorted(tmp_path.iterdir()) == before


def test_every_trainer_argument_is_a_flag():
    assert {f"trainer.{name}" for name in TRAINER_ARGUMENTS} <= make_parser("fit").known.keys()


@pytest.mark.parametrize("kind", [Fit, Average, Evaluate, Predict, Generate, Info])
def test_every_option_is_a_flag_with_a_description(kind, capsys):
    parser = Parser("x", "", kind)
    with pytest.raises(SystemExit):
        parser.parse(["--help"])
    page = " ".join(capsys.readouterr().out.split())
    for field in fields(kind):
        for option in [f"{field.name}.{f.name}" for f in fields(field.type)] if is_dataclass(field.type) else [field.name]:
            if option != "trainer":
                assert re.search(rf"{flag_of(option)} \S+ \w[^(]{{10,}}", page), option


# --- one dialect ---


def test_an_option_of_decoding_has_one_name_and_one_short_form_in_all_commands():
    for command, words in (
        ("fit", NAMES),
        ("test", ["run"]),
        ("validate", ["run"]),
        ("predict", ["run"]),
        ("generate", ["run"]),
    ):
        module = load_command(command)
        for flag in ("--beam", "--decoding.beam"):
            assert module.make_parser(command).parse([*words, flag, "4"])["decoding"]["beam"] == 4
    fit = make_parser("fit").parse([*NAMES, "--seed", "3"])  # a run has a seed of its own
    assert (fit["seed"], fit["decoding"]["seed"]) == (3, 0)
    assert load_command("generate").make_parser("generate").parse(["run", "--seed", "3"])["decoding"] == {"seed": 3}


def test_of_a_trained_model_only_what_is_given_is_decided(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files("short", "decoding: {length: 2}")
    parser = load_command("test").make_parser("test")
    assert parser.parse(["run"])["decoding"] == {}
    assert parser.parse(["run", "-c", "short.yaml", "--beam", "1"])["decoding"] == {"length": 2, "beam": 1}


@pytest.mark.parametrize(
    "words",
    [["run", "a b", "--json", "c", "-"], ["--json", "run", "a b", "c", "-"], ["run", "--json", "--", "a b", "c", "-"]],
    ids=" ".join,
)
def test_flags_and_positional_arguments_may_be_mixed(words):
    values = load_command("predict").make_parser("predict").parse(words)
    assert (values["run"], values["input"], values["json"]) == ("run", ["a b", "c", "-"], True)


@pytest.mark.parametrize(
    ("word", "flag"), [("-", False), ("-3", False), ("-.5", False), ("- a text", False), ("-x", True), ("--x=a b", True)]
)
def test_what_is_a_flag(word, flag):
    assert is_flag(word) is flag


# --- what is said about a bad flag ---


@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (["--batch_size", "x"], ["batch_size", "a whole number", "x"]),
        (["--batch_size", "2.5"], ["batch_size", "a whole number", "2.5"]),
        (["--seed", "None"], ["seed", "a whole number", "None"]),
        (["--optimizer.lr", "abc"], ["optimizer.lr", "a number", "abc"]),
        (["--optimizer.betas", "0.9"], ["optimizer.betas", "2 values, each a number", "0.9"]),
        (["--optimizer.betas", "0.9,x"], ["optimizer.betas", "2 values", "x"]),
        (["--optimizer.betas", "0.9,0.99,0.999"], ["optimizer.betas", "2 values", "0.999"]),
        (["--seed"], ["--seed needs a value"]),
        (["stray"], ["stray"]),
        (["--epochs", "2"], ["unknown flag --epochs", "--trainer.max-epochs"]),
        (["--optimizer", "adamw"], ["--optimizer has parts", "--optimizer.name"]),
        (["--trainer", "{max_epochs: 3}"], ["--trainer has parts"]),
        (["--trainer.nope", "3"], ["unknown flag --trainer.nope"]),
        (["--lr", "3"], ["unknown flag --lr", "did you mean --optimizer.lr?"]),
        (["--max-epochs", "3"], ["did you mean --trainer.max-epochs?"]),
        (["--name", "3"], ["did you mean --optimizer.name or --schedule.name?"]),
        (["--warm", "3"], ["did you mean --schedule.warmup?"]),
        (["--print_config=yes"], ["--print-config takes no value"]),
        (["--optimiser.lr", "3"], ["unknown flag --optimiser.lr", "did you mean --optimizer.lr?"]),
        (["--algebra", "--seed", "3"], ["--algebra needs a value"]),
        (["--backbone", ""], ["bad spec ''", "name"]),
        (["--backbone", "vit(dim=3"], ["bad spec 'vit(dim=3'", "')'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_bad_flag(refused, words, needles):
    line = refused("fit", *NAMES, *words)
    assert [needle for needle in needles if needle not in line] == []


@pytest.mark.parametrize(("words", "missing"), [(NAMES[:2], "--algebra"), (NAMES[2:], "--backbone")])
def test_a_missing_name(refused, words, missing):
    assert f"missing {missing}" in refused("fit", *words)


def test_a_missing_name_does_not_hide_a_wrong_one(refused):
    line = refused("fit", "--algebra", "quaternoin")
    assert "missing --backbone" in line
    assert "did you mean 'quaternion'?" in line


# --- what is said about a bad file ---


@pytest.mark.parametrize(
    ("text", "needles"),
    [
        ("backbne: vit", ["backbne"]),
        ("trainer:", ["'trainer' in the config", "is empty"]),
        ("config: other.yaml", ["unknown option 'config'", "bad.yaml"]),
        ("optimizer: {lrr: 3}", ["optimizer", "lrr"]),
        ("trainer: {max_epoch: 3}", ["trainer.max_epoch"]),
        ("backbone: [1, 2\n x: :", ["config", "line "]),
        ("\tbackbone: vit", ["config", "line 1"]),
        ("- 1\n- 2", ["config"]),
        ("just text", ["config"]),
        ("batch_size: many", ["batch_size", "a whole number", "many"]),
        ("seed: true", ["seed", "a whole number", "True"]),
        ("backbone: 3", ["backbone", "text", "3"]),
        ("data: on", ["data", "text", "True"]),
        ("optimizer: adam", ["optimizer", "adam"]),
    ],
)
def test_a_bad_file(files, refused, text, needles):
    files("bad", text)
    line = refused("fit", *NAMES, "-c", "bad.yaml")
    assert [needle for needle in needles if needle not in line] == []


def test_a_tag_of_python_is_not_obeyed(files, refused, tmp_path):
    files("bad", f'backbone: !!python/object/apply:os.system ["touch {tmp_path}/owned"]')
    assert "python/object/apply:os.system" in refused("fit", "-c", "bad.yaml")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("place", ["nofile.yaml", "."])
def test_a_file_that_is_none(refused, place):
    line = refused("fit", *NAMES, "-c", place)
    assert "config" in line
    assert place in line


def test_config_without_a_file(refused):
    assert "config" in refused("fit", *NAMES, "-c")


def test_a_file_that_is_no_text(files, refused):
    files("bad", b"\xff\xfe\x00")
    assert "utf-8" in refused("fit", *NAMES, "-c", "bad.yaml")


def test_an_error_in_a_file_names_the_file(files, refused):
    files("bad", "backbne: vit")
    line = refused("fit", *NAMES, "-c", "bad.yaml")
    assert "bad.yaml" in line
    assert "did you mean 'backbone'?" in line


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n"])
def test_an_empty_file(files, refused, text):
    files("bad", text)
    assert "empty" in refused("fit", *NAMES, "-c", "bad.yaml")


def test_a_file_with_one_option_that_is_null(files, effective):
    files("null", "vectors:\n")
    assert effective(*NAMES, "-c", "null.yaml") == effective(*NAMES)


def test_trainer_that_is_no_mapping(files, refused):
    files("bad", "trainer: 3")
    assert "trainer" in refused("fit", *NAMES, "-c", "bad.yaml", "--print_config")


@pytest.mark.parametrize("command", ["info", "test"])
def test_no_command_accepts_a_flag_that_it_ignores(refused, command):
    words = NAMES if command == "info" else ("runs/x",)
    assert "unknown flag --print-config" in refused(command, *words, "--print_config")


def test_the_parser_itself_refuses_with_one_kind_of_error():
    for words in (["--nope"], ["--seed", "x"], ["-c", "nofile.yaml"]):
        with pytest.raises(InputError):
            make_parser("fit").parse([*NAMES, *words])


@pytest.mark.parametrize(
    ("words", "task", "embedding"),
    [
        (("vit", "quaternion"), "image_classification", None),
        (("fasttext", "quaternion"), "text_classification", "table"),
        (("fasttext", "complex_order"), "text_classification", "complex_order"),
        (("gpt", "real"), "language_model", "table"),
        (("transformer", "real"), "text_classification", "table"),
    ],
    ids=str,
)
def test_print_config_says_what_is_effective_and_repeats_itself(call, tmp_path, words, task, embedding):
    code, out, err = call("fit", "--backbone", words[0], "--algebra", words[1], "--print_config")
    assert (code, err) == (0, "")
    found = yaml.safe_load(out)
    assert (found["task"].partition("(")[0], found.get("embedding")) == (task, embedding)
    (tmp_path / "again.yaml").write_text(out)
    assert call("fit", "-c", "again.yaml", "--print_config") == (0, out, "")
