"""The LSTM and the GRU against those of torch and against a reference implementation."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.errors import raises
from zoo.algebras import algebra, reals
from zoo.conversion import convert
from zoo.nn import GRU, LSTM, batching, keep_matrices, weight
from zoo.testing import definition
from zoo.testing.backbone import installed_algebras

SHAPES = [{}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True}]
RULES = ["fused", "gate"]


def make(spec="complex", inp=10, hidden=6, seed=0, **options):
    torch.manual_seed(seed)
    net = LSTM(inp, hidden, batch_first=True, algebra=algebra(spec), **options).double()
    for cell in net.cells:
        nn.init.normal_(cell.bias)
    return net


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gate(side, index, x, hidden, blocks):
    """Multiply x by the matrix of a gate, by the definition."""
    layer = side[index] if len(side) > 1 else side[0]
    w = layer.elements if layer.algebra.left is None else torch.einsum("mi,moc->ioc", layer.algebra.left, layer.elements)
    width = -(-hidden // layer.algebra.n)
    w = w if len(side) > 1 else w[:, index * width : (index + 1) * width]
    return definition.linear(layer.algebra.structure, w, x, hidden, (blocks, 1))


def run_cell(cell, x, hidden, blocks):
    """Run a cell over [B, T, in] step by step."""
    h = c = x.new_zeros(len(x), hidden)
    outputs = []
    for step in x.unbind(1):
        biases = cell.bias.chunk(4)
        i, f, g, o = (
            gate(cell.from_input, k, step, hidden, blocks) + gate(cell.from_hidden, k, h, hidden, 1) + biases[k]
            for k in range(4)
        )
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs, 1), h, c


def reference(net, x, blocks=1):
    directions = 1 + net.bidirectional
    last = []
    for layer in range(net.num_layers):
        halves = []
        for direction in range(directions):
            cell = net.cells[layer * directions + direction]
            y, h, c = run_cell(cell, x.flip(1) if direction else x, net.hidden_size, blocks)
            halves.append(y.flip(1) if direction else y)
            last.append((h, c))
        x, blocks = torch.cat(halves, -1), directions
    return x, tuple(torch.stack(states) for states in zip(*last, strict=True))


def copy_of_torchs(theirs, **options):
    sizes = theirs.input_size, theirs.hidden_size, theirs.num_layers
    ours = LSTM(*sizes, batch_first=True, bidirectional=theirs.bidirectional, algebra=reals(), **options)
    ours = ours.to(theirs.weight_ih_l0)  # before the biases are added, which float32 would round
    with torch.no_grad():
        for index, cell in enumerate(ours.cells):
            name = f"l{index // (1 + theirs.bidirectional)}" + ("_reverse" if theirs.bidirectional and index % 2 else "")
            for side, matrix in ((cell.from_input, "ih"), (cell.from_hidden, "hh")):
                weight = getattr(theirs, f"weight_{matrix}_{name}")
                for layer, rows in zip(side, weight.chunk(len(side)), strict=True):
                    layer.components.copy_(rows)
            cell.bias.copy_(getattr(theirs, f"bias_ih_{name}") + getattr(theirs, f"bias_hh_{name}"))
    return ours


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_equals_torch_over_the_reals(options, rules):
    theirs = nn.LSTM(5, 7, batch_first=True, **options).double()
    ours = copy_of_torchs(theirs, rules=rules).double()
    directions = 1 + theirs.bidirectional
    hx = draw(theirs.num_layers * directions, 3, 7), draw(theirs.num_layers * directions, 3, 7) + 1
    gradients = []
    for net in (ours, theirs):
        x = draw(3, 4, 5).requires_grad_()
        y, (h, c) = net(x, hx)
        (y.pow(3).sum() + h.sin().sum() + c.square().sum()).backward()
        gradients.append((y, h, c, x.grad))
    torch.testing.assert_close(*gradients)
    first, last = ours.cells[0], ours.cells[-1]
    actual = torch.cat([layer.components.grad for layer in first.from_input])
    torch.testing.assert_close(actual, theirs.weight_ih_l0.grad)
    torch.testing.assert_close(first.bias.grad, theirs.bias_ih_l0.grad)
    name = f"l{theirs.num_layers - 1}" + "_reverse" * theirs.bidirectional
    actual = torch.cat([layer.components.grad for layer in last.from_hidden])
    torch.testing.assert_close(actual, getattr(theirs, f"weight_hh_{name}").grad)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("spec", installed_algebras())
def test_equals_the_definition(spec, rules):
    net, x = make(spec, 7, 5, num_layers=2, bidirectional=True, rules=rules), draw(2, 3, 7)
    results = []
    for f in (net, lambda x: reference(net, x)):
        y, (h, c) = f(x)
        loss = y.pow(3).sum() + h.sin().sum() + c.square().sum()
        results.append((y, h, c, *torch.autograd.grad(loss, list(net.parameters()))))
    torch.testing.assert_close(*results)


def test_input_blocks():
    net, x = make("quaternion", 16, 8, inp_blocks=2), draw(2, 3, 16)
    torch.testing.assert_close(net(x)[0], reference(net, x, 2)[0])
    assert not torch.allclose(net(x)[0], reference(net, x, 1)[0])


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_packed_equals_padded(options):
    net, x, lengths = make("complex", **options), draw(3, 5, 10), torch.tensor([2, 5, 3])
    hx = draw(len(net.cells), 3, 6), draw(len(net.cells), 3, 6) + 1
    packed, state = net(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False), hx)
    y, _ = pad_packed_sequence(packed, batch_first=True)
    for row, length in enumerate(lengths.tolist()):
        one = slice(row, row + 1)
        alone, last = net(x[one, :length], tuple(t[:, one] for t in hx))
        torch.testing.assert_close((y[one, :length], *(t[:, one] for t in state)), (alone, *last))


@pytest.mark.parametrize(
    ("spec", "options", "expected"),
    [
        ("real", {}, 721_200),
        ("real", {"rules": "gate"}, 721_200),
        ("phm(n=2)", {"rules": "gate"}, 361_264),
        ("phm(n=5)", {"rules": "gate"}, 146_200),
        ("phm(n=5)", {}, 145_450),
        ("quaternion", {}, 720_000 // 4 + 1200),
        ("quaternion", {"num_layers": 2, "bidirectional": True}, (2 * 720_000 + 2 * 1200 * 900) // 4 + 4 * 1200),
    ],
)
def test_parameter_counts(spec, options, expected):
    # Zhang et al. (2021), Table 1: 721K, 361K and 146K for reals, n = 2 and n = 5.
    with torch.device("meta"):
        net = LSTM(300, 300, algebra=algebra(spec), **options)
    assert sum(p.numel() for p in net.parameters()) == expected


def test_initial_biases():
    net = LSTM(8, 4, num_layers=2, algebra="quaternion")
    for _ in range(2):
        for cell in net.cells:
            assert cell.bias.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8
        before = [p.detach().clone() for p in net.parameters()]
        nn.init.normal_(net.cells[1].bias)
        net.reset_parameters()
    changed = [not torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True)]
    assert changed == ["components" in name for name, _ in net.named_parameters()]


def test_dropout_between_layers_only_in_training():
    net, x = make("complex", num_layers=2, dropout=0.5), draw(2, 4, 10)
    assert not torch.equal(net(x)[0], net(x)[0])
    assert torch.equal(net.eval()(x)[0], net(x)[0])
    one = make("complex", dropout=0.5)
    assert torch.equal(one(x)[0], one(x)[0])


def test_precisions_agree():
    net, x = make("quaternion", bidirectional=True), draw(2, 4, 10)
    exact = net(x)[0]
    assert exact.dtype == torch.float64
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
        y = net.to(dtype)(x.to(dtype))[0]
        assert y.dtype == dtype
        assert (y.double() - exact).norm() < tolerance * exact.norm()
    with torch.autocast("cpu", torch.bfloat16):
        y = net.float()(x.float())[0]
    assert (y.double() - exact).norm() < 5e-2 * exact.norm()


def test_weights_are_contiguous_for_cudnn():
    # cuDNN's order: all matrices, then all biases.
    net = make("quaternion", num_layers=2, bidirectional=True)
    weights = net._weights(contiguous=True)
    matrices, biases = ([w for w in weights if w.ndim == axes] for axes in (2, 1))
    start = weights[0].data_ptr()
    for w in matrices + biases:
        assert w.is_contiguous()
        assert w.data_ptr() == start
        start += w.numel() * w.element_size()


@pytest.fixture
def assembled(monkeypatch):
    """The number of weights of each call that assembles matrices."""
    calls, one, several = [], weight.assembled, batching.matrices
    monkeypatch.setattr(weight, "assembled", lambda part, dtype: calls.append(1) or one(part, dtype))
    monkeypatch.setattr(batching, "matrices", lambda parts, dtype: calls.append(len(parts)) or several(parts, dtype))
    return calls


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("steps", [2, 9])
def test_matrices_are_assembled_once_per_sequence(options, steps, assembled):
    net, x = make("quaternion", **options), draw(3, steps, 10)
    once = [1, 1] * len(net.cells)
    net(x)[0].sum().backward()
    assert assembled == once
    net(x, lengths=torch.tensor([2, 1, 2]))[0].sum().backward()
    assert assembled == 2 * once
    with torch.no_grad(), keep_matrices(net):
        net(x[:, :1], net(x)[1])
    assert assembled == 3 * once


def test_steps_of_a_compiled_graph_assemble_nothing():
    torch._dynamo.reset()
    graphs = []
    torch.compile(make("quaternion"), fullgraph=True, backend=lambda graph, _: graphs.append(graph) or graph.forward)(
        draw(3, 5, 10)
    )
    (graph,) = graphs
    counts = [
        sum(node.target is torch.ops.zoo.matrices.default or node.target is torch.ops.zoo.matrices for node in part.graph.nodes)
        for part in graph.modules()
        if isinstance(part, torch.fx.GraphModule)
    ]
    assert counts == [2] + [0] * (len(counts) - 1)
    assert len(counts) > 1


def test_training_on_a_gpu_assembles_all_matrices_at_once(assembled, monkeypatch):
    monkeypatch.setattr(weight, "BATCHED", ("cpu",))  # a GPU is treated alike
    for options in ({"num_layers": 2, "bidirectional": True}, {"rules": "gate"}):
        net, x = make("quaternion", **options), draw(3, 5, 10)
        y = net(x)[0]
        weights = [part for part in net.modules() if isinstance(part, weight.Weight)]
        assert assembled == [len(weights)]
        assert all(part.opened() is None for part in weights)
        gradients = torch.autograd.grad(y.square().sum(), list(net.parameters()))
        monkeypatch.setattr(weight, "BATCHED", ())
        torch.testing.assert_close(gradients, torch.autograd.grad(net(x)[0].square().sum(), list(net.parameters())))
        monkeypatch.setattr(weight, "BATCHED", ("cpu",))
        assembled.clear()
    batching.batch_matrices(net)(x)[0].sum().backward()
    assert assembled == [len(weights)]


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"num_layers": 0}, "num_layers=0"),
        ({"dropout": 1.5}, "dropout=1.5"),
        ({"hidden": 0}, "0 channels"),
    ],
)
def test_invalid_options(options, value):
    with raises("invalid", value):
        make("complex", **options)


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_lengths_equal_a_packed_sequence(options):
    net, x, lengths = make("quaternion", **options).eval(), draw(3, 5, 10), torch.tensor([2, 5, 3])
    start = draw(len(net.cells), 3, 6), draw(len(net.cells), 3, 6) + 1
    packed, state = net(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False), start)
    y, last = net(x, start, lengths)
    assert torch.equal(y, pad_packed_sequence(packed, batch_first=True)[0])
    assert all(torch.equal(a, b) for a, b in zip(last, state, strict=True))


@pytest.mark.parametrize(
    ("backend", "spec", "options", "lengths"),
    [
        ("aot_eager", "real", {}, None),
        ("aot_eager", "quaternion", {"bidirectional": True}, None),
        ("aot_eager", "quaternion", {"rules": "gate"}, [2, 5, 3]),
    ],
)
def test_compiles_as_one_graph(backend, spec, options, lengths):
    torch._dynamo.reset()
    net, x = make(spec, **options), draw(3, 5, 10)
    start = draw(len(net.cells), 3, 6), draw(len(net.cells), 3, 6) + 1
    lengths = None if lengths is None else torch.tensor(lengths)
    results = []
    for read in (net, torch.compile(net, fullgraph=True, backend=backend)):
        y, (h, c) = read(x, start, lengths)
        loss = y.pow(3).sum() + h.sin().sum() + c.square().sum()
        results.append((y, h, c, *torch.autograd.grad(loss, list(net.parameters()))))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("strict", [False, True])
def test_export_with_dynamic_length(strict):
    net = make("quaternion", bidirectional=True).eval()
    batch, time = torch.export.Dim("batch", min=2), torch.export.Dim("time", min=2)
    inputs, axes = (draw(3, 5, 10), None, torch.tensor([2, 5, 3])), ({0: batch, 1: time}, None, {0: batch})
    with torch.no_grad():
        exported = torch.export.export(net, inputs, dynamic_shapes=axes, strict=strict).module()
        for x, lengths in ((inputs[0], inputs[2]), (draw(4, 9, 10), torch.tensor([9, 1, 7, 2]))):
            torch.testing.assert_close(exported(x, None, lengths), net(x, None, lengths))


# --- GRU, and what both share with torch's layers ---


def gru_reference(cell, x, hidden):
    """Run a GRU cell over [B, T, in] step by step, by the definition."""
    h = x.new_zeros(len(x), hidden)
    outputs = []
    for step in x.unbind(1):
        inp = [gate(cell.from_input, k, step, hidden, 1) + bias for k, bias in enumerate(cell.bias.chunk(3))]
        rec = [gate(cell.from_hidden, k, h, hidden, 1) for k in range(3)]
        r, z = (inp[0] + rec[0]).sigmoid(), (inp[1] + rec[1]).sigmoid()
        h = (1 - z) * (inp[2] + r * (rec[2] + cell.hidden_bias)).tanh() + z * h
        outputs.append(h)
    return torch.stack(outputs, 1), h


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("spec", ["real", "quaternion", "phm-3"])
def test_a_gru_equals_the_definition(spec, rules):
    torch.manual_seed(0)
    net, x = GRU(7, 5, batch_first=True, algebra=spec, rules=rules).double(), draw(2, 3, 7)
    cell = net.cells[0]
    nn.init.normal_(cell.bias)
    nn.init.normal_(cell.hidden_bias)
    results = []
    for f in (net, lambda x: gru_reference(cell, x, 5)):
        y, h = f(x)
        loss = y.pow(3).sum() + h.sin().sum()
        results.append((y, h.view(2, 5), *torch.autograd.grad(loss, list(net.parameters()))))
    torch.testing.assert_close(*results)


KINDS = [(LSTM, nn.LSTM), (GRU, nn.GRU)]
TORCH_OPTIONS = [
    {},
    {"batch_first": True, "num_layers": 2, "bidirectional": True},
    {"bias": False, "num_layers": 2},
    {"batch_first": True, "bidirectional": True, "bias": False},
]


def states(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize(("ours", "theirs"), KINDS)
@pytest.mark.parametrize("options", TORCH_OPTIONS, ids=str)
def test_arguments_and_shapes_are_those_of_torch(ours, theirs, options):
    torch.manual_seed(0)
    torchs = theirs(5, 7, **options).double()
    net = convert(copy.deepcopy(torchs), "real", weights="project")
    assert type(net) is ours
    x, single = draw(3, 4, 5), draw(4, 5)
    batch = 3 if options.get("batch_first") else 4
    start = tuple(draw(len(net.cells), batch, 7) for _ in range(2 if ours is LSTM else 1))
    hx = start if ours is LSTM else start[0]
    packed = pack_padded_sequence(x, torch.tensor([2, 4, 3]), batch_first=True, enforce_sorted=False)
    for args in ((x,), (x, hx), (single,)):
        (y, last), (expected, state) = net(*args), torchs(*args)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(states(last), states(state))
    (y, last), (expected, state) = net(packed), torchs(packed)
    torch.testing.assert_close(y.data, expected.data)
    torch.testing.assert_close(states(last), states(state))


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_shapes_of_the_input_and_the_state_are_checked(kind):
    # Torch's kernels do not check them: the LSTM's read and wrote out of bounds.
    net, x = kind(5, 7, algebra="complex").double(), draw(4, 3, 5)
    count = 2 if kind is LSTM else 1
    packed = pack_padded_sequence(x, torch.tensor([4, 2, 3]), enforce_sorted=False)
    for inputs, options in ((x, {}), (packed, {}), (x, {"lengths": torch.tensor([4, 2, 3])})):
        for shape in ((1, 1, 7), (2, 3, 7), (1, 3, 6), (3, 7)):
            with raises("mismatch", list(shape), [1, 3, 7]):
                net(inputs, (draw(*shape),) * count, **options)
        with raises("mismatch", [1, 3, 7]):
            net(inputs, (draw(1, 3, 7),) * (3 - count), **options)
    for shape in ((4, 3, 6), (4, 6), (4, 3, 2, 5)):
        with raises("mismatch", "expected 5"):
            net(draw(*shape))


@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bidirectional": True}], ids=str)
def test_a_gru_compiles_as_one_graph(options):
    torch._dynamo.reset()
    torch.manual_seed(0)
    net, x = GRU(6, 5, algebra="quaternion", **options).double(), draw(3, 4, 6)
    lengths = torch.tensor([2, 4, 3]) if options else None
    results = []
    for read in (net, torch.compile(net, fullgraph=True, backend="aot_eager")):
        y, h = read(x, None, lengths)
        results.append((y, h, *torch.autograd.grad(y.pow(3).sum() + h.sin().sum(), list(net.parameters()))))
    torch.testing.assert_close(*results)
