"""The fused operator against the definition in every layout and dtype, under torch transformations, and failing builds."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo.algebras import Factors
from zoo.kernels import Kernel, compiled, fused
from zoo.kernels.base import SPEEDS, AxisLayout, Work, kernels, plan
from zoo.kernels.block import real_matrix
from zoo.nn import Linear, set_kernel
from zoo.nn.kernel_choice import bound_call

IGNORE_TORCH = pytest.mark.filterwarnings("ignore:::torch")
TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.bfloat16: 2e-2}


class Case:
    """A product over a random algebra with random factors, and its definition in float64."""

    def __init__(
        self, n: int, m: int, rank: int, channels: tuple[int, int], blocks: tuple[int, int] = (1, 1), dtype: Any = torch.float64
    ) -> None:
        self.inp, self.out = (AxisLayout(c, n, b) for c, b in zip(channels, blocks, strict=True))
        self.wide = torch.promote_types(dtype, torch.float32)
        self.factors = [torch.randn(rank, size, dtype=self.wide) for size in (m, n, n)]
        self.w = torch.randn(m, self.out.elements, self.inp.elements, dtype=self.wide)
        self.bias = torch.randn(channels[1]).to(dtype)
        self.dtype = dtype

    def rows(self, *shape: int) -> Tensor:
        return torch.randn(*shape, self.inp.channels).to(self.dtype)

    def call(self, x: Tensor, w: Tensor, *rest: Tensor) -> Tensor:
        *factors, bias = rest
        return fused.fused_linear(x, w, Factors(*factors), self.out, self.inp, bias)

    def definition(self, x: Tensor, w: Tensor, *rest: Tensor) -> Tensor:
        *factors, bias = rest
        return F.linear(x, real_matrix(torch.einsum("ri,rj,rk->ijk", *factors), w, self.out, self.inp), bias)

    def check(self, x: Tensor) -> None:
        """Compare values and all gradients with the definition in float64, relative to the largest."""
        leaves = [t.detach().clone().requires_grad_() for t in (self.w, *self.factors, self.bias)]
        exact = [t.detach().double().requires_grad_() for t in (self.w, *self.factors, self.bias)]
        x, x64 = x.requires_grad_(), x.detach().double().requires_grad_()
        y, y64 = self.call(x, *leaves), self.definition(x64, *exact)
        g = torch.randn_like(y)
        actual, expected = torch.autograd.grad(y, (x, *leaves), g), torch.autograd.grad(y64, (x64, *exact), g.double())
        for a, b in zip((y, *actual), (y64, *expected), strict=True):
            error = (a.double() - b).abs().max() / b.abs().max()
            assert error < TOLERANCE[self.dtype], f"{error:.1e}"
        with torch.no_grad():
            combined = torch.ops.zoo.fused_combinations(x, self.w, self.factors[0])
            z = torch.ops.zoo.fused_combined(x, combined, *self.factors[1:], self.bias, self.out, self.inp)
            table = torch.einsum("ri,rj,rk->ijk", *self.factors).flatten(0, 1)
            every = torch.eye(self.inp.n, dtype=self.wide)
            pairs = torch.ops.zoo.fused_combined(x, self.w.to(self.dtype), every, table, self.bias, self.out, self.inp)
            for product in (z, pairs):
                assert (product.double() - y64).abs().max() / y64.abs().max() < TOLERANCE[self.dtype]


CASES = [
    (2, 2, 3, (64, 64), (1, 1), 70),
    (3, 3, 7, (7, 5), (1, 1), 1),
    (4, 4, 8, (210, 83), (1, 1), 2),
    (7, 7, 9, (470, 64), (1, 1), 1),
    (4, 4, 8, (22, 33), (2, 3), 130),
    (4, 4, 8, (256, 512), (1, 1), 5),
    (5, 2, 6, (203, 37), (1, 1), 600),
    (6, 1, 4, (48, 90), (2, 5), 33),
    (7, 7, 9, (15, 64), (1, 4), 2),
    (8, 8, 30, (130, 64), (1, 2), 65),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"n={case[0]}-{case[3][0]}x{case[3][1]}-{case[5]}rows")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_values_and_gradients_equal_the_definition(library: Path, case: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    *sizes, rows = case
    made = Case(*sizes, dtype=dtype)
    made.check(made.rows(rows))


def test_values_and_gradients_with_avx2(library: Path) -> None:
    """Compile and test the operator for AVX2 on a processor with AVX-512; torch reads the variable when it is imported."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("the other tests do not use AVX-512")
    test = f"{__file__}::{test_values_and_gradients_equal_the_definition.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command, env={**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}, capture_output=True, text=True, check=False
    )
    assert f"{len(CASES) * len(TOLERANCE)} passed" in done.stdout, done.stdout


@pytest.mark.parametrize("threads", [1, 3])
def test_thread_counts(library: Path, threads: int) -> None:
    torch.manual_seed(0)
    case, before = Case(4, 4, 8, (64, 48), dtype=torch.float32), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rows in (1, 31, 65, 1000):
            case.check(case.rows(rows))
        x = case.rows(1000)
        runs = [case.call(x, case.w, *case.factors, case.bias) for _ in range(3)]
        assert all(torch.equal(run, runs[0]) for run in runs)
    finally:
        torch.set_num_threads(before)


def test_strides_and_axes(library: Path) -> None:
    torch.manual_seed(0)
    case = Case(4, 4, 8, (24, 40))
    case.check(case.rows(3, 2, 5))
    case.check(case.rows(24, 7).transpose(0, 1))
    case.check(torch.randn(9, 50, dtype=torch.float64)[::2, 3:27])
    case.check(torch.randn(24, 9, dtype=torch.float64).T)
    case.check(torch.randn(1, 24, dtype=torch.float64).expand(6, 24).detach())
    x = case.rows(0).requires_grad_()
    y = case.call(x, case.w.requires_grad_(), *case.factors, case.bias)
    assert y.shape == (0, 40)
    y.sum().backward()
    assert not case.w.grad.any()  # type: ignore[union-attr]


def test_forked_process(library: Path) -> None:
    case = Case(4, 4, 8, (64, 64))
    x = case.rows(100)
    y, child = case.call(x, case.w, *case.factors, case.bias), os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if torch.equal(case.call(x, case.w, *case.factors, case.bias), y) else 1)
    assert os.waitpid(child, 0)[1] == 0


def leaves(*shape: int) -> tuple[Case, list[Tensor]]:
    torch.manual_seed(0)
    case = Case(3, 2, 5, (5, 8), (1, 2))
    return case, [t.requires_grad_() for t in (case.rows(*shape), case.w, *case.factors, case.bias)]


@IGNORE_TORCH
def test_first_and_second_derivatives(library: Path) -> None:
    case, inputs = leaves(2, 3)
    assert torch.autograd.gradcheck(case.call, inputs)
    assert torch.autograd.gradgradcheck(case.call, inputs)
    assert torch.autograd.gradcheck(case.call, inputs, check_forward_ad=True)


@IGNORE_TORCH
def test_operator_contracts(library: Path) -> None:
    case, (x, *rest) = leaves(4)
    torch.library.opcheck(torch.ops.zoo.fused_linear.default, (x, *rest, case.out, case.inp))
    g, plain = torch.randn(4, 8, dtype=x.dtype), [t.detach() for t in (x, *rest[:-1])]
    check = {"test_utils": ("test_schema", "test_faketensor")}
    for needs in ([True] * 6, [True, False, False, True, False, True]):
        torch.library.opcheck(torch.ops.zoo.fused_backward.default, (g, *plain, case.out, case.inp, needs), **check)
    matrices = torch.ops.zoo.fused_combinations(plain[0], plain[1], plain[2])
    torch.library.opcheck(torch.ops.zoo.fused_combinations.default, (plain[0], plain[1], plain[2]), **check)
    rest = [matrices, *plain[3:], None, case.out, case.inp]
    torch.library.opcheck(torch.ops.zoo.fused_combined.default, (plain[0], *rest), **check)


def test_torch_func_and_checkpointing(library: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    case, inputs = leaves(4)
    for transform in (torch.func.grad, lambda f, argnums: torch.func.jacrev(torch.func.grad(f, argnums), argnums)):
        actual, expected = (
            transform(lambda *t, f=f: f(*t).square().sum(), argnums=1)(*inputs) for f in (case.call, case.definition)
        )
        torch.testing.assert_close(actual, expected)
    y = checkpoint(case.call, *inputs, use_reentrant=False)
    actual, expected = (torch.autograd.grad(f.square().sum(), inputs) for f in (y, case.definition(*inputs)))
    torch.testing.assert_close(actual, expected)


@IGNORE_TORCH
def test_compiled_and_exported_graphs_contain_the_operator(library: Path) -> None:
    case, inputs = leaves(4)
    graph = torch.compile(case.call, fullgraph=True, backend="aot_eager")
    actual, expected = (torch.autograd.grad(f(*inputs).square().sum(), inputs) for f in (graph, case.call))
    torch.testing.assert_close(actual, expected)

    class Network(torch.nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return fused.fused_linear(x, w, Factors(*(t.detach() for t in inputs[2:5])), case.out, case.inp)

    plain, rows = tuple(t.detach() for t in inputs[:2]), torch.export.Dim("rows")
    exported = torch.export.export(Network(), plain, dynamic_shapes=({0: rows}, None))
    names = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert names.count("zoo.fused_linear.default") == 1
    torch.testing.assert_close(exported.module()(*plain), Network()(*plain))


def test_autocast(library: Path) -> None:
    torch.manual_seed(0)
    case = Case(4, 4, 8, (64, 48), dtype=torch.float32)
    x, w = case.rows(40).requires_grad_(), case.w.requires_grad_()
    expected = case.definition(x, w, *case.factors, case.bias)
    with torch.autocast("cpu", torch.bfloat16):
        y = case.call(x, w, *case.factors, case.bias)
    assert y.dtype == torch.bfloat16
    assert (y - expected).abs().max() < 2e-2 * expected.abs().max()
    y.float().square().sum().backward()
    assert (x.grad.dtype, w.grad.dtype) == (torch.float32, torch.float32)  # type: ignore[union-attr]


# ---- Layers


@pytest.mark.parametrize("spec", ["quaternion", "octonion", "phm(n=4, rank=9)"])
@pytest.mark.parametrize("rows", [1, 40])
def test_layers_in_training_and_evaluation(library: Path, spec: str, rows: int) -> None:
    torch.manual_seed(0)
    layer = Linear(388, 404, algebra=zoo.algebra(spec)).double()
    set_kernel(layer.modules(), "fused")
    x = torch.randn(rows, 388, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.weight_module.parameters(), layer.bias]
    expected = F.linear(x, layer.weight_module(), layer.bias)
    grads = torch.autograd.grad(expected.sin().sum(), inputs)
    torch.testing.assert_close(torch.autograd.grad(layer(x).sin().sum(), inputs), grads)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected)
        with zoo.keep_matrices(layer):
            torch.testing.assert_close((layer(x), layer(x)), (expected, expected))
            assert [key[0].name for key in layer.weight_module.cache if isinstance(key[0], Kernel)] == ["fused"]
    layer.weight_module.requires_grad_(False)
    with zoo.keep_matrices(layer):  # the gradients of the input and of the bias are not lost
        torch.testing.assert_close(torch.autograd.grad(layer(x).sin().sum(), x)[0], grads[0])
        torch.testing.assert_close(torch.autograd.grad(layer(x.detach()).sin().sum(), layer.bias)[0], grads[-1])
    layer.float()
    with torch.autocast("cpu", torch.bfloat16), zoo.keep_matrices(layer):
        y = layer(x.float())
    assert y.dtype == torch.bfloat16
    assert (y - expected).abs().max() < 2e-2 * expected.abs().max()


def test_fast_path_for_few_rows_detects_changes(library: Path) -> None:
    """The cached call for a few rows is not used after a change."""
    layer, x = Linear(256, 256, algebra=zoo.algebra("quaternion")), torch.randn(2, 256)

    def set_structure() -> None:
        layer.algebra.structure = layer.algebra.structure.flip(0).clone()

    changes: list[Callable[[], Any]] = [
        lambda: layer.components.data.mul_(2),
        lambda: layer.weight_module.register_parameter("components", torch.nn.Parameter(torch.randn(4, 64, 64))),
        set_structure,
        lambda: set_kernel(layer, "thin"),
        lambda: layer.load_state_dict(Linear(256, 256, algebra=zoo.algebra("quaternion")).state_dict()),
        lambda: layer.weight_module.register_forward_hook(lambda module, inputs, matrix: 3 * matrix),
    ]
    with torch.no_grad():
        for change in changes:
            layer(x)
            assert bound_call(layer.weight_module, x, layer.bias) is not None
            change()
            torch.testing.assert_close(layer(x), F.linear(x, layer.weight_module(), layer.bias), rtol=1e-4, atol=1e-4)
        layer.weight_module._forward_hooks.clear()
        layer(x)
        with pytest.raises(RuntimeError):
            layer(x.view(4, 128))
        torch.testing.assert_close(torch.vmap(layer)(x), layer(x))
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
    assert layer(x).requires_grad


def test_fast_path_of_a_frozen_layer_records_other_gradients(library: Path) -> None:
    layer, x = Linear(256, 256, algebra=zoo.algebra("quaternion")).requires_grad_(False), torch.randn(2, 256)
    expected = layer(x)
    assert bound_call(layer.weight_module, x, layer.bias) is not None
    assert torch.equal(layer(x), expected)
    assert not layer(x).requires_grad
    for tensor in (x, layer.bias, layer.components):
        tensor.requires_grad_()
        torch.testing.assert_close(layer(x), expected)
        (gradient,) = torch.autograd.grad(layer(x).sin().sum(), tensor)
        y = F.linear(x, layer.weight_module(), layer.bias)
        torch.testing.assert_close(gradient, torch.autograd.grad(y.sin().sum(), tensor)[0], rtol=1e-4, atol=1e-4)
        tensor.requires_grad_(False)


@IGNORE_TORCH
@pytest.mark.parametrize("spec", ["quaternion", "phm(n=4, rank=9)", "phm-4"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_layers_contain_the_operator(library: Path, spec: str, dynamic: bool) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(Linear(256, 200, algebra=zoo.algebra(spec)), torch.nn.ReLU())
    names, x = [], torch.randn(30, 256, requires_grad=True)

    def backend(graph: Any, inputs: Any) -> Any:
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch._dynamo.reset()
    compiled_net = torch.compile(net, fullgraph=True, dynamic=dynamic, backend=backend)
    actual, expected = (
        torch.autograd.grad(f(x).sin().sum(), [x, *net[0].weight_module.parameters()]) for f in (compiled_net, net)
    )
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)
    assert names.count("zoo.fused_linear") == (spec != "phm-4")
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.compile(net, fullgraph=True, backend="aot_eager")(x).dtype == torch.bfloat16
    program = torch.export.export(net, (x.detach(),))  # runs where nobody has compiled the operator
    assert not any("zoo" in str(node.target) for node in program.graph.nodes)


def test_layers_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_state", {"reason": "no compiler"})
    layer = Linear(1024, 1024, algebra="quaternion")
    assert plan(Work(4096, AxisLayout(2048, 4), AxisLayout(2048, 4), 4, 8, training=True)).name == "factored"
    with raises("unsupported", "no compiler"):
        set_kernel(layer.modules(), "fused")
    layer.weight_module.kernel = "fused"  # as in a copy from a machine that has it
    x = torch.randn(9, 1024)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight_module(), layer.bias))


# ---- Builds


def test_the_plan_compiles_only_an_operator_that_it_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network never waits for the compiler."""
    compilations: list[str] = []
    monkeypatch.setattr(compiled, "_state", {})
    monkeypatch.setattr(compiled, "_obstacle", lambda: None)
    monkeypatch.setattr(compiled, "load_library", lambda: compilations.append("once") or "fused.so")
    layouts = AxisLayout(256, 4), AxisLayout(64, 4)
    for rows in (34, 544, 1088):
        for instructions, threads in itertools.product(SPEEDS, (1, 2)):
            work = Work(rows, *layouts, 4, 8, training=True, threads=threads, instructions=instructions)
            assert plan(work).name == plan(work._replace(training=False, prepared=True)).name == "block"
    assert compilations == []
    assert plan(Work(4096, AxisLayout(1024, 4), AxisLayout(1024, 4), 4, 8, training=True, threads=2)).name == "fused"
    assert compilations == ["once"]


@pytest.mark.parametrize("instructions", ["AVX512", "AVX2", "NEON"])
def test_the_choice_depends_on_shapes_and_the_instruction_set(library: Path, instructions: str) -> None:
    """The plan asks neither this processor nor the clock."""
    product = Work(1024, AxisLayout(256, 4), AxisLayout(256, 4), 4, 8, training=True, threads=2, instructions=instructions)
    costs = {kernel.name: kernel.cost(product) for kernel in kernels() if kernel.can(product)}
    assert plan(product).name == min(costs, key=costs.__getitem__) == "fused"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Reset the loaded library and use an empty cache."""
    monkeypatch.setattr(compiled, "_state", {})
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ZOO_FUSED", raising=False)
    return tmp_path / "home" / "fused"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], int]]:
    """Use a shell script as the compiler, with the output path as $out; return a function that counts its calls."""

    def install(body: str) -> Callable[[], int]:
        path, calls = tmp_path / "compiler", tmp_path / "calls"
        find = 'while [ "$1" != -o ]; do shift; done; out=$2'
        path.write_text(f"#!/bin/sh\necho >> {calls}\n{find}\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return lambda: len(calls.read_text(encoding="utf-8").splitlines())

    return install


def left_behind(folder: Path) -> set[str]:
    return {path.suffix for path in folder.iterdir()} - {".lock"}


@pytest.mark.parametrize(("name", "value", "reason"), [("PATH", "", "no C++ compiler"), ("ZOO_FUSED", "0", "ZOO_FUSED=0")])
def test_python_kernels_without_compiler(
    folder: Path, name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(name, value)
    assert not compiled.is_available()
    assert reason in compiled.status()
    assert not folder.exists()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("end", "reason"),
    [("echo 'fused.cpp:1: error: no such header' >&2; exit 1", "no such header"), ("kill -9 $$", "-9"), ("exec sleep 60", "")],
)
def test_failing_compiler_leaves_no_files(
    folder: Path, script: Any, end: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "SECONDS", 1)
    calls = script(f"echo half > $out; {end}")
    for _ in range(2):
        assert not compiled.is_available()
        assert reason in compiled.status()
    assert calls() == 1
    assert left_behind(folder) == set()


def test_a_compiler_is_stopped_with_its_processes(folder: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "SECONDS", 1)
    child = folder.with_name("child")
    script(f"sleep 600 & echo $! > '{child}'; wait")
    assert not compiled.is_available()
    state = subprocess.run(["ps", "-o", "stat=", "-p", child.read_text()], capture_output=True, text=True, check=False).stdout
    assert not state or state.startswith("Z")


def test_cache_folder_is_not_writable(folder: Path) -> None:
    folder.parent.write_text("no folder", encoding="utf-8")
    assert not compiled.is_available()
    assert "Python kernels" in compiled.status()


def test_concurrent_builds_compile_once(library: Path, folder: Path, script: Any) -> None:
    calls = script(f"sleep 0.5; cp {library} $out")
    threads = [threading.Thread(target=compiled.load_library) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls() == 1
    assert left_behind(folder) == {".so"}


def test_corrupt_library_is_recompiled(library: Path, folder: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = script(f"cp {library} $out")
    compiled.library().parent.mkdir(parents=True)
    compiled.library().write_bytes(b"")
    assert not compiled.is_available()
    monkeypatch.setattr(compiled, "_state", {})
    assert compiled.is_available()
    assert calls() == 1
    assert shutil.which(str(compiled.compiler()))
