"""Run folders: names, locks, and the search of unfinished runs."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.errors import raises
from tests.faults.process import forked
from zoo.errors import InputError
from zoo.training.folder import LOCK, RunFolder, run_name, write_config
from zoo.training.folder import claim as claim_for
from zoo.training.options import Fit, config_values

OPTIONS = Fit("vit(dim=64)", "phm(n=4)", "digits", seed=1)


def claim(options: Fit) -> RunFolder:
    return claim_for(config_values(options), options.run_dir, options.resume)


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_repeated_names_are_numbered():
    name = run_name(config_values(OPTIONS))
    assert [claim(OPTIONS).path for _ in range(3)] == [Path("runs", name + end) for end in ("", "-2", "-3")]


def test_simultaneous_runs_get_different_folders():
    with ThreadPoolExecutor(16) as pool:
        folders = [folder.path for folder in pool.map(lambda _: claim(OPTIONS), range(32))]
    assert len(set(folders)) == 32
    assert all(folder.is_dir() for folder in folders)


@pytest.mark.parametrize("run_dir", ["a/b/c", "~/claimed"])
def test_a_given_folder_is_created(tmp_path, monkeypatch, run_dir):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with claim(replace(OPTIONS, run_dir=run_dir)) as folder:
        assert folder.path == Path(run_dir.replace("~", str(tmp_path / "home")))
        assert [path.name for path in folder.path.iterdir()] == [LOCK]
    assert list(folder.path.iterdir()) == []


def test_a_nonempty_folder_is_refused_and_unchanged():
    Path("claimed").mkdir()
    Path("claimed/note").write_text("keep")
    with raises("conflict", "'claimed'", "--run-dir"):
        claim(replace(OPTIONS, run_dir="claimed"))
    assert Path("claimed/note").read_text() == "keep"


@pytest.mark.parametrize("run_dir", ["file", "file/inside", None])
def test_a_file_in_place_of_a_folder(run_dir):
    Path("file" if run_dir else "runs").touch()
    with raises("failed", run_dir or "runs", "--run-dir"):
        claim(replace(OPTIONS, run_dir=run_dir))


def claim_and_wait(workdir: Path, connection: Connection) -> None:
    """Claim the folder ``claimed`` until the connection is closed."""
    os.chdir(workdir)
    try:
        with claim(replace(OPTIONS, run_dir="claimed")):
            connection.send("claimed")
            connection.recv()
    except InputError as error:
        connection.send(str(error))


def other_run(workdir: Path) -> tuple[BaseProcess, Connection]:
    """Start `claim_and_wait` in a new process."""
    parent, child = Pipe()
    process = forked(claim_and_wait, workdir, child)
    child.close()  # so that reading fails if the process fails
    return process, parent


def test_a_folder_is_locked_while_the_process_lives(tmp_path):
    options = replace(OPTIONS, run_dir="claimed")
    other, connection = other_run(tmp_path)
    assert connection.recv() == "claimed"
    with raises("busy", "'claimed'", "--run-dir"):
        claim(options)
    other.kill()  # without releasing the lock
    other.join()
    assert [path.name for path in Path("claimed").iterdir()] == [LOCK]
    with claim(options):
        _, connection = other_run(tmp_path)
        assert "another run is using 'claimed'" in connection.recv()


def test_a_folder_is_released_or_discarded():
    options = replace(OPTIONS, run_dir="claimed")
    for _ in range(2):
        with claim(options) as folder:
            pass
        assert list(folder.path.iterdir()) == []
    folder = claim(options)
    (folder.path / "metrics.csv").touch()
    folder.discard()
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (OPTIONS, "vit-phm-n4-digits-seed1"),
        (Fit("vit(dim=64, depth=2)", "phm-4", "digits(size=8)", seed=1), "vit-depth2-phm-n4-digits-size8-seed1"),
        (Fit("fasttext", "complex_order", "glosses", embedding="table"), "fasttext-complex_order-table-glosses-seed0"),
        (Fit("timm/resnet18", "quaternion", "npz(path='../a b/c.npz')"), "timm-resnet18-quaternion-npz-path-c.npz-seed0"),
        (Fit("vit", "real", "digits", scope="attention"), "vit-real-attention-digits-seed0"),
    ],
)
def test_names(options, name):
    assert run_name(config_values(options)) in (name, name.replace("path-", "path"))


@pytest.mark.parametrize(
    "data", ["imagefolder(path='" + "x" * 300 + "')", "npz(path='../../../etc')", "npz(path='a\\nb\\x00')"]
)
def test_names_are_safe_for_any_data(data):
    name = run_name(config_values(Fit("vit", "real", data)))
    assert len(name) <= 120
    assert Path(name).name == name
    assert not name.startswith((".", "-"))
    assert all(letter.isalnum() or letter in "_.-" for letter in name)
    assert name.endswith("-seed0")


@pytest.mark.parametrize("resume", [None, "auto"])
def test_the_folder_of_a_run_that_was_killed_before_it_wrote_config_yaml_is_reused(tmp_path, resume):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / LOCK).touch()
    (folder / ".config.yaml-abc").write_text("backbone: vi")
    with claim(replace(OPTIONS, run_dir=str(folder), resume=resume)):
        assert [path.name for path in folder.iterdir()] == [LOCK]


@pytest.mark.parametrize(
    ("change", "resumes"),
    [
        ({"ddp_timeout": 15.0, "num_workers": 2, "checkpoint_every": "1m"}, True),
        ({"label_smoothing": 0.1}, False),
    ],
    ids=str,
)
def test_auto_ignores_options_that_do_not_affect_results(change, resumes):
    options = replace(OPTIONS, trainer={"max_epochs": 2}, run_dir="claimed")
    with claim(options) as begun:
        write_config(begun.path, config_values(options))
        (begun.path / "checkpoints").mkdir()
        (begun.path / "checkpoints" / "resume-step-1.ckpt").touch()
    changed = replace(options, resume="auto", **change)
    if resumes:
        with claim(changed) as folder:
            assert folder.resumed
    else:
        with raises("conflict", "'claimed'"):
            claim(changed)


@pytest.mark.parametrize(("checkpoints", "newest"), [("checkpoints", "a"), ("fold-03/checkpoints", "b")])
def test_auto_resumes_the_newest_run_or_folds(checkpoints, newest):
    for name in ("a", "b"):
        with claim(replace(OPTIONS, run_dir=f"runs/{name}")) as begun:
            write_config(begun.path, config_values(OPTIONS))
            (begun.path / checkpoints).mkdir(parents=True)
            checkpoint = begun.path / checkpoints / "resume-step-1.ckpt"
            checkpoint.touch()
            os.utime(checkpoint, (name == newest, name == newest))
    with claim(replace(OPTIONS, resume="auto")) as folder:
        assert (folder.path.name, folder.resumed) == (newest, True)
