"""Tests of the Triton kernels in their interpreter; test_zoo_gpu runs them in a process with TRITON_INTERPRET=1.

The interpreter truncates to bfloat16 instead of rounding, so most tests compute in float32.
"""

import pytest
import torch
from zoo_gpu import assembly as module

import zoo
from zoo.kernels import Part, axis_layout, matrices, real_matrix
from zoo.kernels.assembly import is_channels_last
from zoo.nn import Conv2d, Linear, batch_matrices

KERNEL = module.Triton()
LAYOUTS = [((8, 1), (16, 1)), ((10, 1), (7, 1)), ((42, 3), (38, 2)), ((70, 1), (72, 1))]


def make_part(n, m, inp, out, kernel=(), dtype=torch.float32, learned=False, sparse=False, last=False):
    table = torch.randn(m, n, n, dtype=torch.float64)
    if sparse:
        table = table.sign() * (torch.rand(m, n, n) < 0.4)
    inp, out = (axis_layout(channels, n, blocks) for channels, blocks in (inp, out))
    w = torch.randn(m, out.elements, inp.elements, *kernel, dtype=dtype)
    if last:
        w = w.flatten(0, 1).to(memory_format=torch.channels_last).unflatten(0, w.shape[:2])
    entries = [(*place, table[tuple(place)].item()) for place in table.nonzero().tolist()]
    text = " ".join(map(str, (m, n, *(value for entry in entries for value in entry))))
    return table, Part(w, table.to(dtype) if learned else None, "" if learned else text, out, inp)


def check(cases, dtype=torch.float32, bound=1e-6):
    """Compare values and gradients with the definition in float64."""
    parts = [part for _, part in cases]
    actual = KERNEL.matrices(parts, dtype)
    grads = [torch.randn_like(matrix) for matrix in actual]
    found = KERNEL.matrix_gradients(parts, grads)
    for (table, part), matrix, g, (gw, g_table) in zip(cases, actual, grads, found, strict=True):
        table = (table if part.table is None else part.table.double()).requires_grad_()
        w = part.components.double().requires_grad_()
        expected = real_matrix(table, w, part.out, part.inp)
        wanted = torch.autograd.grad(expected, (w, table), g.double())
        assert matrix.dtype == dtype
        assert gw.dtype == part.components.dtype
        assert is_channels_last(gw) == is_channels_last(part.components)
        for a, b in ((matrix, expected), (gw, wanted[0]), *([(g_table, wanted[1])] if part.table is not None else [])):
            assert a.shape == b.shape
            assert (a.double() - b).abs().max() <= bound * b.abs().max() * max(1, b.numel() ** 0.5 if a is g_table else 1)


@pytest.mark.parametrize("n", range(2, 9))
def test_random_products_of_all_dimensions(n):
    torch.manual_seed(n)
    check([make_part(n, n, *LAYOUTS[i % 4], sparse=i % 2 > 0) for i in (n, n + 1)])


@pytest.mark.parametrize(("n", "m"), [(2, 2), (4, 3), (5, 5)])
def test_learned_products_and_their_gradient(n, m):
    torch.manual_seed(n)
    check([make_part(n, m, *layout, learned=True) for layout in LAYOUTS[1:3]], bound=3e-6)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kernel", [(3,), (2, 3), (2, 1, 2)], ids=str)
def test_convolutions(kernel, last):
    torch.manual_seed(0)
    check([make_part(4, 4, *LAYOUTS[i], kernel, sparse=True, last=last and len(kernel) == 2) for i in (1, 2)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    torch.manual_seed(0)
    check(
        [make_part(4, 4, *LAYOUTS[1], dtype=components, sparse=True) for components in (torch.float32, dtype)],
        dtype,
        bound=2e-2,
    )


def test_more_weights_than_slots():
    torch.manual_seed(0)
    _, part = make_part(2, 2, (4, 1), (4, 1), sparse=True)
    jobs = [module.Job.of(part, torch.float32)] * 19
    assert [len(group) for group in module.groups(jobs)] == [16, 3]
    parts = [make_part(2, 2, (4, 1), (4, 1), sparse=True) for _ in range(3)]
    check([*parts, *[parts[0]] * 14])


def test_tensors_at_any_address_and_stride():
    torch.manual_seed(0)
    _, part = make_part(3, 3, (10, 1), (7, 1))
    w = part.components
    moved = torch.empty(w.numel() + 1)[1:].view(w.shape).copy_(w)
    strided = w.transpose(1, 2).contiguous().transpose(1, 2)
    matrices = [KERNEL.matrices([part._replace(components=t)], torch.float32)[0] for t in (w, moved, strided)]
    assert torch.equal(matrices[0], matrices[1])
    assert torch.equal(matrices[0], matrices[2])
    with pytest.raises(zoo.InputError, match="aligned"):
        module.launch_assembly([module.Job.of(part, torch.float32)._replace(w=moved)])


def test_copies_are_exact():
    torch.manual_seed(0)
    algebra = zoo.algebra("quaternion")
    layer = Linear(40, 24, algebra=algebra)
    torch.set_float32_matmul_precision("medium")
    try:
        matrix = KERNEL.matrices([layer.weight_module.part()], torch.float32)[0]
    finally:
        torch.set_float32_matmul_precision("highest")
    w = layer.components.detach().double()
    assert torch.equal(matrix.double(), real_matrix(algebra.structure.double(), w, layer.out, layer.inp))


def test_memory_outside_the_tensors_is_not_written():
    torch.manual_seed(0)
    _, part = make_part(3, 3, (10, 1), (7, 1))
    job = module.Job.of(part, torch.float32)
    buffer = torch.full((7 * 10 + 64,), 9.0)
    job = job._replace(full=buffer[32:-32].view(7, 1, 10))
    module.launch_assembly([job])
    assert (buffer[:32] == 9).all()
    assert (buffer[-32:] == 9).all()


def test_unsupported_weights_are_left_to_the_definition():
    _, part = make_part(4, 4, *LAYOUTS[0])
    assert KERNEL.matrices([part._replace(components=part.components.double())], torch.float32) is None
    assert KERNEL.matrices([part], torch.float64) is None
    sedenions = zoo.algebra("sedenion")
    layer = Linear(32, 32, algebra=sedenions)
    assert KERNEL.matrices([layer.weight_module.part()], torch.float32) is None
    matrix = matrices([layer.weight_module.part()], torch.float32)[0]
    torch.testing.assert_close(matrix, real_matrix(sedenions.structure, layer.components, layer.out, layer.inp))


def test_networks_use_the_kernels(monkeypatch):
    launched = []
    for name in ("launch_assembly", "launch_gradients"):
        launch = getattr(module, name)
        monkeypatch.setattr(module, name, lambda jobs, name=name, launch=launch: launched.append(name) or launch(jobs))
    monkeypatch.setattr("zoo.nn.weight.BATCHED", ("cpu",))
    torch.manual_seed(0)
    algebra = zoo.algebra("quaternion")
    net = torch.nn.Sequential(Conv2d(8, 8, 3, algebra=algebra, padding=1), Conv2d(8, 16, 3, algebra=algebra, padding=1))
    x, results = torch.randn(2, 8, 5, 5), []
    for change in (lambda net: net, batch_matrices):
        net.zero_grad()
        change(net)(x).square().sum().backward()
        results.append([p.grad.clone() for p in net.parameters()])
        monkeypatch.setattr("zoo.nn.weight.BATCHED", ("cpu",))
    assert launched[-2:] == ["launch_assembly", "launch_gradients"]
    torch.testing.assert_close(*results)
