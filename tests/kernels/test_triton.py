"""The Triton kernel in its interpreter, compiled without a device, on a GPU if available, and its errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import zoo
from tests.errors import raises
from tests.kernels.test_products import definition, make_case
from zoo.cli import main
from zoo.kernels import triton_linear
from zoo.layers import Linear, set_kernel

triton = pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    triton_linear.missing.cache_clear()
    yield
    triton_linear.missing.cache_clear()


def test_interpreter(tmp_path):
    # Triton decides when it is imported, and so does what imports it.
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/kernels/interpreted.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize(("capability", "dtype"), [(80, "fp32"), (90, "bf16")])
def test_compiles_without_a_device(capability, dtype):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from zoo.kernels.triton_product import bilinear

    signs = (((0, 1.0), (1, -1.0)), ((0, 1.0),), ((1, 2.0),))
    constants = {"LEFT": signs, "RIGHT": signs, "RESULT": ((1.0, 0.0, 1.0), (0.0, -1.0, 1.0)), "COMPONENTS": (2, 2)}
    constants |= {"BLOCKS": (64, 16, 16), "GROUP": 2, "HAS_BIAS": True, "PRECISION": "tf32", "WIDEN": False}
    tensors, axes = ("a", "b", "out", "bias"), ("i32", ("i32",) * 4, ("i32",) * 4)
    signature = dict.fromkeys(tensors, f"*{dtype}") | {"sizes": ("i32",) * 3, "shares": ("i32",) * 2}
    signature |= dict.fromkeys(("a_axes", "b_axes", "out_axes"), axes) | dict.fromkeys(constants, "constexpr")
    places = {(bilinear.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=bilinear, signature=signature, constexprs=places)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"enable_fp_fusion": True})
    assert "mma" in compiled.asm["ptx"]
    assert compiled.asm["cubin"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2), (torch.float16, 5e-3)], ids=str)
@pytest.mark.parametrize(("spec", "sizes"), [("quaternion", ((256, 1), (192, 1))), ("octonion", ((30, 3), (44, 2)))])
def test_on_a_gpu(spec, sizes, dtype, bound):
    structure, factors, *tensors, out, inp = make_case(spec, *sizes, (1000,), dtype)
    x, w, bias = (t.detach().cuda().requires_grad_() for t in tensors)
    y = triton_linear.triton_linear(x, w, triton_linear.constants(factors), out, inp, bias)
    g = torch.randn_like(y)
    exact = [t.detach().double().requires_grad_() for t in (x, w, bias)]
    expected = definition(structure.double().cuda(), *exact, out, inp)
    pairs = [(y, expected)]
    pairs += zip(torch.autograd.grad(y, (x, w, bias), g), torch.autograd.grad(expected, exact, g.double()), strict=True)
    for one, other in pairs:
        assert (one.double() - other).abs().max() < bound * other.abs().max()


needs_none = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@needs_none
def test_error_without_a_device(capsys):
    with raises("unsupported", "no CUDA device"):
        set_kernel(Linear(zoo.algebra("quaternion"), 8, 8).modules(), "triton")
    command = ["fit", "--backbone", "vit", "--algebra", "quaternion", "--kernel", "triton"]
    assert main(command) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_error_without_triton(monkeypatch):
    monkeypatch.setattr(triton_linear, "find_spec", lambda name: None)
    with raises("unsupported", "Triton is not installed"):
        set_kernel([], "triton")


def test_error_for_a_cpu_run(monkeypatch, capsys):
    monkeypatch.setattr(triton_linear.Triton, "missing", lambda self: None)
    command = ["fit", "--backbone", "vit", "--algebra", "quaternion", "--kernel", "triton", "--trainer.accelerator", "cpu"]
    assert main(command) == 2
    assert "the accelerator is cpu" in capsys.readouterr().err
