"""Fixtures: a model folder, a local server and an empty cache."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from tests.faults.hostile import write_sound
from tests.hub.server import Hub, serving
from zoo.hub import cache


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "model"
    write_sound(folder)
    return folder


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    """A copy of the model folder that a test may change."""
    return copytree(sound, tmp_path / "given")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, with short pauses between retries."""
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    for name in ("ZOO_CATALOGUE", "ZOO_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache, "PAUSE", 0.001)
    return tmp_path / "home"


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    with serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home.parent / "hub"))
        monkeypatch.setenv("HF_HUB_CACHE", str(home.parent / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_TOKEN", "")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server
