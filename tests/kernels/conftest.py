"""Fixtures for the compiled operators."""

from pathlib import Path

import pytest

from zoo.kernels import compiled


@pytest.fixture(scope="session")
def built() -> str:
    """Return the compiled library from the user's cache.

    It is an error if GCC expands an operation on vectors that the processor lacks; Clang has no such warning and ignores it.
    """
    if compiled.compiler() is None:
        pytest.skip("no C++ compiler")
    flags = [flag for flag in compiled.flags() if flag != "-w"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_state", {})
        patch.setattr(compiled, "flags", lambda: [*flags, "-Werror=vector-operation-performance"])
        patch.setenv("ZOO_FUSED", "1")
        assert compiled.is_available(), compiled.status()
        return compiled._state["loaded"]


@pytest.fixture
def library(built: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the compiled library in this test."""
    monkeypatch.setattr(compiled, "_state", {"loaded": built})
    return Path(built)
