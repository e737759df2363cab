"""Run folders with files that block, never end or expand: resuming and verifying them ends in time, with one line."""

import csv
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

import zoo
from tests.conftest import TINY
from tests.faults.test_hostile_models import bounded, run
from zoo.checkpoint.run_config import read_run_config
from zoo.errors import InputError
from zoo.training.checkpoints import MetricsTable
from zoo.training.resume import newest
from zoo.training.runs import verify

LARGE = 2**40
Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Return the folder of a finished run with two checkpoints."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    trainer = {"max_epochs": 2, "limit_train_batches": 1, "limit_val_batches": 1, "limit_test_batches": 1, "accelerator": "cpu"}
    zoo.fit(backbone=TINY, algebra="quaternion", data="digits", run_dir=str(folder), trainer=trainer)
    return folder


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    return copytree(trained, tmp_path / "run")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def extend(path: Path) -> None:
    os.truncate(path, LARGE)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


UNREADABLE: tuple[Change, ...] = (pipe, extend, link, device)


@pytest.mark.parametrize("change", UNREADABLE)
def test_an_unreadable_checkpoint_is_skipped(folder, capsys, change):
    first, last = sorted((folder / "checkpoints").iterdir())
    change(last)
    with bounded():
        assert newest(folder)[0] == first
    assert last.name in capsys.readouterr().err
    first.unlink()
    with bounded(), pytest.raises(InputError, match="no previous checkpoint is intact"):
        newest(folder)


def test_a_checkpoint_that_expands_is_refused(folder):
    path = sorted((folder / "checkpoints").iterdir())[-1]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2**28))
    path.write_bytes(content.getvalue() + hashlib.sha256(content.getvalue()).digest())
    with bounded():
        rows = {Path(row["file"]).name: row for row in verify(folder)}
    assert rows[path.name]["status"] == "damaged"
    assert "expands" in rows[path.name]["note"]


@pytest.mark.parametrize("change", UNREADABLE)
def test_an_unreadable_table_of_metrics_has_no_rows(folder, change):
    assert MetricsTable(folder, 99).rows
    change(folder / "metrics.csv")
    with bounded():
        assert MetricsTable(folder, 99).rows == []


@pytest.mark.parametrize("change", UNREADABLE)
def test_an_unreadable_configuration_is_refused(folder, change):
    change(folder / "config.yaml")
    with bounded(), pytest.raises(InputError, match=r"config\.yaml"):
        read_run_config(folder)
    with bounded():
        ended = run("fit", "--resume", str(folder))
    assert ended.is_clear, ended


@pytest.mark.parametrize("change", UNREADABLE)
@pytest.mark.parametrize("name", ["config.yaml", "metrics.csv", "summary.json", "checksums.json"])
def test_verify_finds_it(folder, name, change):
    change(folder / name)
    with bounded():
        ended = run("verify", str(folder))
    assert (ended.code, ended.err) == (1, "")
    (finding,) = [line for line in ended.out.splitlines() if not line.startswith("ok")]
    assert name in finding


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "tensorboard/../../secret", "checkpoints/x"])
def test_checksums_of_other_files_are_refused(folder, name):
    path = folder / "checksums.json"
    path.write_text(json.dumps({name: {"size": 1, "sha256": "0" * 64}}))
    assert [row["note"] for row in verify(folder) if row["status"] == "damaged"] == ["lists files that a run does not write"]


def test_aliases_that_multiply_are_refused(folder):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (folder / "config.yaml").write_text("\n".join(lines))
    with bounded():
        ended = run("fit", "--resume", str(folder))
    assert ended.is_clear, ended


def test_a_run_with_pipes_is_resumed(folder):
    """The newest checkpoint and metrics.csv are pipes: the run resumes from the previous checkpoint."""
    pipe(sorted((folder / "checkpoints").iterdir())[-1])
    pipe(folder / "metrics.csv")
    with bounded():
        ended = run("fit", "--resume", str(folder), "--trainer.max_epochs", "3")
    assert ended.code == 0, ended
    assert "using the previous checkpoint" in ended.err
    with (folder / "metrics.csv").open(newline="") as file:
        assert list(csv.DictReader(file))
