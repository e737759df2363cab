"""The kernels of few rows and of attention: in Triton's interpreter, compiled without a device, and captured in a graph."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from zoo_gpu import assembly, flash, thin

import zoo
from tests.errors import raises
from zoo.algebras import literal
from zoo.kernels import Operand, Work, axis_layout
from zoo.nn import Linear, set_kernel

triton = pytest.importorskip("triton")
CAPABILITIES = [pytest.param(80, marks=pytest.mark.slow), 90, pytest.param(100, marks=pytest.mark.slow)]
SHARED = 99 * 1024  # bytes that any device of compute capability 8.0 or later has


pytestmark = pytest.mark.usefixtures("nothing_remembered")


def compile_for(capability, function, pointer, **constants):
    """Compile a kernel for tensors of a type and sizes that are multiples of 16; return its code and its shared memory."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = {"dropout": "fp32", "seed": "i64", "logs": "*fp32", "mean": "*fp32", "mask": "*u8"}
    kinds |= dict.fromkeys(["rows", "P", "Q", "PW", "QW", "SO", "SI", "L", "M", "C", "E", "first"], "i32")
    settings = {name: constants.pop(name) for name in ("num_warps", "num_stages") if name in constants}
    names = function.arg_names
    signature = {name: "constexpr" if name in constants else kinds.get(name, pointer) for name in names}
    aligned = [i for i, name in enumerate(names) if name not in constants and name not in ("dropout", "seed", "rows", "first")]
    attributes = {(i,): [["tt.divisibility", 16]] for i in aligned}
    source = ASTSource(function, signature, {(names.index(name),): value for name, value in constants.items()}, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=assembly.FUSED | settings)
    return made.asm["ptx"], made.metadata.shared


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(("pointer", "load"), [("*bf16", "ld.global.v2"), ("*fp32", "ld.global.v4")])
def test_few_rows_compile_to_wide_loads(pointer, load, capability):
    algebra = zoo.algebra("quaternion")
    for chunk in (1, 2):
        code, _ = compile_for(capability, thin._kernel(literal(algebra), 4, 4, chunk), pointer, a=None, **thin.TILE)
        assert code.count(load) >= 4  # the tile, the fastest on an H100, has four numbers for each thread


def test_kernels_compile_where_triton_makes_sizes_of_one_constant():
    ones = {"rows": 1, "PW": 1, "QW": 1, "SO": 1, "SI": 1}
    function = thin._kernel(literal(zoo.algebra("complex")), 2, 2, 1)
    assert "st.global" in compile_for(90, function, "*bf16", a=None, bias=None, **thin.TILE, **ones)[0]
    ones = {"M": 1, "C": 1, "E": 1, "first": 1}
    for which in range(3):
        options = {"CAUSAL": True, "DROPOUT": False, "mask": None}
        assert "st.global" in compile_attention(which, 90, 1, 16, "*bf16", **options, **ones)[0]


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_large_kernels_of_few_rows_compile(capability):
    octonions = literal(zoo.algebra("octonion"))
    assert "st.global" in compile_for(capability, thin._kernel(octonions, 8, 8, 2), "*bf16", a=None, **thin.TILE)[0]
    assert "st.global" in compile_for(capability, thin._kernel("", 4, 4, 4), "*bf16", bias=None, **thin.TILE)[0]


def compile_attention(which, capability, n, channels, pointer, **constants):
    size = 2 if pointer == "*bf16" else 4
    constants |= {"PRECISION": "tf32x3", "BC": channels, "BE": constants.pop("BE", channels)} | flash.tile(size)
    return compile_for(capability, flash._kernels(n)[which], pointer, **constants)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_attention_compiles_to_loads_of_16_bytes(which, capability):
    code, shared = compile_attention(which, capability, 4, 64, "*bf16", CAUSAL=True, DROPOUT=True)
    assert "ld.global.v4" in code or "cp.async.cg.shared.global" in code  # both move 16 bytes
    assert "mma" in code
    assert shared <= SHARED


@pytest.mark.slow
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize(
    ("n", "channels", "pointer"), [(4, 128, "*bf16"), (8, 64, "*bf16"), (4, 64, "*fp32"), (2, 128, "*fp32")]
)
def test_the_largest_tiles_of_attention_fit_into_shared_memory(which, n, channels, pointer):
    options = {"CAUSAL": False, "DROPOUT": False, "mask": None, "BE": flash.MOST_CHANNELS}
    assert compile_attention(which, 80, n, channels, pointer, **options)[1] <= SHARED


class Operators(TorchDispatchMode):
    """Record the names of operators."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class Launches(list):
    """Record launches instead of a kernel."""

    def __getitem__(self, grid):
        return lambda *args, **options: self.append(grid)


@pytest.mark.parametrize("spec", ["quaternion", "phm-2"])
def test_a_call_is_one_launch_and_can_be_captured_in_a_graph(spec, monkeypatch):
    launches = Launches()
    monkeypatch.setattr(thin, "_kernel", lambda *_: launches)
    layer = Linear(32, 64, algebra=spec)
    weight = Operand(layer.components.detach(), layer.algebra, layer.out, layer.inp)
    x, multiply = torch.randn(3, 1, 32), thin.thin_product(weight)
    with Operators() as operators:
        multiply(x, layer.bias)
    assert len(launches) == 1
    assert operators.names == {"new_empty"}


def test_the_plan_takes_few_rows_on_recent_devices(monkeypatch):
    monkeypatch.setattr(thin, "missing", lambda: None)
    layout = axis_layout(4096, 4)
    work = Work(1, layout, layout, 4, 8, False, dtype=torch.bfloat16, device="cuda")
    kernel = thin.ThinTriton()
    monkeypatch.setattr(thin, "is_recent", lambda device: True)
    changes = {"rows": 16, "prepared": True}, {"rows": 17}, {"training": True}, {"dtype": torch.float64}, {"device": "cpu"}
    assert kernel.can(work)
    assert [kernel.can(work._replace(**change)) for change in changes] == [True, False, False, False, False]
    assert not kernel.can(work._replace(convolution=True))
    monkeypatch.setattr(thin, "is_recent", lambda device: False)
    assert not kernel.can(work)


def test_attention_on_old_devices_and_without_triton_is_left_to_torch(monkeypatch):
    tensors = [torch.randn(2, 3, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 5, 8)]
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(flash, "missing", lambda: None)
    assert flash.supports(*tensors)
    monkeypatch.setattr(flash, "is_recent", lambda device: False)
    assert not flash.supports(*tensors)
    monkeypatch.setattr(flash, "is_recent", lambda device: True)
    monkeypatch.setattr(flash, "missing", lambda: "Triton is not installed")
    assert flash.Flash().hermitian_attention(*tensors, None, None, 0.0, 0) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("name", ["thin_triton", "flash"])
def test_error_without_a_device(name):
    with raises("unsupported", "no CUDA device"):
        set_kernel([], name)
