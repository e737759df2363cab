"""The command line, called in this process from an empty folder."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from zoo.cli import main


class Answer(NamedTuple):
    """What a call left behind."""

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
    """Call ``zoo`` with something wrong and return the one line it says; nothing may be left behind."""

    def run(*words: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        code, out, err = call(*words)
        assert code == 2, (code, err)
        assert out == ""
        lines = err.splitlines()
        assert len(lines) == 1, err
        assert lines[0].startswith("zoo: ")
        assert len(lines[0]) < 500
        assert "Traceback" not in err
        assert sorted(tmp_path.rglob("*")) == before
        return lines[0].removeprefix("zoo: ")

    return run


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Put bytes into standard input."""

    def feed(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))

    return feed
