"""Fixtures for the compiled operators."""

from pathlib import Path

import pytest

from zoo.kernels import compiled


@pytest.fixture(scope="session")
def built() -> str:
    """Return the compiled library from the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_state", {})
        patch.setenv("ZOO_FUSED", "1")
        if not compiled.is_available():
            pytest.skip(compiled.status())
        return compiled._state["loaded"]


@pytest.fixture
def library(built: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the compiled library in this test."""
    monkeypatch.setattr(compiled, "_state", {"loaded": built})
    return Path(built)
