"""The Triton kernels in their interpreter, compiled without a device, and where they are not used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from zoo_gpu import assembly, factored

import zoo
from tests.errors import raises
from zoo.algebras import factor_literals, literal
from zoo.cli import main
from zoo.kernels import Work, axis_layout
from zoo.kernels.base import gpu_status, plan, real_cost
from zoo.nn import Linear, set_kernel

triton = pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("nothing_remembered")


INTERPRETED = ("triton_interpreted.py", "triton_factored.py", "thin_and_flash_interpreted.py")


def test_interpreter():
    # Triton decides when it is imported, and so does what imports it.
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    files = [f"tests/plugins/{name}" for name in INTERPRETED]
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    assert all(name in done.stdout for name in files), done.stdout


def assembly_code(function, capability, vector=8, padded=False, **constants):
    """Compile a kernel from float32 components to bfloat16 matrices."""
    import triton.language as tl

    rows, columns = assembly.TILE
    values = {"IN": tl.float32, "OUT": tl.bfloat16, "V": vector, "PADDED": padded, "TP": rows, "TQ": columns} | constants
    values = {name: value for name, value in values.items() if name in function.arg_names}
    types = dict.fromkeys(function.arg_names, "i64") | {"meta": "*i32", "tiles": "*i32", "partial": "*fp32"}
    return compiled_code(function, capability, types, values)


def compiled_code(function, capability, types, values, aligned=()):
    """Compile a kernel for arguments of these types, of which some are multiples of 16 bytes, and constants."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: "constexpr" if name in values else types[name] for name in function.arg_names}
    places = {(function.arg_names.index(name),): value for name, value in values.items()}
    attributes = {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(fn=function, signature=signature, constexprs=places, attrs=attributes)
    options = {"enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("spec", ["complex", "quaternion", "phm(n=2)"])
def test_kernels_compile_to_accesses_of_16_bytes(spec, capability):
    from zoo_gpu.source import kernels

    algebra = zoo.algebra(spec)
    assemble, gradient = (assembly_code(kernel, capability) for kernel in kernels(literal(algebra), algebra.n, algebra.n))
    for code, tiles in ((assemble, algebra.m), (gradient, algebra.n**2)):
        assert code.count("ld.global.v4") >= tiles
    for code, tiles in ((assemble, algebra.n**2), (gradient, algebra.m)):
        assert code.count("st.global.v4") >= tiles


def test_other_variants_compile():
    from zoo_gpu.source import kernels, sum_tiles

    assemble, gradient = kernels(literal(zoo.algebra("complex")), 2, 2)
    for kernel in (assemble, gradient):
        assert "st.global" in assembly_code(kernel, 90, vector=1, padded=True)
    assert "st.global" in assembly_code(sum_tiles, 90, SIZE=64, WIDTH=64)


def combining_code(text, capability, transposed, learned=False, vector=8, types=("*bf16", "*bf16")):
    function = factored.combination(text, learned, transposed)
    types = dict.fromkeys(function.arg_names, "i32") | dict(zip("xy", types, strict=True)) | {"f": "*fp32"}
    return compiled_code(function, capability, types, {"V": vector, "LANES": factored.LANES}, ("x", "y", "f")[: 2 + learned])


def accesses(code):
    return tuple(code.count(f"{kind}.global.v4") for kind in ("ld", "st"))


@pytest.mark.parametrize("capability", [80, 90, 100])
def test_combinations_compile_to_accesses_of_16_bytes(capability):
    left, right, result = factor_literals(zoo.algebra("quaternion"))
    assert accesses(combining_code(right, capability, False)) == (4, 8)
    assert accesses(combining_code(result, capability, True)) == (8, 4)
    assert accesses(combining_code(left, capability, False, types=("*fp32", "*bf16"))) == (8, 8)
    assert accesses(combining_code(left, capability, True, types=("*bf16", "*fp32"))) == (8, 8)
    learned = combining_code("9 4", capability, False, learned=True)
    assert (learned.count("ld.global.v4") >= 4, learned.count("st.global.v4")) == (True, 9)
    assert accesses(combining_code(left, capability, False, vector=1)) == (0, 0)


# Forward and backward, 16,384 rows, bfloat16, to the real layer on an H100: shape and dimension, and what the prototype took.
MEASURED = {
    (2048, 2048, 4, 8): 2.07,
    (2048, 8192, 4, 8): 0.91,
    (4096, 4096, 4, 8): 0.86,
    (4096, 16384, 4, 8): 0.67,
    (8192, 8192, 4, 8): 0.65,
    (2048, 8192, 8, 30): 1.19,
    (4096, 4096, 8, 30): 1.09,
    (4096, 16384, 8, 30): 0.78,
    (8192, 8192, 8, 30): 0.75,
}


def gpu_work(inp, out, n, rank, rows=16_384, **options):
    work = Work(rows, axis_layout(out, n), axis_layout(inp, n), n, rank, training=True, dtype=torch.bfloat16, device="cuda")
    return work._replace(**options)


def test_the_plan_for_gpus_takes_what_was_measured_to_be_faster(monkeypatch):
    for shape, ratio in MEASURED.items():
        work = gpu_work(*shape)
        kernel = plan(work, elsewhere=True)
        assert (kernel.name == "bmm") == (ratio < 1)
        if ratio < 1:
            assert kernel.cost(work) / real_cost(work) == pytest.approx(ratio, abs=0.06)
    wide = gpu_work(8192, 8192, 4, 8)
    for change in ({"rows": 4096}, {"training": False}, {"dtype": torch.float32}, {"dtype": torch.float16}, {"learned": True}):
        assert plan(wide._replace(**change), elsewhere=True).name == "block"
    assert plan(gpu_work(2**17, 2**17, 2, 3), elsewhere=True).name == "block"  # complex numbers were not measured
    assert plan(wide._replace(device="mps"), elsewhere=True).name == "block"
    monkeypatch.setattr(assembly, "find_spec", lambda name: None)
    assert plan(wide).name == "block"


def test_the_status_of_a_gpu_names_the_kernel_or_the_reason(monkeypatch):
    monkeypatch.setattr(assembly, "find_spec", lambda name: None)
    assert gpu_status() == "block, in torch operations: Triton is not installed"
    monkeypatch.setattr(factored, "missing", lambda: None)
    assert gpu_status() == "bmm in training of wide layers in bfloat16, else block"


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("spec", ["octonion", "phm-4"])
def test_large_kernels_compile(spec, capability):
    test_kernels_compile_to_accesses_of_16_bytes(spec, capability)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_large_combinations_compile(capability):
    for text in factor_literals(zoo.algebra("octonion")):
        assert accesses(combining_code(text, capability, False)) == (8, 30)
        assert accesses(combining_code(text, capability, True)) == (30, 8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_error_without_a_device(capsys):
    command = ["fit", "--backbone", "vit", "--algebra", "quaternion", "--kernel", "triton"]
    assert main(command) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_error_without_triton(monkeypatch):
    monkeypatch.setattr(assembly, "find_spec", lambda name: None)
    with raises("unsupported", "Triton is not installed"):
        set_kernel([], "triton")


def test_without_triton_the_definition_assembles(monkeypatch):
    monkeypatch.setattr(assembly, "find_spec", lambda name: None)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    part = Linear(8, 8, algebra=zoo.algebra("quaternion")).weight_module.part()
    assert assembly.Triton().matrices([part], torch.float32) is None


def test_old_devices_and_long_products_are_not_supported(monkeypatch):
    monkeypatch.setattr(assembly, "missing", lambda: None)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    parts = {
        spec: Linear(32, 32, algebra=zoo.algebra(spec)).weight_module.part() for spec in ("quaternion", "octonion", "sedenion")
    }
    assert [assembly.supports(part, torch.bfloat16) for part in parts.values()] == [True, True, False]
    monkeypatch.setattr(assembly, "is_recent", lambda device: False)
    assert not assembly.supports(parts["quaternion"], torch.bfloat16)
