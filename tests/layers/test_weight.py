"""Layers compute with the current values of their components; torch's tools support the weight or raise an error."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from tests.errors import raises
from zoo.algebras import Algebra, algebra, reals
from zoo.layers import LSTM, Conv1d, Conv2d, Embedding, Linear
from zoo.layers.weight import Weight
from zoo.testing import definition

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


def make(spec="phm-4", seed=0):
    torch.manual_seed(seed)
    return Linear(algebra(spec), 8, 12).eval()


def reference(layer, x=X):
    """Compute the output by the definition, without caches."""
    w, a = layer.weight_module.elements, layer.algebra.structure
    return definition.linear(a.detach(), w.detach(), x.to(w), layer.out_features) + layer.bias.detach()


def check(layer):
    """Compare with the definition, without gradients and with them."""
    with torch.no_grad():
        torch.testing.assert_close(layer(X.to(layer.bias)), reference(layer))
    with torch.inference_mode():
        torch.testing.assert_close(layer(X.to(layer.bias)), reference(layer))
    torch.testing.assert_close(layer(X.to(layer.bias)).detach(), reference(layer))


@pytest.fixture
def layer():
    made = make()
    check(made)
    return made


@pytest.mark.parametrize("spec", ["real", "quaternion"])
def test_matrix_is_the_parameter_over_the_reals(spec):
    layers = [Linear(algebra(spec), 8, 12), Conv2d(algebra(spec), 8, 12, 3), Embedding(algebra(spec), 8, 12, padding_idx=0)]
    for layer in layers:
        assert (layer.weight is layer.components) == (spec == "real")
    shapes = [layer.weight.shape for layer in layers]
    torchs = [nn.Linear(8, 12), nn.Conv2d(8, 12, 3), nn.Embedding(8, 12)]
    assert shapes == [layer.weight.shape for layer in torchs]


def test_matrix_of_a_scaled_real_product_is_computed():
    layer = Linear(Algebra(torch.full((1, 1, 1), 2.0)), 8, 12).eval()
    assert layer.components.shape == (12, 8)
    torch.testing.assert_close(layer.weight, 2 * layer.components)
    check(layer)


def sgd(layer, x=X):
    layer(x).square().sum().backward()
    torch.optim.SGD(layer.parameters(), 0.1).step()


def test_functional_call(layer):
    other = make(seed=1)
    state = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(functional_call(layer, state, (X,)), reference(other))
            torch.testing.assert_close(layer(X), reference(layer))
        plain = {name: value.detach().clone() for name, value in state.items()}
        for scale in (1, 2):
            plain["weight_module.components"].fill_(scale)
            expected = make()
            expected.load_state_dict(plain)
            torch.testing.assert_close(functional_call(layer, plain, (X,)), reference(expected))
        torch.testing.assert_close(layer(X), reference(layer))
    many = {name: torch.stack([value.detach(), 2 * value.detach()]) for name, value in layer.named_parameters()}
    with torch.no_grad():
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
        with torch.no_grad():
            layer(X)
        exported = torch.export.export(layer, (X,), strict=strict).module()
        torch.testing.assert_close(exported(X).detach(), reference(layer))
        assert {name for name, _ in exported.named_parameters()} == {name for name, _ in layer.named_parameters()}


WRITES = {
    "init": nn.init.zeros_,
    "normal": nn.init.normal_,
    "kaiming": nn.init.kaiming_uniform_,
    "orthogonal": nn.init.orthogonal_,
    "data": lambda w: w.data.fill_(0),
    "detached": lambda w: w.detach().mul_(2),
    "view": lambda w: w.view(-1)[:3].zero_(),
    "item": lambda w: w.__setitem__(0, 0.0),
    "operator": lambda w: w.__imul__(2),
    "assigned data": lambda w: setattr(w, "data", torch.zeros(12, 8)),
    "frozen": lambda w: w.requires_grad_(False),
    "out": lambda w: torch.add(torch.zeros(12, 8), 1, out=w),
    "foreach": lambda w: torch._foreach_zero_([w]),
    "chunk": lambda w: [nn.init.xavier_uniform_(part) for part in w.chunk(3)],
    "split": lambda w: w.split(4)[1].zero_(),
    "unbind": lambda w: w.unbind()[0].zero_(),
    "iteration": lambda w: [row.zero_() for row in w],
    "inplace": lambda w: nn.functional.relu(w, inplace=True),
    "inplace, by position": lambda w: nn.functional.leaky_relu(w, 0.1, True),
    "storage": lambda w: w.untyped_storage().fill_(0),
    "storage of a view": lambda w: w.data[0].untyped_storage().copy_(torch.zeros(12, 8).untyped_storage()),
    "operator of aten": lambda w: torch.ops.aten.mul_.Scalar(w, 2),
    "out of several": lambda w: torch.linalg.qr(torch.eye(12, 8), out=(w, torch.empty(8, 8))),
    "foreach of two": lambda w: torch._foreach_copy_([torch.zeros(2), w], [torch.ones(2), torch.ones(12, 8)]),
}


@pytest.mark.parametrize("write", WRITES)
def test_computed_weight_is_read_only(write):
    for layer in (make("quaternion"), make("quaternion").train()):
        for weight in (layer.weight, layer.weight_module()):
            with raises("unsupported", "layer.components"):
                WRITES[write](weight)
        check(layer.eval())


def test_arrays_of_a_computed_weight_are_read_only():
    weight = make("quaternion").weight.detach()
    for array in (weight.numpy(), np.asarray(weight)):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    with raises("unsupported", "layer.components"):
        torch.from_dlpack(weight)


def test_computed_weight_can_be_read():
    layer = make("quaternion")
    w = layer.weight
    y = nn.functional.linear(X, layer.weight, layer.bias)
    torch.testing.assert_close(y, layer(X))
    assert type(y) is type(w + 1) is torch.Tensor
    other = torch.empty(12, 8)
    other.copy_(w)
    other[0] = w[0].detach()
    torch.testing.assert_close(other, w.detach())
    torch.save(w.detach(), file := io.BytesIO())
    file.seek(0)
    for same in (torch.load(file), copy.deepcopy(w.detach())):
        assert type(same) is torch.Tensor
        assert torch.equal(same, w)
    w.sum().backward()
    assert layer.components.grad.abs().max() > 0


def test_weight_can_be_assigned_only_over_the_reals():
    layer, tied = make("real"), nn.Parameter(torch.randn(12, 8))
    layer.weight = tied
    assert layer.weight is tied
    assert [name for name, p in layer.named_parameters() if p is tied] == ["weight_module.components"]
    for value in (tied, tied.detach()):
        with raises("invalid", "layer.components"):
            make("quaternion").weight = value


def linear(product):
    return Linear(product, 8, 12)


def twins(norm, spec, build=linear):
    """Parametrize a layer and a torch layer with the same matrix."""
    torch.manual_seed(0)
    ours = build(algebra(spec))
    w = ours.weight.detach()
    theirs = nn.Linear(8, 12) if w.ndim == 2 else nn.Conv1d(8, 12, 3)
    with torch.no_grad():
        theirs.weight.copy_(w)
        theirs.bias.copy_(ours.bias)
    for layer in (ours, theirs):
        torch.manual_seed(1)
        assert norm(layer) is layer
    return ours, theirs


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
@pytest.mark.parametrize("spec", ["real", "quaternion", "phm-4"])
@pytest.mark.parametrize(
    ("build", "x"), [(lambda a: Linear(a, 8, 12), X), (lambda a: Conv1d(a, 8, 12, 3), torch.randn(2, 8, 5))]
)
def test_torch_norms_of_the_matrix(norm, spec, build, x):
    ours, theirs = twins(norm, spec, build)
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
    twin, state = build(algebra(spec)).eval(), ours.state_dict()
    norm(twin).load_state_dict(state)
    torch.testing.assert_close(twin(x), ours(x))


def test_torch_norms_of_the_components():
    layer = make("quaternion")
    spectral_norm(layer.weight_module, "components")
    check(layer)
    with torch.no_grad():
        layer.weight_module.parametrizations.components.original.add_(0.1)
    check(layer)
    other = make("quaternion")
    expected = other(X)
    weight_norm(other.weight_module, "components")
    torch.testing.assert_close(other(X), expected)


def test_unsupported_parametrizations():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, w):
            return w / 2, w / 2

    with raises("invalid", "Sum", "components"):
        parametrize.register_parametrization(make("quaternion"), "weight", Sum(), unsafe=True)
    with raises("invalid", "components"):
        parametrize.remove_parametrizations(spectral_norm(make("quaternion")), "weight")


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("spec", ["real", "quaternion"])
@pytest.mark.parametrize(
    "tool",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda layer, name="weight": prune.l1_unstructured(layer, name, 0.5),
        lambda layer, name="weight": prune.ln_structured(layer, name, 0.5, 2, 0),
        lambda layer, name="weight": prune.global_unstructured([(layer, name)], prune.L1Unstructured, amount=0.5),
    ],
    ids=["weight_norm", "spectral_norm", "l1", "structured", "global"],
)
def test_torch_tools_that_need_a_parameter(spec, tool):
    layer = make(spec)
    check(layer)
    before = set(layer.state_dict())
    with raises("invalid", "layer.weight_module", "'components'"):
        tool(layer)
    assert set(layer.state_dict()) == before
    check(layer)
    tool(layer.weight_module, "components")
    for _ in range(2):
        last = layer.components.detach().clone()
        sgd(layer.train())
        layer(X)
        assert not torch.equal(layer.components, last)
        check(layer.eval())


def test_missing_parameters_raise_key_errors():
    layer = make()
    with pytest.raises(KeyError, match="nothing"):
        del layer._parameters["nothing"]
    del layer.bias
    assert [name for name, _ in layer.named_parameters()] == ["weight_module.components", "weight_module.algebra.structure"]


@pytest.mark.parametrize("wrong", [8, "quaternion", None])
def test_first_argument_must_be_an_algebra(wrong):
    for build, sizes in ((Linear, (8, 8)), (Conv2d, (8, 8, 3)), (Embedding, (8, 8)), (Weight, (8, 8)), (LSTM, (8, 8))):
        with raises("invalid", "zoo.Algebra", repr(wrong)):
            build(wrong, *sizes)


@pytest.mark.parametrize(
    "build",
    [
        lambda product: Linear(product, 8.0, 8),
        lambda product: Linear(product, 8, "8"),
        lambda product: Linear(product, 8, 8, blocks=(1, 2.0)),
        lambda product: Conv2d(product, 8.0, 8, 3),
        lambda product: Embedding(product, 9, 8.0),
        lambda product: LSTM(product, 8, 8.0),
    ],
)
def test_sizes_must_be_whole_numbers(build):
    for spec in ("real", "quaternion"):
        with raises("invalid", "whole numbers"):
            build(algebra(spec))


def test_meta_device():
    for product in (reals, lambda: algebra("quaternion")):
        with torch.device("meta"):
            layer = Linear(product(), 8, 12).eval()
        with torch.no_grad():
            assert layer(torch.empty(3, 8, device="meta")).shape == (3, 12)
        layer.to_empty(device="cpu").reset_parameters()
        assert layer.components.shape == Linear(product(), 8, 12).components.shape


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:FutureWarning", "ignore:.*torch.jit.*:DeprecationWarning")
def test_jit_trace_contains_the_components():
    layer = make()
    with torch.no_grad():
        layer(X)
        traced = torch.jit.trace(layer, (X,))
        torch.testing.assert_close(traced(X), reference(layer))
    assert "components" in str(traced.inlined_graph)


def test_pruned_entries_stay_zero_in_training():
    layers = [
        Linear(algebra("quaternion"), 8, 12),
        Embedding(algebra("quaternion"), 9, 8),
        Conv1d(algebra("quaternion"), 8, 12, 3),
    ]
    for layer, x in zip(layers, (X, torch.arange(9), torch.randn(2, 8, 5)), strict=True):
        prune.random_unstructured(layer.weight_module, "components", 0.5)
        mask = layer.weight_module.components_mask
        for _ in range(2):
            last = layer.components.detach().clone()
            sgd(layer, x)
            layer(x)
            assert not torch.equal(layer.components, last)
            assert torch.equal(layer.components == 0, mask == 0)
