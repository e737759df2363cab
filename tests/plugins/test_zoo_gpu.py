"""The Triton kernels in their interpreter, compiled without a device, and where they are not used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from zoo_gpu import assembly

import zoo
from tests.errors import raises
from zoo.algebras import literal
from zoo.cli import main
from zoo.nn import Linear, set_kernel

triton = pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    missing = assembly.missing
    missing.cache_clear()
    yield
    missing.cache_clear()


def test_interpreter():
    # Triton decides when it is imported, and so does what imports it.
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/plugins/triton_interpreted.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def assembly_code(function, capability, vector=8, padded=False, **constants):
    """Compile a kernel from float32 components to bfloat16 matrices."""
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    rows, columns = assembly.TILE
    values = {"IN": tl.float32, "OUT": tl.bfloat16, "V": vector, "PADDED": padded, "TP": rows, "TQ": columns} | constants
    values = {name: value for name, value in values.items() if name in function.arg_names}
    types = dict.fromkeys(function.arg_names, "i64") | {"meta": "*i32", "tiles": "*i32", "partial": "*fp32"}
    signature = {name: "constexpr" if name in values else types[name] for name in function.arg_names}
    places = {(function.arg_names.index(name),): value for name, value in values.items()}
    source = ASTSource(fn=function, signature=signature, constexprs=places)
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


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("spec", ["octonion", "phm-4"])
def test_large_kernels_compile(spec, capability):
    test_kernels_compile_to_accesses_of_16_bytes(spec, capability)


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
