"""The commands: no torch for looking around, exit codes, short errors, and pipes that close."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial

import pytest

from zoo import registry
from zoo.cli import main
from zoo.cli.commands import command_names, show
from zoo.cli.listing import options_of
from zoo.errors import InputError

# Everything that must answer without torch, and the exit code of each.
LIGHT = [
    ([], 0),
    (["--help"], 0),
    (["-h"], 0),
    (["help"], 0),
    (["--version"], 0),
    (["-V"], 0),
    (["list"], 0),
    (["list", "algebras", "--json"], 0),
    (["list", "backbones"], 0),
    (["list", "nonsense"], 2),
    (["nonsense"], 2),
    (["fit"], 2),
    (["fit", "--backbone", "vitt", "--algebra", "real"], 2),
    (["fit", "--backbone", "vit", "--algebra", "reel"], 2),
    (["fit", "--backbone", "vit", "--algebra", "real", "--data", "digit"], 2),
    (["fit", "--backbone", "fasttext", "--algebra", "real", "--embedding", "tabel"], 2),
    (["fit", "--backbone", "vit", "--algebra", "real", "--bacth_size", "3"], 2),
    (["fit", "--backbone", "vit", "--algebra", "real", "--trainer.max_epoch", "3"], 2),
    (["fit", "--algebra", "quaternoin"], 2),
    (["fit", "--lr", "3"], 2),
    (["completion", "bash"], 0),
    (["completion", "fish"], 2),
    (["info", "--backbone", "vit", "--algebra", "reel"], 2),
    (["info", "--backbone", "fasttext", "--algebra", "real", "--embedding", "tabel"], 2),
    (["test"], 2),
    (["test", "runs/x", "--data", "digit"], 2),
    (["average"], 2),
    (["average", "runs/x", "--last", "many"], 2),
    (["predict"], 2),
    (["predict", "run", "text", "--beem", "2"], 2),
    (["generate", "run", "--num_samples", "many"], 2),
    (["doctor", "--nonsense"], 2),
]


def python(*words: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], text=True, capture_output=True, check=False, timeout=120, **options)


def test_looking_around_imports_neither_torch_nor_lightning():
    code = f"""
import sys
from zoo.cli import main
for words, expected in {LIGHT!r}:
    assert main(words) == expected, (words, expected)
    heavy = {{"torch", "lightning", "timm", "torchmetrics", "sklearn", "datasets"}} & set(sys.modules)
    assert not heavy, (words, heavy)
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    refusals = sum(expected == 2 for _, expected in LIGHT)
    assert len(done.stderr.splitlines()) == refusals
    assert all(line.startswith("zoo: ") for line in done.stderr.splitlines())


def test_help_names_every_command_and_shows_the_first_run(capsys):
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    assert all(f"\n  {command} " in page for command in command_names())
    assert "zoo fit --backbone vit --algebra quaternion" in page
    assert main([]) == 0
    assert capsys.readouterr().out == page


@pytest.mark.parametrize("command", command_names())
def test_every_command_has_help_of_its_own(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    page = capsys.readouterr().out
    assert f"zoo {command}" in page
    assert "==SUPPRESS==" not in page


def test_version_is_that_of_the_distribution(capsys):
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("hypercomplex-zoo")


def test_the_listing_as_json(capsys):
    assert main(["list", "algebras", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in rows]
    assert {"real", "complex", "quaternion", "octonion", "clifford", "phm"} <= set(names)
    assert names == sorted(names)
    row = rows[names.index("quaternion")]
    assert row["distribution"] == "hypercomplex-zoo"
    assert row["value"] == "zoo_algebras.cayley_dickson:quaternion"
    assert row["summary"]


def test_the_whole_listing_as_json(capsys):
    assert main(["list", "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)
    assert {"algebras", "backbones", "datasets"} <= set(kinds)
    assert "digits" in [row["name"] for row in kinds["datasets"]]


def test_the_options_of_one_plugin(capsys):
    assert main(["list", "backbones", "vit"]) == 0
    usage, _, summary, *doc = capsys.readouterr().out.splitlines()
    assert usage.startswith("vit(dim=64, depth=4, heads=4,")
    assert summary.startswith("Vision transformer")
    assert "    depth: Blocks." in doc
    assert not any(line.strip().startswith(("layers:", "num_classes:", "Raises")) for line in doc)
    assert main(["list", "datasets", "digits", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["usage"] == "digits(size=None, augment=auto)"
    assert row["doc"].endswith("is a shift by up to one pixel.")


def test_every_plugin_tells_its_options_and_none_that_the_zoo_passes():
    given = {"batch_size", "num_workers", "in_channels", "num_classes", "vocab_size", "layers", "net", "lr", "tokenizer"}
    for kind in set(registry.GROUPS) - {"datasets"}:
        for entry in registry.entries(kind):
            found = options_of(kind, f"{entry.distribution}:{entry.name}")
            assert found["usage"].startswith(f"{entry.name}(")
            assert found["doc"].startswith(found["summary"] or "?"), entry.name
            named = set(re.findall(r"[(, ](\w+)", found["usage"])) | set(re.findall(r"^    (\w+):", found["doc"], re.M))
            assert not given & named, found["usage"]


def test_a_task_has_the_options_that_a_run_takes():
    for entry in registry.entries("tasks"):
        usage = options_of("tasks", entry.name)["usage"]
        assert set(re.findall(r"[(, ](\w+)=", usage)) <= set(registry.load(entry).options())
        assert "metrics=()" in usage


def test_options_of_what_a_stranger_wrote(capsys):
    def plain(layers: object, *, num_classes: int, width: int = 3) -> None:
        """A network.

        Args:
            layers (Layers): The factory.
            num_classes (int): Of the data.
            width (int): Channels.

        Example:
            plain(width=4)
        """

    registry.register("zoo.backbones", "plain")(plain)
    registry.register("zoo.backbones", "part")(partial(plain, width=5))
    registry.register("zoo.backbones", "bare")(lambda layers: None)
    registry.register("zoo.backbones", "odd")(lambda *, width=3: None)
    try:
        text = "\n\nA network.\n\nArgs:\n    width (int): Channels.\n\nExample:\n    plain(width=4)\n"
        for name, usage in (("plain", "plain(width=3)"), ("part", "part(width=5)")):
            assert main(["list", "backbones", name]) == 0
            assert capsys.readouterr().out == usage + text
        assert main(["list", "backbones", "bare"]) == 0
        assert capsys.readouterr().out == "bare()\n"
        assert main(["list", "backbones", "odd"]) != 0
        assert "does not take 1 arguments by position" in capsys.readouterr().err
    finally:
        for name in ("plain", "part", "bare", "odd"):
            registry.unregister("zoo.backbones", name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["datasets", "trecc"], "unknown data set 'trecc': did you mean 'trec'?"),
        (["checkpoints", "vit-digits-real"], "zoo info vit-digits-real tells about a checkpoint"),
        (["backbones", "vit(dim=3)"], "'vit(dim=3)': give the name alone, vit"),
    ],
)
def test_options_of_what_is_not_there(words, said, capsys):
    assert main(["list", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_listing_as_text_has_one_line_for_each(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["list", "backbones"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "backbones"
    ours = [
        "cnn",
        "convnet",
        "decomposable_attention",
        "fasttext",
        "gpt",
        "linear",
        "lstm",
        "mlp",
        "timm",
        "transformer",
        "transformer_xl",
        "vit",
    ]
    assert [line.split()[0] for line in lines] == ours
    assert all(len(line) <= 60 for line in lines)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_flags_and_names(shell, tmp_path, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script.startswith("autoload") == (shell == "zsh")
    if shell == "zsh":
        return
    cases = ("zoo fi", 1, "fit"), ("zoo fit --algebra quat", 3, "quaternion"), ("zoo fit --optim", 2, "--optimizer.lr")
    for line, index, found in cases:
        words = f"COMP_WORDS=({line}); COMP_CWORD={index}; _zoo; printf '%s\\n' ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", f"{script}\n{words}"], capture_output=True, text=True, check=True)
        assert found in done.stdout.split(), (line, done.stdout)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["fitt"], "'fit'"),
        (["lst"], "'list'"),
        (["fit", "--backbone", "vit", "--algebra", "quternion"], "'quaternion'"),
        (["fit", "--backbone", "vitt", "--algebra", "real"], "'vit'"),
        (["fit", "--backbone", "vit", "--algebra", "real", "--data", "digit"], "'digits'"),
        (["fit", "--backbone", "lstm", "--algebra", "real", "--embedding", "tabel"], "'table'"),
        (["fit", "--backbone", "vit", "--algebra", "real", "--bacth-size", "3"], "--batch-size"),
        (["fit", "--backbone", "vit", "--algebra", "real", "--trainer.max_epoch", "3"], "--trainer.max-epochs"),
    ],
)
def test_did_you_mean(words, meant, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert f"did you mean {meant}?" in err


def test_a_word_that_is_close_to_nothing_gets_the_list(capsys):
    assert main(["xyzzy"]) == 2
    err = capsys.readouterr().err
    assert "did you mean" not in err
    assert all(command in err for command in command_names())


@pytest.mark.parametrize("words", [["fitt", "--debug"], ["--debug", "fitt"]])
def test_debug_raises(words):
    with pytest.raises(InputError, match="fitt"):
        main(words)


def test_a_defect_is_told_from_a_mistake(monkeypatch, capsys):
    def broken(words):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("zoo.cli.commands.dispatch", broken)
    assert main(["list"]) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[0] == "zoo: RuntimeError: first line second line"
    assert "--debug" in err
    assert len(err.splitlines()) == 2


def test_an_operating_system_error_names_the_place(monkeypatch, capsys):
    def full(words):
        raise OSError(28, "No space left on device", "runs/a/metrics.csv")

    monkeypatch.setattr("zoo.cli.commands.dispatch", full)
    assert main(["list"]) == 1
    assert capsys.readouterr().err == "zoo: No space left on device (runs/a/metrics.csv)\n"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_place_that_may_not_be_written_is_the_users_to_choose(number, monkeypatch, capsys):
    def denied(words):
        raise OSError(number, os.strerror(number), "disk/x")

    monkeypatch.setattr("zoo.cli.commands.dispatch", denied)
    assert main(["list"]) == 2
    said = f"zoo: {os.strerror(number)} (disk/x): choose another place, or see to its permissions\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("number", [errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG])
def test_a_place_that_cannot_be_is_the_users_mistake(monkeypatch, capsys, number):
    def fail(words):
        raise OSError(number, os.strerror(number), "file/x")

    monkeypatch.setattr("zoo.cli.commands.dispatch", fail)
    assert main(["export"]) == 2
    assert capsys.readouterr().err == f"zoo: {os.strerror(number)} (file/x): choose another place\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_that_is_full_is_named(unbuffered):
    with open("/dev/full", "w") as full:
        command, environment = [sys.executable, "-m", "zoo", "list", "algebras"], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (1, "zoo: No space left on device (standard output)\n")


def test_an_interruption_exits_with_130(monkeypatch, capsys):
    def stopped(words):
        raise KeyboardInterrupt

    monkeypatch.setattr("zoo.cli.commands.dispatch", stopped)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "zoo: interrupted\n"


@pytest.mark.parametrize("error", [None, ImportError("cannot load module more than once per process")])
def test_an_interruption_that_a_library_swallows_counts(error, monkeypatch, capsys):
    """As numpy and matplotlib do while they are imported."""

    def imports(words):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if error:
            raise error
        return 0

    monkeypatch.setattr("zoo.cli.commands.dispatch", imports)
    before = signal.getsignal(signal.SIGINT)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "zoo: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_python_m_zoo():
    done = python("-m", "zoo", "list", "algebras")
    assert done.returncode == 0
    assert "quaternion" in done.stdout
    assert done.stderr == ""


def test_python_m_zoo_passes_the_exit_code_on_and_debug_shows_the_traceback():
    done = python("-m", "zoo", "fitt")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    done = python("-m", "zoo", "fitt", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "InputError" in done.stderr


@pytest.mark.parametrize(
    "words", [["list"], ["--help"], ["list", "--json"], ["list", "--help"], ["fit", "--help"]], ids=" ".join
)
def test_a_reader_that_has_gone_is_no_error(words):
    """What ``zoo list | head -0`` does: the pipe is closed before the first byte."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "zoo", *words], stdout=write, stderr=subprocess.PIPE, check=False, timeout=120
        )
    finally:
        os.close(write)
    assert done.stderr == b""
    assert done.returncode == 0


@pytest.mark.parametrize(
    "closed", ["<&-", pytest.param(">&-", marks=pytest.mark.slow), pytest.param("2>&-", marks=pytest.mark.slow)]
)
def test_closed_standard_streams_are_nobody_elses(closed, tmp_path):
    """A file that is opened first would else take the place of the stream, and be read or written as it."""
    command = f"{sys.executable} -m zoo predict nowhere - {closed}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Error" not in done.stderr
    assert done.stdout == ""


def test_json_has_no_infinity(capsys):
    show({"loss": 1.5, "more": [float("inf"), float("nan")]}, True, print)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"loss": 1.5, "more": [None, None]}


def test_a_table_is_not_cut_in_a_pipe(call):
    out = call("info", "--backbone", "timm/convnext_atto", "--algebra", "quaternion").out
    assert "stages.1.blocks.0.mlp.fc1 " in out
    assert "…" not in out


def test_a_terminal_that_cannot_show_a_letter_is_no_defect():
    code = "from zoo.cli.commands import open_streams; open_streams(); print('\u2500 z')"
    found = python("-c", code, env=os.environ | {"PYTHONIOENCODING": "latin-1"})
    assert (found.returncode, found.stdout) == (0, "\\u2500 z\n")
