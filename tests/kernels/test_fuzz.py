"""The compiled operators check all operands: random calls, in a slow test under AddressSanitizer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.fuzz import OPERATORS, fuzz
from zoo.kernels import compiled


@pytest.mark.filterwarnings("ignore::UserWarning")  # of casts of complex numbers and of sparse tensors
@pytest.mark.parametrize("operator", OPERATORS)
def test_random_calls(library: Path, operator: str) -> None:
    assert fuzz(operator, 200) > 50


@pytest.mark.slow
def test_random_calls_under_address_sanitizer(built: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without libstdc++ the runtime does not find the function that throws exceptions.
    libraries = ("libasan.so", "libstdc++.so")
    found = [
        subprocess.check_output([str(compiled.compiler()), f"-print-file-name={name}"], text=True).strip() for name in libraries
    ]
    if not all(Path(path).is_absolute() for path in found):
        pytest.skip("no AddressSanitizer")
    flags = [*compiled.flags(), "-fsanitize=address", "-fno-omit-frame-pointer", "-O1"]
    monkeypatch.setattr(compiled, "flags", lambda: flags)
    monkeypatch.setattr(compiled, "SECONDS", 1800)
    compiled.compile_library(path := tmp_path / "sanitized.so")
    options = "detect_leaks=0:allocator_may_return_null=1:symbolize=0"
    environment = {**os.environ, "LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": options}
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.fuzz", str(path), "10000"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr[:4000]
    assert len(result.stdout.splitlines()) == len(OPERATORS)
