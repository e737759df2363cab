"""Triton's kernel: in its interpreter, by its compiler without a device, on a GPU if there is one; where it is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import zoo
from tests.kernels.test_products import definition, given
from zoo.cli import main
from zoo.errors import InputError
from zoo.kernels import axis_layout, plan, triton_linear
from zoo.kernels.plan import Accelerator, Work
from zoo.layers import Linear, set_kernel

triton = pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]
GPU = Accelerator(speed=6e14, fused=5e14, grouped=2e14, fused_training=4e14, grouped_training=2e14, traffic=2e12, call=1e-5)


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    caches = triton_linear.missing, plan._measured, plan._measured_gpu
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


def test_in_the_interpreter(tmp_path):
    # Triton decides when it is imported, and so does what imports it.
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/kernels/interpreted.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize(("capability", "dtype"), [(80, "fp32"), (90, "bf16")])
def test_the_compiler_takes_it_without_a_device(capability, dtype):
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
    structure, factors, *tensors, out, inp = given(spec, *sizes, (1000,), dtype)
    x, w, bias = (t.detach().cuda().requires_grad_() for t in tensors)
    y = triton_linear.triton_linear(x, w, triton_linear.constants(factors), out, inp, bias)
    g = torch.randn_like(y)
    exact = [t.detach().double().requires_grad_() for t in (x, w, bias)]
    wanted = definition(structure.double().cuda(), *exact, out, inp)
    pairs = [(y, wanted)]
    pairs += zip(torch.autograd.grad(y, (x, w, bias), g), torch.autograd.grad(wanted, exact, g.double()), strict=True)
    for one, other in pairs:
        assert (one.double() - other).abs().max() < bound * other.abs().max()


needs_none = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@needs_none
def test_it_is_refused_without_a_device(capsys):
    with pytest.raises(InputError, match="is for CUDA devices, and torch sees no CUDA device: use auto"):
        set_kernel(Linear(zoo.algebra("quaternion"), 8, 8).modules(), "triton")
    given = ["fit", "--backbone", "vit", "--algebra", "quaternion", "--kernel", "triton"]
    assert main(given) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_it_is_refused_without_triton(monkeypatch):
    monkeypatch.setattr(triton_linear, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="Triton is not installed"):
        set_kernel([], "triton")


def test_it_is_refused_for_a_run_on_the_processor(monkeypatch, capsys):
    monkeypatch.setattr("zoo.layers.kernel_choice.missing", lambda: None)
    given = ["fit", "--backbone", "vit", "--algebra", "quaternion", "--kernel", "triton", "--trainer.accelerator", "cpu"]
    assert main(given) == 2
    assert "the accelerator is cpu" in capsys.readouterr().err


def work(rows, size, n=4, rank=8, training=True):
    return Work(rows, axis_layout(size, n), axis_layout(size, n), n, rank, training, 2)


def test_on_a_gpu_the_plan_needs_numbers_that_were_measured_there(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Device 1")
    wide = work(16384, 4096)
    assert plan.choose_on_gpu(wide, torch.bfloat16) == "block"
    plan._measured_gpu.cache_clear()
    (tmp_path / "kernels.json").write_text(json.dumps({"Device 1, bfloat16": GPU._asdict()}))
    assert plan.choose_on_gpu(wide, torch.bfloat16) == "triton"
    assert plan.choose_on_gpu(wide, torch.float16) == "block"
    assert plan.choose_on_gpu(work(16384, 4096, rank=None), torch.bfloat16) == "block"
    assert plan.choose_on_gpu(work(0, 4096), torch.bfloat16) == "block"
    # 8 groups of terms at a third of the speed, for less than half of the operations
    assert plan.choose_on_gpu(work(16384, 4096, n=8, rank=30), torch.bfloat16) == "block"
    assert plan.this_machine() == plan.Machine()
