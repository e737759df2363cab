"""Folded networks: torch layers with the same outputs, modes and shared parameters; projection onto the nearest weights."""

import copy
from importlib.util import find_spec

import numpy as np
import pytest
import timm
import torch
from torch import nn

import zoo
from tests import networks
from tests.errors import raises
from tests.networks import NETWORKS, OPTIONAL
from zoo import registry
from zoo.algebras import algebra
from zoo.conversion.transfer import block_rows, nearest_components, nearest_product, nearest_rule
from zoo.errors import InputError
from zoo.kernels import axis_layout, real_matrix
from zoo.nn import GRU, LSTM, Conv1d, Conv2d, Conv3d, ConvTranspose2d, Linear
from zoo.nn.weight import Weight


def build(name, spec, scope="all"):
    return networks.build(name, spec, scope).double()


def inputs(name, rows=3):
    return networks.inputs(name, rows, dtype=torch.float64)


def hypercomplex_weights(net):
    return [name for name, module in net.named_modules() if isinstance(module, Weight)]


def test_every_backbone_is_tested():
    missing = {name for name, package in OPTIONAL.items() if not find_spec(package)}
    ours = {entry.name for entry in registry.entries("zoo.backbones") if entry.ours} - missing
    assert {name.partition(",")[0] for name in NETWORKS} == ours


@torch.no_grad()
@pytest.mark.parametrize("spec", ["octonion", "phm(n=4)"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_folded_network_computes_the_same(name, spec):
    net, arguments = build(name, spec), inputs(name)
    for module in net.modules():  # vectors are zeros or ones in a new network
        for parameter in module.parameters(recurse=False):
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    before = copy.deepcopy(net.state_dict())
    folded = zoo.fold(net)
    torch.testing.assert_close(folded(*arguments), net(*arguments), rtol=1e-10, atol=1e-10)
    assert hypercomplex_weights(net)
    assert hypercomplex_weights(folded) == []
    assert not any("components" in key for key in folded.state_dict())
    assert net.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt", "cnn"])
def test_a_table_over_the_algebra_is_folded(name):
    net, arguments = build(name, "quaternion", "all+embed+head"), inputs(name)
    folded = zoo.fold(net)
    torch.testing.assert_close(folded(*arguments), net(*arguments), rtol=1e-10, atol=1e-10)
    assert hypercomplex_weights(folded) == []


LAYERS = {
    "padded": (lambda a: Linear(10, 7, algebra=a), (5, 10)),
    "blocks": (lambda a: Linear(8, 24, algebra=a, blocks=(2, 6), bias=False), (2, 3, 8)),
    "conv1d": (lambda a: Conv1d(6, 9, 3, algebra=a, padding="same", dilation=2, padding_mode="reflect"), (2, 6, 7)),
    "conv2d": (lambda a: Conv2d(8, 12, (3, 2), algebra=a, stride=(2, 1), padding=1, bias=False), (2, 8, 6, 5)),
    "groups": (lambda a: Conv2d(12, 24, 3, algebra=a, groups=3), (2, 12, 4, 4)),
    "uneven groups": (lambda a: Conv1d(20, 8, 3, algebra=a, groups=4), (2, 20, 5)),
    "depthwise": (lambda a: Conv1d(8, 8, 3, algebra=a, groups=8), (2, 8, 5)),
    "conv3d": (lambda a: Conv3d(8, 12, (3, 2, 1), algebra=a, stride=(2, 1, 1), bias=False), (2, 8, 6, 5, 2)),
    "transposed": (lambda a: ConvTranspose2d(8, 12, (3, 2), algebra=a, stride=2, output_padding=1), (2, 8, 6, 5)),
    "transposed groups": (lambda a: ConvTranspose2d(12, 24, 3, algebra=a, groups=3, bias=False), (2, 12, 4, 4)),
}


@pytest.mark.parametrize("spec", ["quaternion", "phm(n=3)"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_becomes_a_torch_layer(name, spec):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer = make(algebra(spec)).double()
    if layer.bias is not None:
        nn.init.normal_(layer.bias)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    folded = zoo.fold(layer)
    assert type(folded).__module__.startswith("torch.nn.")
    assert type(folded).__name__ == type(layer).__name__
    assert list(folded.state_dict()) == (["weight"] if layer.bias is None else ["weight", "bias"])
    torch.testing.assert_close(folded(x), layer(x))
    seed = torch.randn_like(layer(x))
    ours, theirs = (torch.autograd.grad(f(x), x, seed)[0] for f in (folded, layer))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("ours", "theirs"), [(LSTM, nn.LSTM), (GRU, nn.GRU)])
@pytest.mark.parametrize("spec", ["quaternion", "phm(n=3)"])
def test_recurrent_layers_become_those_of_torch(spec, ours, theirs):
    torch.manual_seed(0)
    options = {"num_layers": 2, "bidirectional": True, "dropout": 0.5}
    layer = ours(6, 5, algebra=spec, **options, rules="gate").double().eval()
    for cell in layer.cells:
        nn.init.normal_(cell.bias)
        if cell.hidden_bias is not None:
            nn.init.normal_(cell.hidden_bias)
    layer.cells[1].requires_grad_(False)
    folded = zoo.fold(layer)
    assert type(folded) is theirs
    assert folded.state_dict().keys() == theirs(6, 5, **options).state_dict().keys()
    x, state = torch.randn(3, 7, 6, dtype=torch.float64), tuple(torch.randn(2, 4, 7, 5, dtype=torch.float64))
    state = state if ours is LSTM else state[0]
    for actual, expected in ((folded(x), layer(x)), (folded(x, state), layer(x, state))):
        torch.testing.assert_close(actual[0], expected[0])
        torch.testing.assert_close(actual[1], expected[1])
    assert not folded.training
    second = "bias_hh_l0" if ours is LSTM else "bias_hh_l0_reverse"  # the second biases of an LSTM are not trained
    assert {name for name, p in folded.named_parameters() if not p.requires_grad} >= {"weight_ih_l0_reverse", second}
    assert folded.weight_ih_l0.requires_grad


def test_mode_dtype_and_requires_grad_are_preserved():
    net = nn.Sequential(
        Linear(4, 4, algebra=algebra("phm(n=2)")), Linear(4, 4, algebra=algebra("complex")), nn.Linear(4, 4)
    ).bfloat16()
    net[0].requires_grad_(False)
    net[1].bias.requires_grad_(False)
    net[1].eval()
    folded = zoo.fold(net)
    assert {p.dtype for p in folded.parameters()} == {torch.bfloat16}
    trained = [name for name, p in folded.named_parameters() if p.requires_grad]
    assert trained == ["1.weight", "2.weight", "2.bias"]
    assert [m.training for m in folded] == [True, False, True]
    assert all(p.is_leaf for p in folded.parameters())


def test_layers_that_share_components_share_a_parameter():
    torch.manual_seed(0)
    for spec in ("quaternion", "real"):
        net = nn.Sequential(*(Linear(8, 8, algebra=algebra(spec)) for _ in range(3)))
        net[1].components = net[0].components
        folded = zoo.fold(net)
        assert folded[0].weight is folded[1].weight
        assert folded[0].weight is not folded[2].weight
        assert len(list(folded.parameters())) == len(list(net.parameters()))
    layer, plain = Linear(8, 8, algebra=algebra("real")), nn.Linear(8, 8)
    plain.weight = layer.components
    folded = zoo.fold(nn.Sequential(layer, plain, layer))
    assert folded[0].weight is folded[1].weight
    assert folded[0] is folded[2]


@torch.no_grad()
def test_a_folded_converted_network_has_only_torch_layers():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    net = zoo.convert(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), "quaternion")
    x = torch.randn(2, 5, 32)
    for mode in (True, False):
        folded = zoo.fold(net.train(mode))
        torch.testing.assert_close(folded(x), net(x))
        assert not any(type(module).__module__.startswith("zoo") for module in folded.modules())
    assert not hasattr(folded, "conversion")
    plain = timm.create_model("vit_tiny_patch16_224", img_size=16, patch_size=8, embed_dim=32, depth=1, num_heads=2)
    folded = zoo.fold(zoo.convert(copy.deepcopy(plain), "quaternion"))
    assert folded.state_dict().keys() == plain.state_dict().keys()
    plain.load_state_dict(folded.state_dict())


def test_errors(tmp_path):
    class Squared(Linear):
        def forward(self, x):
            return super().forward(x) ** 2

    with raises("unsupported", "'0' (Squared)"):
        zoo.fold(nn.Sequential(Squared(4, 4, algebra="complex")))
    spec, info = NETWORKS["vit"]
    with pytest.raises(InputError):
        zoo.save(zoo.fold(build("vit", "complex")), tmp_path / "m", backbone=spec, algebra="complex", **info)
    assert not (tmp_path / "m").exists()


FIXED = ["real", "quaternion", "octonion", "clifford(p=0,q=0,r=1)"]
SIZES = [((12, 8), (1, 1)), ((10, 7), (1, 1)), ((20, 30), (2, 3)), ((6, 9), (3, 3))]


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def axes(n, channels, blocks):
    inp, out = (axis_layout(c, n, b) for c, b in zip(channels, blocks, strict=True))
    return out, inp


def error(matrix, structure, w, out, inp):
    return (matrix - real_matrix(structure, w, out, inp)).norm().item()


@pytest.mark.parametrize("spec", FIXED)
@pytest.mark.parametrize("kernel", [(), (3, 2)])
@pytest.mark.parametrize(("channels", "blocks"), SIZES)
def test_the_projection_of_a_hypercomplex_matrix_is_exact(spec, kernel, channels, blocks):
    table = algebra(spec).double().structure
    out, inp = axes(table.shape[0], channels, blocks)
    w = draw(table.shape[0], out.elements, inp.elements, *kernel)
    matrix = real_matrix(table, w, out, inp)
    projected = nearest_components(matrix, table, out, inp)
    assert projected.shape == w.shape
    torch.testing.assert_close(real_matrix(table, projected, out, inp), matrix)
    if all(axis.size == axis.n * axis.width for axis in (out, inp)):
        torch.testing.assert_close(projected, w)


def test_weights_that_only_multiply_padding_are_zero():
    table = algebra("octonion").double().structure
    out, inp = axes(8, (9, 9), (1, 1))
    w = nearest_components(draw(9, 9), table, out, inp).requires_grad_()
    real_matrix(table, w, out, inp).square().sum().backward()
    unread = w.grad == 0
    assert unread.any()
    assert w.detach()[unread].abs().max() < 1e-12


@pytest.mark.parametrize("spec", FIXED[1:])
@pytest.mark.parametrize(("channels", "blocks"), SIZES)
def test_the_residual_is_orthogonal_to_every_hypercomplex_matrix(spec, channels, blocks):
    table = algebra(spec).double().structure
    out, inp = axes(table.shape[0], channels, blocks)
    matrix = draw(channels[1], channels[0], 2)
    residual = matrix - real_matrix(table, nearest_components(matrix, table, out, inp), out, inp)
    assert residual.norm() > 0.1
    for seed in range(5):
        other = real_matrix(table, draw(table.shape[0], out.elements, inp.elements, 2, seed=seed + 1), out, inp)
        assert abs((residual * other).sum().item()) < 1e-10 * other.norm().item() * matrix.norm().item()


def rearranged(matrix, n):
    """The rearrangement of Van Loan and Pitsianis in NumPy: one row for each of the n^2 blocks."""
    rows, columns = (size // n for size in matrix.shape)
    blocks = [matrix[k * rows : (k + 1) * rows, j * columns : (j + 1) * columns].ravel() for k in range(n) for j in range(n)]
    return np.stack(blocks)


@pytest.mark.parametrize("n", [1, 3])
def test_phm_error_is_the_tail_of_the_singular_values(n):
    out, inp = axes(n, (6 * n, 4 * n), (1, 1))
    matrix = draw(4 * n, 6 * n)
    rule = nearest_product([block_rows(matrix, out, inp)], n)
    w = nearest_components(matrix, rule, out, inp)
    tail = np.linalg.svd(rearranged(matrix.numpy(), n), compute_uv=False)[n:]
    np.testing.assert_allclose(error(matrix, rule, w, out, inp), np.sqrt((tail**2).sum()), rtol=1e-9, atol=1e-9)
    assert rule.square().sum().item() == pytest.approx(n * n)


def test_a_shared_rule_is_the_best_for_all_layers_together():
    n, sizes = 3, [((12, 9), (1, 1)), ((9, 12), (1, 1))]
    layouts = [axes(n, *size) for size in sizes]
    matrices = [draw(out.channels, inp.channels, seed=i) for i, (out, inp) in enumerate(layouts)]
    rows = [block_rows(m, *axis) for m, axis in zip(matrices, layouts, strict=True)]

    def total(rule):
        errors = [
            error(m, rule, nearest_components(m, rule, *axis), *axis) ** 2 for m, axis in zip(matrices, layouts, strict=True)
        ]
        return sum(errors)

    shared = nearest_product(rows, n)
    together = np.concatenate([rearranged(m.numpy(), n) for m in matrices], 1)
    tail = np.linalg.svd(together, compute_uv=False)[n:]
    assert total(shared) == pytest.approx((tail**2).sum())
    for alone in rows:
        assert total(nearest_product([alone], n)) > total(shared)


@pytest.mark.parametrize("rank", [8])
def test_the_nearest_factors_of_a_low_rank_product_are_exact(rank):
    torch.manual_seed(0)
    table, start = algebra("quaternion").structure.double(), algebra(f"phm(n=4, rank={rank})").double()
    fitted = nearest_rule(table, start)
    torch.testing.assert_close(torch.einsum("ri,rj,rk->ijk", *fitted), table)
    lengths = fitted.norm(dim=-1)
    torch.testing.assert_close(lengths[0], lengths[2])
    assert nearest_rule(table, algebra("phm-4")) is table
