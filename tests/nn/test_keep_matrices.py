"""`zoo.keep_matrices`: contents, lifetime and scope of the cache; outside of it every write takes effect."""

import copy
import functools
import itertools
import pickle
import threading
from contextlib import suppress

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

import zoo
from tests.errors import raises
from zoo.kernels.block import Block
from zoo.nn import LSTM, Conv2d, Embedding, Linear, keep_matrices, set_kernel
from zoo.nn.weight import Weight
from zoo.tasks import Classification

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return Linear(8, 12, algebra=zoo.algebra("quaternion"))


@pytest.fixture
def assembled(monkeypatch):
    """Record the weights that are assembled."""
    calls, original = [], zoo.nn.weight.Weight._assemble
    monkeypatch.setattr(zoo.nn.weight.Weight, "_assemble", lambda self: calls.append(self) or original(self))
    return calls


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "build",
    [
        lambda a: Linear(8, 12, algebra=a),
        lambda a: Conv2d(8, 12, 3, algebra=a),
        lambda a: Embedding(9, 8, algebra=a),
        lambda a: LSTM(8, 8, algebra=a),
    ],
    ids=["linear", "conv", "embedding", "lstm"],
)
def test_matrices_are_cached_only_in_the_scope(build, mode, assembled):
    net = build(zoo.algebra("quaternion"))
    weights = [m for m in net.modules() if isinstance(m, zoo.nn.weight.Weight)]
    for inside in (False, True, False):
        assembled.clear()
        with mode(), keep_matrices(net if inside else nn.Identity()):
            matrices = [[weight() for weight in weights] for _ in range(3)]
        assert len(assembled) == (1 if inside else 3) * len(weights)
        assert all((one is other) == inside for one, other in zip(*matrices[:2], strict=True))
    with keep_matrices(net):
        assert all(weight().requires_grad for weight in weights)


@pytest.mark.parametrize("kernel", ["auto", "block", "factored", "thin"])
def test_cached_values_are_used_until_the_scope_ends(kernel, layer):
    set_kernel(layer, kernel)
    with torch.no_grad():
        expected = layer(X)
        with keep_matrices(layer), keep_matrices(layer):
            torch.testing.assert_close(layer(X), expected)
            layer.components.zero_()
        assert not layer(X).any()


def test_exceptions_end_the_scope(layer):
    with pytest.raises(RuntimeError), keep_matrices(layer):
        layer(X[:, :3])
    assert not layer.weight_module.is_cached


class Net(nn.Module):
    """Every layer that multiplies by a weight."""

    def __init__(self):
        super().__init__()
        make = zoo.Layers("quaternion", scope="all+embed")
        self.table, self.lstm = make.embedding(7, 8), make.lstm(8, 8)
        self.linear, self.conv = make.linear(8, 12, role="ffn"), make.conv1d(12, 8, 3, padding=1)

    def forward(self, tokens):
        return self.conv(self.linear(self.lstm(self.table(tokens))[0]).relu().transpose(1, 2))


TOKENS = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 1]])


def step(net):
    net(TOKENS).square().sum().backward()
    torch.optim.SGD(net.parameters(), 0.1).step()


@torch.no_grad()
def replace(net):
    net.linear.weight_module.components = nn.Parameter(torch.randn_like(net.linear.components))


@pytest.mark.parametrize("kernel", ["auto", "block", "factored", "thin"])
@pytest.mark.parametrize(
    "write",
    [
        lambda net: [p.data.mul_(2) for p in net.parameters()],
        lambda net: [setattr(p, "data", 2 * p.data) for p in net.parameters()],
        lambda net: net.load_state_dict({k: -v for k, v in net.state_dict().items()}, assign=True),
        step,
        replace,
    ],
    ids=["in place", "data", "load", "step", "replace"],
)
def test_writes_take_effect_outside_the_scope(write, kernel):
    torch.manual_seed(0)
    net = Net()
    set_kernel(net, kernel)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            net(TOKENS)
            with keep_matrices(net):
                net(TOKENS)
        write(net)
        fresh = Net()
        fresh.load_state_dict(net.state_dict())
        with mode():
            torch.testing.assert_close(net(TOKENS), fresh(TOKENS), rtol=1e-4, atol=1e-5)


def test_gradients_in_the_scope(layer):
    with keep_matrices(layer):
        with torch.no_grad():
            layer(X)
        layer(X).sum().backward()
        assert layer.components.grad.abs().max() > 0
        # A frozen weight is cached, and lets the gradient of its input through, also one that inference mode made.
        layer.requires_grad_(False)
        with torch.inference_mode():
            layer(X)
        x = X.clone().requires_grad_()
        layer(x).sum().backward()
        torch.testing.assert_close(x.grad[0], layer.weight.sum(0))


def test_copies_and_pickles_exclude_cache_and_scope(layer):
    size = len(pickle.dumps(layer))
    with torch.no_grad(), keep_matrices(layer):
        expected = layer(X)
        assert len(pickle.dumps(layer)) == size
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            twin.components.mul_(2)
            torch.testing.assert_close(twin(X), 2 * expected)


def test_functional_call_ignores_the_cache(layer):
    with torch.no_grad(), keep_matrices(layer):
        expected = layer(X)
        for scale in (2, 3):
            state = {name: scale * value for name, value in layer.named_parameters()}
            torch.testing.assert_close(functional_call(layer, state, (X,)), scale * expected)
        torch.testing.assert_close(layer(X), expected)


def test_compile_and_export_in_the_scope(layer):
    with torch.no_grad(), keep_matrices(layer):
        expected = layer(X)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        exported = torch.export.export(layer, (X,)).module()
        torch.testing.assert_close(compiled(X), expected)
    with torch.no_grad():
        torch.testing.assert_close(exported(X), expected)
        layer.components.zero_()
        assert not compiled(X).any()


def test_cache_depends_on_dtype_and_autocast(layer):
    with torch.no_grad(), keep_matrices(layer):
        expected = layer(X)
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                assert layer(X).dtype == torch.bfloat16
            torch.testing.assert_close(layer(X), expected)
        torch.testing.assert_close(layer.double()(X.double()).float(), expected)


def test_threads_share_the_scope(layer):
    with torch.no_grad():
        expected = layer(X)
    wrong = []

    def run():
        for _ in range(30):
            with torch.no_grad(), keep_matrices(layer):
                wrong.extend([1] * (not torch.allclose(layer(X), expected, atol=1e-6)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not layer.weight_module.is_cached


class Paused:
    """A function that stops a second thread in its first call, until it is released."""

    def __init__(self, function):
        self.function, self.reached, self.released = function, threading.Event(), threading.Event()

    def __get__(self, instance, owner):
        return functools.partial(self, instance)

    def __call__(self, *args):
        value = self.function(*args)
        if not self.reached.is_set():
            self.reached.set()
            assert self.released.wait(60)
        return value


@pytest.mark.parametrize(
    "place", [(Weight, "_assemble"), (Weight, "cached"), (Block, "prepare"), (Block, "bind")], ids=lambda p: p[1]
)
@pytest.mark.parametrize("begins", ["before", "inside"])
@pytest.mark.parametrize("reopens", [False, True])
def test_a_thread_without_scope_leaves_nothing_behind(place, begins, reopens, layer, monkeypatch):
    """Thread B computes while thread A ends a scope, changes the weight, and perhaps begins another scope."""
    set_kernel(layer, "block" if place[0] is Block or place[1] == "cached" else "factored")
    function = layer.weight_module if place[1] == "_assemble" else layer
    monkeypatch.setattr(*place, paused := Paused(getattr(*place)))
    thread = threading.Thread(target=lambda: torch.no_grad()(function)(*[X] * (function is layer)))
    scope = keep_matrices(layer)
    if begins == "inside":
        scope.__enter__()
    thread.start()
    if not paused.reached.wait(0.2 if begins == "before" else 60):
        paused.reached.set()  # nothing is cached outside of the scope
    if begins == "before":
        scope.__enter__()
    scope.__exit__(None, None, None)
    with torch.no_grad():
        layer.components.mul_(2)
    with torch.no_grad(), keep_matrices(layer if reopens else nn.Identity()):
        paused.released.set()
        thread.join()
        expected = copy.deepcopy(layer)
        for _ in range(2):
            torch.testing.assert_close(layer(X), expected(X))
            torch.testing.assert_close(layer.weight_module(), expected.weight_module())


WRITES = {
    "in place": lambda w: w.mul_(2),
    "foreach": lambda w: torch._foreach_mul_([w], 2),
    "view": lambda w: w[0].zero_(),
    "detached": lambda w: w.detach().zero_(),
    "load": lambda w: nn.ParameterList([w]).load_state_dict({"0": -w}),
    "step": lambda w: (setattr(w, "grad", torch.ones_like(w)), torch.optim.AdamW([w]).step()),
}


@pytest.mark.parametrize("spec", ["quaternion", "phm-4"])
@pytest.mark.parametrize("kernel", ["auto", "block", "factored", "thin"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_writes_inside_the_scope_are_noticed(mode, write, kernel, spec):
    """The next call raises an error in one line, or computes with the new weight if it caches nothing."""
    layer = Linear(32, 40, algebra=zoo.algebra(spec))
    set_kernel(layer, kernel)
    parameters = [layer.components, *([layer.algebra.structure] if spec == "phm-4" else [])]
    for rows, parameter in itertools.product((1, 70), parameters):
        x = torch.randn(rows, 32)
        with mode(), keep_matrices(layer):
            layer(x), layer(x), layer.weight_module()
            WRITES[write](parameter)
            expected = copy.deepcopy(layer)(x)
            is_cached = kernel in ("block", "factored")
            with raises("conflict", "keep_matrices") if is_cached else suppress(zoo.InputError):
                torch.testing.assert_close(layer(x), expected)
            with raises("conflict", "keep_matrices"):
                layer.weight_module()
        with mode():
            torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stage", ["validate", "fit"])
def test_evaluation_loops_open_the_scope(stage, layer):
    task = Classification(layer, 12)
    data = DataLoader(TensorDataset(torch.randn(8, 8), torch.zeros(8, dtype=torch.long)), batch_size=2)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", max_epochs=2, num_sanity_val_steps=0, **options)
    open_scopes = []
    layer.register_forward_hook(lambda *_: open_scopes.append(layer.weight_module.is_cached))
    trainer.fit(task, data, data) if stage == "fit" else trainer.validate(task, data)
    assert open_scopes == ([False] * 4 + [True] * 4) * 2 if stage == "fit" else open_scopes == [True] * 4
    assert not layer.weight_module.is_cached
