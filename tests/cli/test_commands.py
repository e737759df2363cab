"""Commands: imports, listings, exit codes, errors, standard streams; ``zoo average``, ``recover`` and ``verify``."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from inspect import signature
from pathlib import Path

import pytest

from zoo import registry
from zoo.cli import main
from zoo.cli.commands import command_names
from zoo.cli.listing import options_of
from zoo.cli.result import Result

# Calls that must not import torch, by exit code, with a part of the error message.
LIGHT = {
    0: ["", "--help", "-h", "help", "--version", "-V", "list", "list algebras --json", "list backbones", "completion bash"],
    2: [
        "list nonsense",
        "xyzzy | fit",
        "fitt | 'fit'",
        "fit",
        "fit --algebra quaternoin | 'quaternion'",
        "fit --lr 3 | --optimizer.lr",
        "fit --backbone vitt --algebra real | 'vit'",
        "fit --backbone vit --algebra reel | 'real'",
        "fit --backbone vit --algebra real --bacth_size 3 | --batch-size",
        "fit --backbone vit --algebra real --trainer.max_epoch 3 | --trainer.max-epochs",
        "info --backbone vit --algebra reel | 'real'",
        "test runs/x --data digit | 'digits'",
        "predict run text --beem 2 | --beam",
        "list checkpoints vit-digits-real | zoo info",
    ],
}


def python(*words: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], text=True, capture_output=True, check=False, timeout=120, **options)


def test_light_commands_do_not_import_torch():
    code = f"""
import sys
from zoo.cli import main
for expected, calls in {LIGHT!r}.items():
    for call in calls:
        assert main(call.partition("|")[0].split()) == expected, call
        heavy = {{"torch", "lightning", "timm", "torchmetrics", "sklearn", "datasets"}} & set(sys.modules)
        assert not heavy, (call, heavy)
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    assert len(lines) == len(LIGHT[2])
    for line, call in zip(lines, LIGHT[2], strict=True):
        assert line.startswith("zoo: ")
        assert call.partition("| ")[2] in line


def test_help_lists_every_command(call):
    page = call("--help").out
    assert call() == (0, page, "")
    assert all(f"\n  {command} " in page for command in command_names())
    assert "zoo fit --backbone vit --algebra quaternion" in page
    assert call("--version").out.strip() == version("hypercomplex-zoo")


@pytest.mark.parametrize("command", command_names())
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"zoo {command}" in capsys.readouterr().out


# --- listing ---


def test_listings(call, monkeypatch):
    rows = json.loads(call("list", "algebras", "--json").out)
    names = [row["name"] for row in rows]
    assert {"real", "complex", "quaternion", "octonion", "clifford", "phm"} <= set(names)
    assert names == sorted(names)
    row = rows[names.index("quaternion")]
    assert (row["distribution"], row["value"]) == ("hypercomplex-zoo", "zoo_algebras.algebras:quaternion")
    assert row["summary"]
    kinds = json.loads(call("list", "--json").out)
    assert {"algebras", "backbones", "datasets"} <= set(kinds)
    assert "digits" in [row["name"] for row in kinds["datasets"]]
    monkeypatch.setenv("COLUMNS", "60")
    head, *lines = call("list", "backbones").out.splitlines()
    assert head == "backbones"
    assert {"cnn", "gpt", "lstm", "mlp", "timm", "transformer", "vit"} <= {line.split()[0] for line in lines}
    assert all(len(line) <= 60 for line in lines)


def test_options_of_a_plugin(call):
    usage, _, summary, *doc = call("list", "backbones", "vit").out.splitlines()
    assert usage.startswith("vit(dim=64, depth=4, heads=4,")
    assert summary.startswith("Vision transformer")
    assert "    depth: Number of blocks." in doc
    assert not any(line.strip().startswith(("layers:", "num_classes:", "Raises")) for line in doc)
    assert json.loads(call("list", "datasets", "digits", "--json").out)["usage"] == "digits(size=None, augment=auto)"


def test_options_of_every_plugin():
    given = {"batch_size", "num_workers", "in_channels", "num_classes", "vocab_size", "layers", "net", "lr", "tokenizer"}
    for kind in set(registry.GROUPS) - {"datasets", "integrations"}:  # an integration needs its package
        for entry in registry.entries(kind):
            row = options_of(kind, f"{entry.distribution}:{entry.name}")
            assert row["usage"].startswith(f"{entry.name}(")
            assert row["doc"].startswith(row["summary"] or "?"), entry.name
            named = set(re.findall(r"[(, ](\w+)", row["usage"])) | set(re.findall(r"^    (\w+):", row["doc"], re.M))
            hidden = given - {"layers"} if entry.name == "hf" else given  # where it is a number of layers
            assert not hidden & named, row["usage"]
            if kind == "tasks":  # including options of the base classes
                assert set(re.findall(r"[(, ](\w+)=", row["usage"])) <= set(signature(registry.load(entry)).parameters)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell, call):
    script = call("completion", shell).out
    assert script.startswith("autoload") == (shell == "zsh")
    if shell == "zsh":
        return
    cases = ("zoo fi", 1, "fit"), ("zoo fit --algebra quat", 3, "quaternion"), ("zoo fit --optim", 2, "--optimizer.lr")
    for line, index, completion in cases:
        words = f"COMP_WORDS=({line}); COMP_CWORD={index}; _zoo; printf '%s\\n' ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", f"{script}\n{words}"], capture_output=True, text=True, check=True)
        assert completion in done.stdout.split(), (line, done.stdout)


# --- errors ---


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "disk/x"), 2, "Permission denied (disk/x)"),
        (OSError(errno.ENOSPC, "No space left on device", "runs/a"), 1, "No space left on device (runs/a)"),
        (OSError(errno.ENOSPC, "No space left on device", "a", None, "site/a"), 1, "No space left on device (site/a)"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=repr,
)
def test_exit_codes_and_messages(error, code, message, monkeypatch, call):
    def fail(words):
        raise error

    monkeypatch.setattr("zoo.cli.commands.dispatch", fail)
    answer = call("list")
    line, *more = answer.err.splitlines()
    assert (answer.code, line) == (code, f"zoo: {message}")
    assert more == []


# --- as a process ---


def test_python_m_zoo():
    done = python("-m", "zoo", "list", "algebras")
    assert (done.returncode, "quaternion" in done.stdout, done.stderr) == (0, True, "")
    done = python("-m", "zoo", "fitt")
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    done = python("-m", "zoo", "fitt", "--debug")
    assert (done.returncode, "Traceback" in done.stderr) == (1, True)


def test_closed_pipe_is_not_an_error():
    """As in ``zoo list | head -0``, the pipe is closed before the first byte."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run([sys.executable, "-m", "zoo", "list"], stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (done.stderr, done.returncode) == (b"", 0)


def test_json_contains_no_infinity(capsys):
    Result({"loss": 1.5, "more": [float("inf"), float("nan")]}, "").show(as_json=True)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"loss": 1.5, "more": [None, None]}


def test_tables_are_not_truncated_in_a_pipe(call):
    out = call("info", "--backbone", "timm/convnext_atto", "--algebra", "quaternion").out
    assert "stages.1.blocks.0.mlp.fc1 " in out
    assert "…" not in out


CPU = ("--trainer.accelerator", "cpu")
WORDS = "fit --backbone vit(dim=16,depth=1,heads=1) --algebra real --run-dir run --keep 2 --trainer.max_epochs 2 "
WORDS += "--trainer.limit_train_batches 2 --trainer.limit_val_batches 1"


@pytest.fixture
def run(call):
    assert call(*WORDS.split(), *CPU).code == 0
    return Path("run")


def test_average(call, refused, run):
    code, out, err = call("average", run, "--last", "2", *CPU)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("validation", "test"))]
    assert {(row[0], row[1]) for row in rows} >= {("validation", "loss"), ("test", "loss"), ("test", "accuracy")}
    assert all(len(row) == 4 for row in rows)
    assert "zoo test run/average" in out
    (loss,) = [row[3] for row in rows if row[:2] == ["test", "loss"]]
    assert json.loads(call("test", "run/average", "--json", *CPU).out)["loss"] == pytest.approx(float(loss), abs=1e-4)
    result = json.loads(call("average", run, "--last=1", "--out", "other", "--json", *CPU).out)
    assert (result["averaged"], result["folder"]) == (["epoch-0002.ckpt"], "other")
    assert "has 2 kept checkpoints" in refused("average", run, "--out", "third")
    assert "'nothing'" in refused("average", "nothing")


def test_recover(call, refused, run):
    assert "already has a model" in refused("recover", run)
    shutil.rmtree(run / "model")
    code, out, err = call("recover", run)
    assert (code, err) == (0, "")
    assert "the model of epoch" in out
    assert call("test", run, *CPU).code == 0


def test_verify(call, refused, run):
    code, out, err = call("verify", run)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert all(line.startswith("ok ") for line in lines)
    files = {str(path) for path in run.rglob("*") if path.is_file() and path.parent.name != "model"}
    assert {line.split()[1] for line in lines} == files | {"run/model"}
    assert call("verify", "run/model").code == 0
    damaged = run / "model/model.safetensors", min(run.glob("checkpoints/*.ckpt"))
    for path in damaged:
        data = path.read_bytes()
        path.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    code, out, err = call("verify", run, "--json")
    assert (code, err) == (1, "")
    assert [row["file"] for row in json.loads(out) if row["status"] == "damaged"] == ["run/model", str(damaged[1])]
    assert "'nowhere'" in refused("verify", "nowhere")
