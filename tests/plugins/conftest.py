"""What the tests of Triton kernels share."""

import pytest


@pytest.fixture
def nothing_remembered(tmp_path, monkeypatch):
    """Compile kernels in a folder of the test, and ask again whether Triton can be used."""
    from zoo_gpu.assembly import missing

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    missing.cache_clear()
    yield
    missing.cache_clear()
