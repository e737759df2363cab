"""Every run gets a folder of its own, whoever else starts at the same moment."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from zoo.errors import InputError
from zoo.training.folder import claim, telling_name, write_config
from zoo.training.options import Fit, build

OPTIONS = Fit("vit(dim=64)", "phm(n=4)", "digits", seed=1)


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # claim() tells other ranks where to write; the variable must not outlive the test.
    monkeypatch.setenv("ZOO_RUN_FOLDER", "")


def test_the_second_of_a_name_gets_a_number():
    assert [claim(OPTIONS) for _ in range(3)] == [Path("runs", telling_name(OPTIONS) + end) for end in ("", "-2", "-3")]


def test_runs_that_start_at_once_share_no_folder():
    with ThreadPoolExecutor(16) as pool:
        folders = list(pool.map(lambda _: claim(OPTIONS), range(32)))
    assert len(set(folders)) == 32
    assert all(folder.is_dir() for folder in folders)


@pytest.mark.parametrize("place", ["mine", "a/b/c"])
def test_a_chosen_folder_is_made(place):
    assert claim(replace(OPTIONS, run_dir=place)) == Path(place)
    assert list(Path(place).iterdir()) == []


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert claim(replace(OPTIONS, run_dir="~/mine")) == tmp_path / "mine"


def test_a_chosen_folder_that_is_empty_is_taken_as_it_is():
    Path("mine").mkdir()
    assert claim(replace(OPTIONS, run_dir="mine")) == Path("mine")


def test_a_folder_with_something_in_it_is_refused_and_left_alone():
    Path("mine").mkdir()
    Path("mine/note").write_text("keep")
    with pytest.raises(InputError, match=r"'mine' is not empty.*--run-dir"):
        claim(replace(OPTIONS, run_dir="mine"))
    assert Path("mine/note").read_text() == "keep"


@pytest.mark.parametrize("place", ["file", "file/inside"])
def test_a_file_in_the_way(place):
    Path("file").touch()
    with pytest.raises(InputError, match=f"cannot create the run folder '{place}'.*--run-dir"):
        claim(replace(OPTIONS, run_dir=place))


def test_a_file_called_runs_in_the_way():
    Path("runs").touch()
    with pytest.raises(InputError, match=r"cannot create the run folder 'runs.*--run-dir"):
        claim(OPTIONS)


def test_another_rank_writes_where_rank_0_does(monkeypatch):
    first = claim(OPTIONS)
    assert os.environ["ZOO_RUN_FOLDER"] == str(first)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert claim(OPTIONS) == first
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert claim(OPTIONS) != first


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (OPTIONS, "vit-dim64-phm-n4-digits-seed1"),
        (Fit("timm/resnet18", "quaternion", "npz(path='../a b/c.npz')"), "timm-resnet18-quaternion-npz-path-c.npz-seed0"),
        (Fit("vit", "real", "digits", scope="attention"), "vit-real-attention-digits-seed0"),
    ],
)
def test_names(options, name):
    assert telling_name(options) in (name, name.replace("path-", "path"))


@pytest.mark.parametrize(
    "data", ["imagefolder(path='" + "x" * 300 + "')", "npz(path='../../../etc')", "npz(path='a\\nb\\x00')"]
)
def test_a_name_is_one_plain_folder_whatever_the_data_are_called(data):
    name = telling_name(Fit("vit", "real", data))
    assert len(name) <= 120
    assert Path(name).name == name
    assert not name.startswith((".", "-"))
    assert all(letter.isalnum() or letter in "_.-" for letter in name)


def test_the_seed_is_in_every_name():
    data = "imagefolder(path='" + "x" * 300 + "')"
    assert telling_name(Fit("vit", "real", data, seed=1)) != telling_name(Fit("vit", "real", data, seed=2))


def test_what_is_written_builds_the_same_options(tmp_path):
    options = replace(OPTIONS, trainer={"max_epochs": 2, "devices": [0, 1]}, run_dir="mine", ckpt_path="x.ckpt")
    write_config(tmp_path, options)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    values = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert build(Fit, values) == replace(options, run_dir=None, ckpt_path=None)
