"""All matrices of a network assembled at once: equal in value and gradients to every layer by itself, in every situation."""

import copy
import io
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

import zoo
from zoo.kernels.block import Block
from zoo.kernels.factored import Factored
from zoo.nn import LSTM, Conv1d, Conv2d, Embedding, Linear, batch_matrices, batching, set_kernel, weight
from zoo.nn.weight import Weight

# Dynamo reads the gradient of a matrix that hooks, a graph of their own, hand to the graph of the forward pass.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

ALGEBRAS = ("quaternion", "phm(n=4)", "phm(n=4, shared=true)")


@pytest.fixture(autouse=True)
def on_any_device(monkeypatch):
    """Batch on the CPU too, and in several buckets."""
    monkeypatch.setattr("zoo.nn.weight.BATCHED", ("cpu", "cuda"))
    monkeypatch.setattr(batching, "BUCKET", 8000)
    torch.manual_seed(0)


@pytest.fixture
def calls(monkeypatch):
    """The numbers of matrices that are assembled at once."""
    numbers, several, one = [], batching.matrices, weight.assembled
    monkeypatch.setattr(batching, "matrices", lambda parts, dtype: numbers.append(len(parts)) or several(parts, dtype))
    monkeypatch.setattr(weight, "assembled", lambda part, dtype: numbers.append(1) or one(part, dtype))
    return numbers


class Net(nn.Module):
    """Residual blocks, with a kind of checkpointing: None, reentrant or not."""

    def __init__(self, spec, mode=None):
        super().__init__()
        algebra = zoo.algebra(spec)
        self.blocks = nn.ModuleList(
            nn.Sequential(Linear(16, 32, algebra=algebra), nn.GELU(), Linear(32, 16, algebra=algebra)) for _ in range(3)
        )
        self.mode = mode

    def forward(self, x):
        for block in self.blocks:
            x = x + (block(x) if self.mode is None else checkpoint(block, x, use_reentrant=self.mode))
        return x


def run(net, x, calls=1, autocast=False, steps=1):
    """Take steps of plain SGD and return the output and all gradients."""
    parameters = {name.replace("module.", "").replace("_orig_mod.", ""): p for name, p in net.named_parameters()}
    for step in range(steps):
        for p in parameters.values():
            p.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            ys = [net(x * (k + 1)) for k in range(calls)]
        sum(y.float().square().mean() for y in ys).backward()
        if step + 1 < steps:
            with torch.no_grad():
                for p in parameters.values():
                    p -= 0.1 * p.grad if p.grad is not None else 0
    return ys[0], {name: p.grad for name, p in parameters.items()}


def compare(net, change=lambda net: net, tolerance=1e-5, **options):
    """Compare a network with the same network whose layers are called by themselves."""
    x = torch.randn(5, 16, requires_grad=True)
    plain = copy.deepcopy(net)
    plain._forward_pre_hooks.clear()
    expected, wanted = run(plain, x, **options)
    actual, grads = run(change(batch_matrices(net)), x, **options)
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
    assert grads.keys() == wanted.keys()
    for name, grad in wanted.items():
        assert (grad is None) == (grads[name] is None), name
        if grad is not None:
            torch.testing.assert_close(grads[name], grad, atol=tolerance, rtol=tolerance, msg=name)
    assert not any(part._opened for part in net.modules() if isinstance(part, Weight))


SITUATIONS = {
    "plain": {},
    "two steps": {"steps": 2},
    "two forwards, one backward": {"calls": 2},
    "autocast": {"autocast": True, "tolerance": 2e-2},
    "deepcopy": {"change": copy.deepcopy},
    "pickled": {"change": lambda net: torch.load(io.BytesIO(pickled(net)), weights_only=False)},
    "compiled": {"change": partial(torch.compile, fullgraph=True, backend="aot_eager")},
}


def pickled(net):
    file = io.BytesIO()
    torch.save(net, file)
    return file.getvalue()


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("spec", ALGEBRAS)
def test_equal_to_layers_by_themselves(spec, situation):
    compare(Net(spec), **SITUATIONS[situation])


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("mode", [False, True], ids=["saved", "reentrant"])
@pytest.mark.parametrize("spec", ALGEBRAS)
def test_checkpoints(spec, mode, autocast):
    compare(Net(spec, mode), autocast=autocast, tolerance=2e-2 if autocast else 1e-5)


@pytest.mark.parametrize("spec", ALGEBRAS[:2])
def test_compiled_checkpoints(spec):
    compare(Net(spec, False), change=partial(torch.compile, backend="aot_eager"))


def test_compiled_by_inductor():
    compare(Net("quaternion"), change=partial(torch.compile, fullgraph=True))


def test_compiled_graphs_contain_one_operator_for_a_bucket():
    """Dynamo compiles the hooks and the forward of a network as two graphs."""
    net, graphs = batch_matrices(Net("quaternion")), []

    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    net = torch.compile(net, backend=backend, fullgraph=True)
    for _ in range(2):
        net(torch.randn(5, 16)).sum().backward()
    targets = [name for names in graphs for name in names]
    assert len(graphs) == 2
    assert sum("zoo.matrices" in target for target in targets) == 2
    assert sum("linear" in target for target in targets) == 6


def test_a_network_compiled_in_place_is_one_graph(monkeypatch):
    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    graphs, compiled = [], nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda net: compiled(net, backend=backend, fullgraph=True))
    net = batch_matrices(Net("quaternion"))
    compare(net, change=lambda net: batching.compile_in_place(net) or net)
    assert len(graphs) == 1
    assert sum("zoo.matrices" in target for target in graphs[0]) == 2


def test_buckets(calls):
    net = batch_matrices(Net("quaternion"))
    net(torch.randn(2, 16))
    assert calls == [4, 2]  # 2 KB each
    calls.clear()
    with torch.no_grad():
        net(torch.randn(2, 16))
    net.blocks[0](torch.randn(2, 16))
    assert calls == [1, 1], "a block that is called alone assembles its own matrices"


def test_gradients_of_an_early_bucket_do_not_wait_for_others(monkeypatch):
    net, order = batch_matrices(Net("quaternion")), []
    for number in (0, 2):
        net.blocks[number][0].components.register_hook(lambda g, number=number: order.append(number))
    net(torch.randn(2, 16)).sum().backward()
    assert order == [2, 0]


def test_frozen_and_unused_layers_get_no_gradient():
    net = Net("quaternion")
    net.blocks[1][0].requires_grad_(False)
    compare(net)

    class Skips(Net):
        def forward(self, x):
            return self.blocks[2](self.blocks[0](x))

    compare(Skips("phm(n=4)"))


def test_accumulation(calls):
    x, net = torch.randn(4, 16).double(), batch_matrices(Net("quaternion").double())
    for half in x.chunk(2):
        net(half).square().sum().backward()
    one = net.blocks[0][0].components.grad.clone()
    net.zero_grad()
    net(x).square().sum().backward()
    torch.testing.assert_close(one, net.blocks[0][0].components.grad)


def test_several_algebras_layers_and_layouts():
    """Padding, blocks, groups, subspaces, convolutions, tables and LSTMs, in one network."""
    q, o = zoo.algebra("quaternion"), zoo.algebra("octonion")
    subspace = zoo.Algebra(q.structure.clone(), left=torch.eye(4)[1:])

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = Embedding(9, 10, algebra=q)
            self.inp, self.blocks = Linear(10, 27, algebra=o, blocks=(1, 3)), Linear(27, 16, algebra=q, blocks=(3, 2))
            self.pure, self.conv1 = Linear(16, 16, algebra=subspace), Conv1d(16, 12, 3, algebra=q, padding=1)
            self.conv2, self.groups = Conv2d(3, 10, 3, algebra=o, padding=1), Conv2d(10, 16, (3, 1), algebra=q, groups=2)
            self.lstm = LSTM(16, 8, algebra=q, bidirectional=True)

        def forward(self, x):
            y = self.pure(self.blocks(self.inp(x[:, :10])))
            z = self.groups(self.conv2(x[:, None, :, None].expand(-1, 3, -1, 3))).mean((2, 3))
            y = self.lstm(y[:, None] + z[:, None])[0]
            return (
                self.conv1(y.mT).flatten(1) + self.table(torch.arange(len(x))).sum(-1, keepdim=True) * self.table.weight.sum()
            )

    compare(Mixed())
    compare(Mixed(), autocast=True, tolerance=5e-2)
    compare(Mixed().to(memory_format=torch.channels_last))


def test_tied_weights():
    net = Net("quaternion")
    net.blocks[2] = net.blocks[0]
    net.blocks[1][0].weight_module = net.blocks[0][0].weight_module
    net.blocks[1][2].components = net.blocks[0][2].components
    compare(net)


def test_parametrizations_and_hooks(calls):
    results, x = [], torch.randn(3, 16)
    for change in (lambda net: net, batch_matrices):
        torch.manual_seed(0)
        net = change(Net("quaternion"))
        parametrizations.weight_norm(net.blocks[0][0])
        parametrizations.orthogonal(net.blocks[1][0].weight_module, "components")
        prune.random_unstructured(net.blocks[1][2].weight_module, "components", amount=0.5)
        net.blocks[2][0].weight_module.register_forward_hook(lambda module, args, matrix: 2 * matrix)
        results.append(run(net, x))
    torch.testing.assert_close(*results)
    assert max(calls) == 2, "the two plain layers"


def test_masks_of_a_lottery():
    net, mask = Net("quaternion"), torch.rand(4, 8, 4) < 0.5
    w = net.blocks[0][0].components
    with torch.no_grad():
        w.mul_(mask)
    w.register_hook(lambda g: g * mask)
    batch_matrices(net)(torch.randn(3, 16)).sum().backward()
    assert (w.grad[~mask] == 0).all()
    assert w.grad[mask].any()


def test_averaged_models():
    net, x = batch_matrices(Net("phm(n=4)")), torch.randn(3, 16)
    average = torch.optim.swa_utils.AveragedModel(net)
    net(x).sum().backward()
    with torch.no_grad():
        net.blocks[0][0].components.add_(1.0)
    average.update_parameters(net)
    torch.testing.assert_close(average(x), net(x))  # the first update copies
    average(x).sum().backward()


def test_functional_transforms():
    net, x = Net("quaternion"), torch.randn(3, 16)
    plain, parameters = copy.deepcopy(net), dict(net.named_parameters())
    batch_matrices(net)

    def loss(net, parameters, x):
        return torch.func.functional_call(net, parameters, x).square().sum()

    expected = torch.func.grad(partial(loss, plain))(parameters, x)
    actual = torch.func.grad(partial(loss, net))(parameters, x)
    for name in parameters:
        torch.testing.assert_close(actual[name], expected[name])
    rows = [torch.func.vmap(torch.func.grad(partial(loss, one)), (None, 0))(parameters, x) for one in (net, plain)]
    torch.testing.assert_close(*(row["blocks.0.0.weight_module.components"] for row in rows))
    changed = {name: nn.Parameter(p + 1) for name, p in parameters.items()}
    torch.testing.assert_close(loss(net, changed, x), loss(plain, changed, x))


@pytest.mark.parametrize("spec", ALGEBRAS)
def test_second_derivatives(spec):
    values = []
    net = Net(spec).double()
    x = torch.randn(3, 16, dtype=torch.float64)
    for one in (copy.deepcopy(net), batch_matrices(net)):
        first = torch.autograd.grad(one(x).sin().sum(), list(one.parameters()), create_graph=True)
        values.append(torch.autograd.grad(sum(g.sin().sum() for g in first), list(one.parameters())))
    for a, b in zip(*values, strict=True):
        torch.testing.assert_close(a, b)


def test_moved_after_the_first_step():
    net, x = batch_matrices(Net("quaternion")), torch.randn(3, 16)
    net(x).sum().backward()
    y = net.double()(x.double())
    assert y.dtype == torch.float64
    y.sum().backward()


def test_kept_matrices_inside_and_around():
    net, x = Net("quaternion"), torch.randn(3, 16)
    expected = net(x)
    batch_matrices(net)
    with zoo.keep_matrices(net):
        y = net(x)
        y.sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(net(x), expected)
    torch.testing.assert_close(y, expected)
    assert net.blocks[0][0].components.grad is not None

    class Keeps(Net):
        def forward(self, x):
            with zoo.keep_matrices(self), torch.no_grad():
                y = super().forward(x)
            return y + super().forward(x)

    compare(Keeps("quaternion"))


def test_inference_mode(calls):
    net, x = batch_matrices(Net("quaternion")), torch.randn(3, 16)
    with torch.inference_mode():
        y = net(x)
    assert not any(number > 1 for number in calls)
    torch.testing.assert_close(net(x), y.clone())


def test_components_changed_between_and_inside_forwards():
    net, x = batch_matrices(Net("quaternion")), torch.randn(3, 16)
    plain = copy.deepcopy(net)
    plain._forward_pre_hooks.clear()
    net(x)
    for one in (net, plain):
        one.blocks[0][0].components.data.mul_(2.0)
    torch.testing.assert_close(net(x), plain(x))

    class Writes(Net):
        def forward(self, x):
            with torch.no_grad():
                self.blocks[0][0].components.mul_(2.0)
                self.blocks[1][0].weight_module.components = nn.Parameter(torch.ones(4, 8, 4))
            return super().forward(x)

    torch.manual_seed(1)
    net = Writes("phm(n=4)")
    plain = copy.deepcopy(net)
    torch.testing.assert_close(batch_matrices(net)(x), plain(x))


def test_autocast_inside_a_network():
    class Islands(Net):
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                y = self.blocks[0](x)
            with torch.autocast("cpu", enabled=False):
                return self.blocks[1](x) + y

    compare(Islands("quaternion"), tolerance=2e-2)
    compare(Islands("quaternion"), tolerance=2e-2, autocast=True)


def test_learned_products_written_before_the_backward_pass():
    net = batch_matrices(Net("phm(n=4)"))
    loss = net(torch.randn(3, 16)).sum()
    with torch.no_grad():
        net.blocks[0][0].components.add_(1.0)
    with pytest.raises(RuntimeError, match="modified in place"):
        loss.backward()


def test_exceptions_and_nested_networks_close_the_matrices(calls):
    inner = batch_matrices(Net("quaternion"))
    outer = batch_matrices(nn.Sequential(inner, nn.Linear(16, 3)))
    outer(torch.randn(2, 16)).sum().backward()
    assert calls == [4, 2], "assembled once"
    with pytest.raises(RuntimeError):
        outer(torch.randn(2, 15))
    assert not any(part._opened for part in outer.modules() if isinstance(part, Weight))


def test_other_kernels_are_left_to_their_layers(calls):
    net = Net("quaternion")
    set_kernel(net.blocks[0], "factored")
    compare(net)
    assert max(calls) <= 4


def test_weights_that_the_plan_factors_are_left_to_their_layers(calls, monkeypatch):
    """Before the forward pass the number of rows is unknown: the plan is asked about many, once, with autocast's dtype."""
    asked = []

    def plan(work, name):
        asked.append(work)
        return Factored() if work.inp.channels == 32 else Block()

    monkeypatch.setattr("zoo.nn.weight.plan", plan)
    net = batch_matrices(Net("quaternion"))
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            net(torch.randn(5, 16)).sum().backward()
    assert sum(calls) == 2 * 3 + 2 * 3  # of a bucket, and of layers: under autocast `factored` is not used
    assert len(asked) == 6
    assert {(work.rows, work.dtype, work.training, work.rank) for work in asked} == {
        (weight.MANY_ROWS, torch.bfloat16, True, 8)
    }


def test_networks_of_the_zoo_batch_by_themselves(calls):
    net = zoo.backbone("gpt(dim=16, depth=2, heads=2)", "quaternion", vocab_size=11, max_length=8)
    assert net is batch_matrices(net)
    net(torch.ones(2, 8, dtype=torch.long)).sum().backward()
    assert sum(calls) == max(len(net._forward_pre_hooks), sum(isinstance(m, Weight) and m.inp.n > 1 for m in net.modules()))
    assert len(net._forward_pre_hooks) == 1
    calls.clear()
    net = zoo.convert(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), "quaternion")
    net(torch.randn(2, 8))
    assert calls == [2]


def test_matrices_do_not_round(monkeypatch):
    """Sums of table entries 0 and 1 are exact under every precision of matrix products, forward and backward."""
    layer = Linear(256, 256, algebra=zoo.algebra("quaternion"), bias=False)
    w = layer.components.detach()
    try:
        torch.set_float32_matmul_precision("medium")
        for batched in (("cpu",), ()):
            monkeypatch.setattr("zoo.nn.weight.BATCHED", batched)
            matrix = layer.weight_module()
            assert set(matrix.detach().abs().unique().tolist()) == set(w.abs().unique().tolist())
            g = torch.ones_like(matrix)
            g[:, 0] = 1 + 2**-20
            (gw,) = torch.autograd.grad(matrix, layer.components, g)
            exact = torch.autograd.grad(
                F.linear(torch.eye(256).double(), layer.double().weight), layer.components, g.T.double()
            )
            assert torch.equal(gw.double(), exact[0])
            layer.float()
    finally:
        torch.set_float32_matmul_precision("highest")
