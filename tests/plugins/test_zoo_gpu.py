"""The Triton kernel in its interpreter, compiled without a device, and its errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from zoo_gpu import triton_linear

from tests.errors import raises
from zoo.cli import main
from zoo.nn import set_kernel

triton = pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    triton_linear.missing.cache_clear()
    yield
    triton_linear.missing.cache_clear()


def test_interpreter():
    # Triton decides when it is imported, and so does what imports it.
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/plugins/triton_interpreted.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_compiles_without_a_device():
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from zoo_gpu.bilinear import bilinear

    signs = (1.0, -1.0, 1.0, 0.0, 0.0, 2.0)
    constants = dict.fromkeys(("A_FACTOR", "B_FACTOR", "OUT_FACTOR"), signs)
    constants |= {"A_COUNT": 2, "B_COUNT": 2, "OUT_COUNT": 2, "RANK": 3}
    constants |= {"TILE": 32, "DEPTH": 32, "PRECISION": "tf32", "WIDEN": False}
    signature = dict.fromkeys(("a", "b", "out"), "*bf16") | {"sizes": ("i32",) * 3}
    signature |= dict.fromkeys(("a_strides", "b_strides", "out_strides"), ("i32",) * 3) | dict.fromkeys(constants, "constexpr")
    places = {(bilinear.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=bilinear, signature=signature, constexprs=places)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": True})
    assert "mma" in compiled.asm["ptx"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_error_without_a_device(capsys):
    command = ["fit", "--backbone", "vit", "--algebra", "quaternion", "--kernel", "triton"]
    assert main(command) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_error_without_triton(monkeypatch):
    monkeypatch.setattr(triton_linear, "find_spec", lambda name: None)
    with raises("unsupported", "Triton is not installed"):
        set_kernel([], "triton")
