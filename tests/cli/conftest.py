"""Call the command line in this process from an empty folder."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

import zoo
from tests.registry.conftest import environment  # noqa: F401 (a fixture)
from zoo.cli import main


class Answer(NamedTuple):
    """Exit code and output of a call."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Call ``zoo`` with these words in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Answer:
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def refused(call: Callable[..., Answer], tmp_path: Path) -> Callable[..., str]:
    """Call ``zoo`` with invalid input and return its message; no files may be left behind."""

    def files() -> list[Path]:
        return sorted(path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts)

    def run(*words: object) -> str:
        before = files()
        code, out, err = call(*words)
        assert code == 2, (code, err)
        assert out == ""
        lines = err.splitlines()
        assert len(lines) == 1, err
        assert lines[0].startswith("zoo: ")
        assert len(lines[0]) < 500
        assert "Traceback" not in err
        assert files() == before
        return lines[0].removeprefix("zoo: ")

    return run


@pytest.fixture(scope="session")
def trained_vit(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Train a network for two steps, cached per session, and return its run."""
    runs: dict[tuple[str, str], Path] = {}

    def train(backbone: str, algebra: str) -> Path:
        if (backbone, algebra) not in runs:
            folder = runs[backbone, algebra] = tmp_path_factory.mktemp("trained") / "run"
            limits = dict.fromkeys(("limit_train_batches", "limit_val_batches", "limit_test_batches"), 2)
            trainer = {"max_epochs": 1, "accelerator": "cpu", "logger": False} | limits
            with redirect_stdout(io.StringIO()):
                zoo.fit(backbone=backbone, algebra=algebra, run_dir=str(folder), trainer=trainer)
        return runs[backbone, algebra]

    return train


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Set standard input to bytes."""

    def feed(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))

    return feed
