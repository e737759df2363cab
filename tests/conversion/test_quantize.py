"""Quantized networks store integers, and compute what they say."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import zoo
from tests.errors import raises
from tests.networks import NETWORKS, build, inputs
from zoo.conversion.quantization import Int4, Int8, dequantized, store
from zoo.errors import InputError
from zoo.nn import Conv2d, Embedding, Linear

NAMES = ["vit", "lstm", "gpt", *(pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS if n not in ("vit", "lstm", "gpt"))]


def stored(net):
    """Return the integers and the scales of a quantized network."""
    return {name: p for name, p in net.named_parameters() if ".original" in name}


@torch.no_grad()
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", NAMES)
def test_every_weight_of_every_backbone_is_stored_in_integers(name, bits):
    net = build(name)
    small, given = zoo.quantize(net, bits), inputs(name)
    for key, p in small.named_parameters():
        is_vector = sum(size > 1 for size in p.shape) < 2
        assert ".original" in key or is_vector, key
    expected = dequantized(zoo.quantize(net, bits))
    torch.testing.assert_close(small(*given), expected(*given))
    assert not torch.equal(small(*given), net(*given))
    assert all(p.is_floating_point() for p in net.parameters())  # the original network is not changed


@pytest.mark.parametrize("axes", [1, 2])
def test_int8_rounds_to_the_nearest_of_255_steps_of_each_channel(axes):
    w = torch.randn(4, 6, 5, 3) * torch.logspace(-3, 3, 4).view(-1, 1, 1, 1)
    q, scale = Int8(w, axes).right_inverse(w)
    assert q.dtype == torch.int8
    assert scale.shape == (4, 6, 1, 1)[:axes] + (1,) * (4 - axes)
    assert (q.abs().amax(tuple(range(axes, 4))) == 127).all()
    assert ((Int8(w, axes)(q, scale) - w).abs() <= scale / 2 * (1 + 1e-5)).all()


@pytest.mark.parametrize("shape", [(64, 32), (5, 7), (3, 4, 3, 3)])
def test_int4_packs_two_numbers_in_a_byte_and_keeps_the_largest_of_each_group(shape):
    w = torch.randn(shape)
    module = Int4(w, 1)
    q, scale = module.right_inverse(w)
    assert (q.dtype, scale.dtype) == (torch.uint8, torch.float16)
    groups = -(-w.numel() // 32)
    assert q.numel() + 2 * scale.numel() == 18 * groups  # 4.5 bits a number
    made = module(q, scale)
    assert made.shape == w.shape
    for part, old in zip(made.flatten().split(32), w.flatten().split(32), strict=True):
        top = old.abs().argmax()
        torch.testing.assert_close(part[top], old[top], rtol=1e-3, atol=0)
        assert ((part - old).abs() <= old[top].abs() / 8 * 1.01).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_quantizing_again_changes_nothing(bits):
    first = dequantized(zoo.quantize(build("vit"), bits))
    first.is_quantized = False
    second = dequantized(zoo.quantize(first, bits))
    for old, new in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-6, atol=0)


@pytest.mark.parametrize("bits", [8, 4])
def test_zeros_stay_zeros(bits):
    layer = Linear(64, 64, algebra="quaternion")
    with torch.no_grad():
        layer.components.mul_(torch.rand_like(layer.components) < 0.1)
        layer.components[0] = 0
    small = zoo.quantize(layer, bits)
    assert (small.components[layer.components == 0] == 0).all()
    assert small.components.isfinite().all()


def ticket(density, shape=(4, 24, 10, 3)):
    w = torch.randn(shape)
    return w * (torch.rand(shape) < density)


@pytest.mark.parametrize(("bits", "size"), [(None, 4), (8, 1), (4, 18 / 32)])
@pytest.mark.parametrize("density", [0, 0.001, 0.1, 0.5])
def test_a_ticket_is_stored_in_its_nonzero_numbers_and_a_bit_mask(bits, size, density):
    layer = nn.Conv2d(10, 96, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(ticket(density, layer.weight.shape))
    small, dense = store(layer, bits, sparse=True), store(layer, bits)
    assert torch.equal(small.weight == 0, (dense.weight if bits == 8 else layer.weight) == 0) or bits == 4
    if bits is None:
        assert torch.equal(small.weight, layer.weight)
    else:
        assert (small.weight - layer.weight).abs().max() <= layer.weight.abs().max() / (254 if bits == 8 else 8) * 1.01
    if bits == 8:
        assert torch.equal(small.weight, dense.weight)
    kept, scales = int(layer.weight.count_nonzero()), 4 * 96 if bits == 8 else 18
    mask = layer.weight.numel() / 8
    assert sum(p.numel() * p.element_size() for p in small.parameters()) <= size * max(kept, 1) + mask + scales


def test_weights_with_few_zeros_are_stored_as_they_are():
    layer = nn.Linear(64, 64)
    small = store(layer, None, sparse=True)
    assert not parametrize.is_parametrized(small)
    assert stored(store(layer, 8, sparse=True)).keys() == stored(zoo.quantize(layer)).keys()


def test_the_scales_are_those_of_output_channels_of_components():
    layers = nn.Sequential(Linear(8, 12, algebra="quaternion"), Conv2d(8, 12, 3, algebra="complex"), nn.Conv2d(2, 3, 3))
    scales = [p.shape for name, p in zoo.quantize(layers).named_parameters() if name.endswith("original1")]
    assert scales == [(4, 3, 1), (2, 6, 1, 1, 1), (3, 1, 1, 1)]
    table = zoo.quantize(Embedding(10, 8, algebra="real"))
    assert [tuple(p.shape) for p in stored(table).values()] == [(10, 8), (10, 1)]


def test_shared_weights_stay_shared():
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    net[1].weight = net[0].weight
    small = zoo.quantize(net)
    assert len(stored(small)) == 2
    assert small[0].parametrizations.weight.original0 is small[1].parametrizations.weight.original0


def test_a_learned_product_stays_float():
    small = zoo.quantize(Linear(32, 32, algebra="phm-4"))
    assert [p.dtype for name, p in small.named_parameters() if "algebra" in name] == [torch.float32]


def test_a_quantized_model_predicts_and_is_not_saved(tmp_path):
    model = zoo.load("vit-digits-quaternion")
    small, images = zoo.quantize(model), torch.rand(3, 1, 8, 8)
    assert [row["label"] for row in small.predict(images)] == [row["label"] for row in model.predict(images)]
    assert small.metrics == {} != model.metrics
    with pytest.raises(InputError, match="a quantized network"):
        zoo.save(small, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_an_adapted_network_is_quantized():
    net = zoo.adapt(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), "quaternion", block_rank=2)
    x = torch.randn(3, 8)
    torch.testing.assert_close(zoo.quantize(net)(x), net(x), rtol=0, atol=0.05)


def test_a_weight_beyond_float16_scales_is_refused():
    net = nn.Linear(8, 8)
    nn.init.constant_(net.weight, 6e5)
    with raises("unsupported", "bits=8"):
        zoo.quantize(net, bits=4)
    assert torch.isfinite(zoo.quantize(net, bits=8)(torch.ones(1, 8))).all()


def test_invalid_quantization():
    net = nn.Sequential(nn.Linear(4, 4))
    with raises("invalid", "bits=3", "use 8 or 4"):
        zoo.quantize(net, 3)
    with raises("conflict", "already quantized"):
        zoo.quantize(zoo.quantize(net))
    with torch.no_grad():
        net[0].weight[0, 0] = torch.nan
    with raises("unsupported", "'0'", "not finite"):
        zoo.quantize(net)
    parametrize.register_parametrization(net[0], "weight", nn.Identity())
    with raises("unsupported", "remove_parametrizations"):
        zoo.quantize(net)
