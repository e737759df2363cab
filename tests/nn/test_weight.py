"""Layers compute with the current values of their components; torch's tools support the weight."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from tests.errors import raises
from zoo.algebras import Algebra, algebra, reals
from zoo.nn import LSTM, Conv1d, Conv2d, Embedding, Linear
from zoo.testing import definition

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


def make(spec="phm-4", seed=0):
    torch.manual_seed(seed)
    return Linear(8, 12, algebra=algebra(spec)).eval()


def reference(layer, x=X):
    """Compute the output by the definition, without caches."""
    w, a = layer.weight_module.elements, layer.algebra.structure
    return definition.linear(a.detach(), w.detach(), x.to(w), layer.out_features) + layer.bias.detach()


def check(layer):
    """Compare with the definition, without gradients and with them."""
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            torch.testing.assert_close(layer(X.to(layer.bias)).detach(), reference(layer))


@pytest.mark.parametrize("spec", ["real", "quaternion"])
def test_matrix_is_the_parameter_over_the_reals(spec):
    layers = [
        Linear(8, 12, algebra=algebra(spec)),
        Conv2d(8, 12, 3, algebra=algebra(spec)),
        Embedding(8, 12, algebra=algebra(spec), padding_idx=0),
    ]
    for layer in layers:
        assert (layer.weight is layer.components) == (spec == "real")
    shapes = [layer.weight.shape for layer in layers]
    torchs = [nn.Linear(8, 12), nn.Conv2d(8, 12, 3), nn.Embedding(8, 12)]
    assert shapes == [layer.weight.shape for layer in torchs]


def test_matrix_of_a_scaled_real_product_is_computed():
    layer = Linear(8, 12, algebra=Algebra(torch.full((1, 1, 1), 2.0))).eval()
    assert layer.components.shape == (12, 8)
    torch.testing.assert_close(layer.weight, 2 * layer.components)
    check(layer)


def test_functional_call():
    layer, other = make(), make(seed=1)
    state = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(functional_call(layer, state, (X,)), reference(other))
            torch.testing.assert_close(layer(X), reference(layer))
        many = {name: torch.stack([value.detach(), 2 * value.detach()]) for name, value in layer.named_parameters()}
        y = torch.func.vmap(lambda tensors: functional_call(layer, tensors, (X,)))(many)
    torch.testing.assert_close(y[0], reference(layer))
    check(layer)


@pytest.mark.parametrize("spec", ["real", "quaternion", "phm-4"])
def test_compiled_and_exported_layers_see_changes(spec):
    layer = make(spec)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        layer(X)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), reference(layer))
            layer.components.mul_(2)
    for strict in (True, False):
        exported = torch.export.export(layer, (X,), strict=strict).module()
        torch.testing.assert_close(exported(X).detach(), reference(layer))
        assert {name for name, _ in exported.named_parameters()} == {name for name, _ in layer.named_parameters()}


WRITES = {
    "init": nn.init.kaiming_uniform_,
    "data": lambda w: w.data.fill_(0),
    "detached": lambda w: w.detach().mul_(2),
    "view": lambda w: w.view(-1)[:3].zero_(),
    "item": lambda w: w.__setitem__(0, 0.0),
    "operator": lambda w: w.__imul__(2),
    "assigned data": lambda w: setattr(w, "data", torch.zeros(12, 8)),
    "out": lambda w: torch.add(torch.zeros(12, 8), 1, out=w),
    "chunk": lambda w: [nn.init.xavier_uniform_(part) for part in w.chunk(3)],
    "orthogonal": nn.init.orthogonal_,
    "relu": lambda w: nn.functional.relu(w, inplace=True),
    "dropout": lambda w: nn.functional.dropout(w, 0.5, inplace=True),
    "threshold": lambda w: nn.functional.threshold(w, 0.1, 0, inplace=True),
    "elu": lambda w: nn.functional.elu(w, inplace=True),
    "leaky_relu": lambda w: nn.functional.leaky_relu(w, inplace=True),
    "module": lambda w: nn.Hardswish(inplace=True)(w),
    "foreach": lambda w: torch._foreach_mul_([torch.ones(3), w], 2),
    "outs": lambda w: torch.sort(torch.zeros(12, 8), out=(w, torch.empty(12, 8, dtype=torch.int64))),
    "parameters": lambda w: nn.utils.vector_to_parameters(torch.zeros(96), [w]),
    "apply": lambda w: w.detach().apply_(lambda value: 0.0),
    "requires_grad": lambda w: w.requires_grad_(False),
    "transposed": lambda w: w.T[1:].fill_(1),
}


@pytest.mark.parametrize("write", WRITES)
def test_computed_weight_is_read_only(write):
    layer = make("quaternion")
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode(), raises("unsupported", "layer.components"):
            WRITES[write](layer.weight)
    check(layer)


def test_computed_weight_can_be_read():
    layer = make("quaternion")
    w = layer.weight
    y = nn.functional.linear(X, layer.weight, layer.bias)
    torch.testing.assert_close(y, layer(X))
    assert type(y) is type(w + 1) is torch.Tensor
    other = torch.empty(12, 8)
    other.copy_(w)
    torch.testing.assert_close(other, w.detach())
    torch.save(w.detach(), file := io.BytesIO())
    file.seek(0)
    for same in (torch.load(file), copy.deepcopy(w.detach())):
        assert type(same) is torch.Tensor
        assert torch.equal(same, w)
    w.sum().backward()
    assert layer.components.grad.abs().max() > 0


def test_the_weight_of_a_copied_real_layer_is_a_parameter():
    layer = make("real")
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.weight is other.components
        assert isinstance(other.weight, nn.Parameter)
        other.algebra.structure = torch.full((1, 1, 1), 2.0)
        torch.testing.assert_close(other.weight.detach(), 2 * layer.weight.detach())


def test_weight_can_be_assigned_only_over_the_reals():
    layer, tied = make("real"), nn.Parameter(torch.randn(12, 8))
    layer.weight = tied
    assert layer.weight is tied
    assert [name for name, p in layer.named_parameters() if p is tied] == ["weight_module.components"]
    for value in (tied, tied.detach()):
        with raises("invalid", "layer.components"):
            make("quaternion").weight = value


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
@pytest.mark.parametrize("spec", ["real", "quaternion", "phm-4"])
@pytest.mark.parametrize(
    ("build", "theirs", "x"),
    [
        (lambda a: Linear(8, 12, algebra=a), nn.Linear(8, 12), X),
        (lambda a: Conv1d(8, 12, 3, algebra=a), nn.Conv1d(8, 12, 3), X.T[None]),
    ],
)
def test_torch_norms_of_the_matrix(norm, spec, build, theirs, x):
    torch.manual_seed(0)
    ours, theirs = build(algebra(spec)), copy.deepcopy(theirs)
    theirs.weight.data, theirs.bias.data = ours.weight.detach().clone(), ours.bias.detach().clone()
    for layer in (ours, theirs):
        torch.manual_seed(1)
        assert norm(layer) is layer
    for _ in range(3):
        torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))
    torch.testing.assert_close(torch.Tensor(ours.weight), theirs.weight)
    assert parametrize.is_parametrized(ours)
    ours(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ours.parameters())
    with torch.no_grad():
        before = ours(x)
        ours.components[..., 0].mul_(0.5)
        assert not torch.allclose(ours(x), before)
    twin = norm(build(algebra(spec))).eval()
    twin.load_state_dict(ours.state_dict())
    for same in (twin, copy.deepcopy(ours)):
        torch.testing.assert_close(same(x), ours(x))


def test_unsupported_parametrization():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, w):
            return w / 2, w / 2

    with raises("invalid", "Sum", "components"):
        parametrize.register_parametrization(make("quaternion"), "weight", Sum(), unsafe=True)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("spec", ["real", "quaternion"])
@pytest.mark.parametrize(
    "tool",
    [
        weight_norm,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda module, name: prune.l1_unstructured(module, name, 0.5),
        lambda module, name: prune.global_unstructured([(module, name)], prune.L1Unstructured, amount=0.5),
    ],
    ids=["weight_norm", "old weight_norm", "old spectral_norm", "l1", "global"],
)
def test_torch_tools_on_the_components(spec, tool):
    layer = make(spec)
    check(layer)
    tool(layer.weight_module, "components")
    for _ in range(2):
        last = layer.components.detach().clone()
        layer.train()(X).square().sum().backward()
        torch.optim.SGD(layer.parameters(), 0.1).step()
        layer(X)
        assert not torch.equal(layer.components, last)
        check(layer.eval())


def test_algebras_are_objects_or_specs():
    for build, sizes in ((Linear, (8, 8)), (Conv2d, (8, 8, 3)), (Embedding, (8, 8)), (LSTM, (8, 8))):
        torch.manual_seed(0)
        named = build(*sizes, algebra="quaternion")
        torch.manual_seed(0)
        given = build(*sizes, algebra=algebra("quaternion"))
        assert all(torch.equal(a, b) for a, b in zip(named.parameters(), given.parameters(), strict=True))
        with raises("invalid", "zoo.Algebra", "int"):
            build(*sizes, algebra=4)
        with raises("unknown", "quaternions", "quaternion"):
            build(*sizes, algebra="quaternions")


def test_meta_device():
    for product in (reals, lambda: algebra("quaternion")):
        with torch.device("meta"):
            layer = Linear(8, 12, algebra=product()).eval()
        with torch.no_grad():
            assert layer(torch.empty(3, 8, device="meta")).shape == (3, 12)
        layer.to_empty(device="cpu").reset_parameters()
        assert layer.components.shape == Linear(8, 12, algebra=product()).components.shape
