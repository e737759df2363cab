"""Generative networks over every algebra: causality, padding, KV caches and memory."""

import pytest
import torch

import zoo
from tests.errors import raises
from zoo import registry
from zoo.backbones.build import count
from zoo.nn import Layers
from zoo.testing.backbone import fitting_dim

CORPUS = {"vocab_size": 30, "max_length": 20}
PARALLEL = CORPUS | {"seq2seq": True}
SIZES = "dim={dim}, depth=2, heads=2, ffn={dim}"
SPECS = {
    "gpt": (f"gpt({SIZES})", CORPUS),
    "gpt, rotary": (f"gpt({SIZES}, positions=rotary, score=product, bias=true, tied=false)", CORPUS),
    "gpt, trigonometric": (f"gpt({SIZES}, positions=trigonometric, score=hermitian)", CORPUS),
    "transformer_xl": (f"transformer_xl({SIZES})", CORPUS),
    "transformer": (f"transformer({SIZES})", PARALLEL),
    "transformer, learned": (f"transformer({SIZES}, positions=learned, score=product)", PARALLEL),
    "transformer, rotary": (f"transformer({SIZES}, positions=rotary)", PARALLEL),
}
every_algebra = pytest.mark.parametrize("algebra", ["quaternion", "octonion", "phm(n=4)", "complex_order"])
every_network = pytest.mark.parametrize("name", SPECS)


def build(name, algebra, max_length=20, **options):
    torch.manual_seed(0)
    spec, info = SPECS.get(name, (name, CORPUS))
    info = info | {"max_length": max_length}
    layers = Layers(algebra, **options)
    spec = spec.replace("{dim}", str(fitting_dim(layers.n)))
    return registry.create("zoo.backbones", spec, layers, **info).double().eval()


def tokens(rows, length, seed=0, least=1):
    return torch.randint(least, CORPUS["vocab_size"], (rows, length), generator=torch.Generator().manual_seed(seed))


def sources(name):
    if not SPECS[name][1].get("seq2seq"):
        return None
    source = tokens(3, 7, seed=1)
    source[1, 4:] = 0
    return source


def whole(net, source, target):
    return net(target) if source is None else net(source, target)


@every_algebra
@every_network
def test_logits_do_not_depend_on_later_tokens(name, algebra):
    net, source, target = build(name, algebra), sources(name), tokens(3, 9)
    changed = target.clone()
    changed[:, 5:] = changed[:, 5:] % (CORPUS["vocab_size"] - 1) + 1
    before, after = whole(net, source, target), whole(net, source, changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert ((before - after)[:, 5:].abs().amax(-1) > 1e-9).all()


@every_algebra
@every_network
def test_decoding_with_a_cache_equals_forward(name, algebra):
    net, source, target = build(name, algebra), sources(name), tokens(3, 9)
    cache = net.init_cache(source)
    parts = [net.decode_step(part, cache) for part in target.split([4, 1, 1, 3], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole(net, source, target))
    assert cache.length == 9


@every_algebra
@every_network
def test_padding_on_either_side_changes_nothing(name, algebra):
    net, source, target = build(name, algebra), sources(name), tokens(3, 6)
    alone = whole(net, source, target)
    right = whole(net, source, torch.cat([target, torch.zeros_like(target[:, :2])], 1))
    torch.testing.assert_close(right[:, :6], alone)
    left = torch.cat([torch.zeros_like(target[:, :2]), target], 1)
    cache = net.init_cache(source)
    parts = [
        net.decode_step(left[:, :5], cache, left[:, :5] != 0),
        net.decode_step(left[:, 5:6], cache),
        net.decode_step(left[:, 6:], cache),
    ]
    torch.testing.assert_close(torch.cat(parts, 1)[:, 2:], alone)


@every_algebra
def test_segments_with_a_memory_equal_the_whole_text(algebra):
    # An embedding that encodes order restarts in each segment.
    net, target, memory = build(f"transformer_xl({SIZES}, memory=12)", algebra, embedding="table"), tokens(3, 12), []
    parts = [net(part, memory) for part in target.split([5, 4, 3], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), net(target))
    assert [part.shape for part in memory] == [(3, 12, fitting_dim(zoo.algebra(algebra).n))] * 2


def test_the_length_of_the_memory_and_no_gradient():
    net, target, memory = build(f"transformer_xl({SIZES}, memory=4)", "quaternion").train(), tokens(3, 12), []
    net(target[:, :6], memory)
    assert [part.shape for part in memory] == [(3, 4, 32)] * 2
    assert not any(part.requires_grad for part in memory)
    other = [part.clone() for part in memory]
    assert not torch.equal(net(target[:, 6:], memory), net(target[:, 6:]))
    assert not torch.equal(memory[1], other[1])


def test_a_cache_is_limited_to_the_length_of_the_memory():
    """The output of a limited cache equals that of a text that starts later, for a network with a single block."""
    net = build("transformer_xl(dim=64, depth=1, heads=2, ffn=64, memory=3)", "quaternion", max_length=4)
    target = tokens(3, 9)
    cache = net.init_cache()
    for part in target.split(1, 1):
        y = net.decode_step(part, cache)
    torch.testing.assert_close(y, net(target[:, -4:])[:, -1:])


@pytest.mark.parametrize("embedding", ["table", "complex_order"])
def test_decoding_equals_segments_with_a_memory(embedding):
    """An embedding that encodes order gets no position beyond a segment."""
    net, target, memory = build("transformer_xl", "quaternion", 6, embedding=embedding), tokens(3, 18), []
    pieces = torch.cat([net(part, memory) for part in target.split(6, 1)], 1)
    cache = net.init_cache()
    found = torch.cat([net.decode_step(part, cache) for part in target.split(6, 1)], 1)
    torch.testing.assert_close(found, pieces, rtol=1e-5, atol=1e-6)


def test_the_number_of_parameters_equals_nanogpt():
    """10.65M without positions; a quarter of every matrix with quaternions, and 2.69M counted with an untied head."""
    torch.manual_seed(0)
    info = {"vocab_size": 65, "max_length": 256}

    def counted(spec, **options):
        net = registry.create("zoo.backbones", spec, Layers(**options), **info)
        return count(net)["total"] - net.token_embedding.position_embedding.table.numel()

    assert counted("gpt/nano", algebra="real") == 12 * 6 * 384**2 + 13 * 384 + 65 * 384 == 10_646_784
    assert counted("gpt/nano", algebra="quaternion") == 3 * 6 * 384**2 + 13 * 384 + 65 * 384
    assert counted("gpt/nano(tied=false)", algebra="quaternion", scope="all+head") == 2_690_688


@pytest.mark.parametrize("name", ["gpt", "transformer_xl", "transformer"])
def test_an_embedding_that_cannot_be_tied_has_a_head_layer(name):
    tied, own = build(name, "quaternion"), build(name, "quaternion", embedding="complex_order")
    assert tied.lm_head.layer is None
    assert own.lm_head.layer is not None


@pytest.mark.parametrize(
    ("spec", "code", "value"),
    [
        ("gpt/mega", "unknown", "gpt/micro, gpt/nano"),
        ("transformer_xl(memory=-1)", "invalid", "memory=-1"),
        ("gpt(dim=60)", "invalid", "gpt(dim=64, heads=2)"),
        ("gpt(norm=batch)", "invalid", "norm=batch"),
    ],
)
def test_invalid_options(spec, code, value):
    with raises(code, value):
        build(spec, "quaternion")


@pytest.mark.parametrize("name", ["gpt", "transformer, learned"])
def test_learned_positions_limit_the_length(name):
    net, source = build(name, "quaternion"), sources(name)
    cache = net.init_cache(source)
    net.decode_step(tokens(3, 20), cache)
    with raises("invalid", 21, "max_length=20"):
        net.decode_step(tokens(3, 1), cache)
    with raises("invalid", 21, "max_length=20"):
        whole(net, source, tokens(3, 21))
