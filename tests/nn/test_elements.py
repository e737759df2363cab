"""Layers on algebra elements, the layer factory, relative attention and the key-value cache."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.errors import raises
from zoo.algebras import algebra
from zoo.nn import ElementNorm, Layers, Readout, RelativeAttention
from zoo.nn.elements import Product, TokenBatchNorm, norm
from zoo.nn.embedding import trigonometric
from zoo.nn.factory import BODY, ROLES, parse_scope
from zoo.nn.kv_cache import KVCache
from zoo.testing.backbone import fitting_dim, installed_algebras


@pytest.mark.parametrize("spec", ["real", "complex", "quaternion", "sedenion", "phm(n=3, learned=false)"])
def test_product_pads_to_whole_elements(spec):
    layer = Product(7, algebra=algebra(spec))
    more = -7 % layer.algebra.n
    x, y = torch.randn(2, 4, 5, 7)
    wide = layer.algebra(F.pad(x, (0, more)), F.pad(y, (0, more)))
    assert torch.equal(layer(x, y), wide[..., :7])


def test_element_norm_equals_rms_norm_over_the_reals():
    ours, theirs = ElementNorm(12, 1), nn.RMSNorm(12, eps=1e-6)
    gain, x = torch.rand(12), torch.randn(3, 12)
    ours.gain.data, theirs.weight.data = gain, gain.clone()
    torch.testing.assert_close(ours(x), theirs(x))


def test_element_norm_scales_all_components_of_an_element():
    large = torch.full((2, 12), 400.0, dtype=torch.float16)
    torch.testing.assert_close(ElementNorm(12, 4).half()(large), torch.ones_like(large))
    layer = ElementNorm(12, 4)
    layer.gain.data = torch.tensor([1.0, 2.0, 3.0])
    x = torch.randn(5, 12)
    ratio = (layer(x) / x).view(5, 4, 3)
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))
    torch.testing.assert_close(ratio[:, 0] / ratio[:, 0, :1], layer.gain.detach().expand(5, 3))
    assert layer(torch.zeros(2, 12)).abs().max() == 0


@pytest.mark.parametrize(("spec", "is_normed"), [("quaternion", True), ("octonion", True), ("sedenion", False)])
def test_element_norm_and_modulus_with_unit_elements_of_normed_algebras(spec, is_normed):
    torch.manual_seed(0)
    product = algebra(spec).double()
    n = product.n
    x, q = torch.randn(6, 3 * n, dtype=torch.float64), F.normalize(torch.randn(n, dtype=torch.float64), dim=0)
    q = q.repeat_interleave(3).expand_as(x)
    layer, other = ElementNorm(3 * n, n).double(), nn.LayerNorm(3 * n).double()
    assert torch.allclose(layer(product(q, x)), product(q, layer(x))) == is_normed
    assert not torch.allclose(other(product(q, x)), product(q, other(x)))
    modulus, scalar = Readout(n, "modulus"), Readout(n, "scalar")
    assert torch.allclose(modulus(product(q, x)), modulus(x)) == is_normed
    assert not torch.allclose(scalar(product(q, x)), scalar(x))


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("layer", nn.LayerNorm, 24),
        ("rms", nn.RMSNorm, 12),
        ("batch", TokenBatchNorm, 24),
        ("element", ElementNorm, 3),
    ],
)
def test_norms_by_name(name, kind, count):
    layer = norm(name, 12, 4)
    assert type(layer) is kind
    assert sum(p.numel() for p in layer.parameters()) == count


def test_token_batch_norm_ignores_padding():
    torch.manual_seed(0)
    layer, x = TokenBatchNorm(4).double(), torch.randn(3, 5, 4, dtype=torch.float64) * 3 + 1
    mask = torch.arange(5) < torch.tensor([[5], [2], [3]])
    tokens = x[mask]
    y = layer(x, mask)
    torch.testing.assert_close(y[mask], (tokens - tokens.mean(0)) / (tokens.var(0, unbiased=False) + layer.eps).sqrt())
    assert (y[~mask] == 0).all()
    torch.testing.assert_close(layer.running_mean, 0.1 * tokens.mean(0))
    layer.eval()
    assert torch.equal(layer(x, mask)[:1, :2], layer(x[:1, :2]))


def test_readouts_equal_torch_complex_numbers():
    x = torch.randn(2, 5, 12)
    z = torch.complex(*x.chunk(2, -1))
    for name, expected in (("channels", x), ("modulus", z.abs()), ("scalar", z.real)):
        torch.testing.assert_close(Readout(2, name)(x), expected)


@pytest.mark.parametrize(
    ("build", "code", "value"),
    [
        (lambda: norm("group", 12, 4), "unknown", "'group'"),
        (lambda: ElementNorm(10, 4), "invalid", "n = 4"),
        (lambda: Readout(4, "norm"), "unknown", "'norm'"),
    ],
)
def test_invalid_sizes_and_names(build, code, value):
    with raises(code, value):
        build()


@pytest.mark.parametrize(
    ("scope", "roles"),
    [
        ("all", BODY),
        ("attention", {"attention"}),
        ("attention+ffn", {"attention", "ffn"}),
        ("all+head", BODY | {"head"}),
        ("embed", {"embed"}),
    ],
)
def test_scopes(scope, roles):
    assert parse_scope(scope) == roles
    layers = Layers("quaternion", scope)
    for role in ROLES:
        assert layers.linear(8, 8, role=role).algebra.n == (4 if role in roles else 1), role


@pytest.mark.parametrize("scope", ["al", "attention+", "attention,ffn", "", "all+tail"])
def test_unknown_scope(scope):
    with raises("unknown", f"'{scope}'"):
        Layers("quaternion", scope)


def test_unknown_role_and_initialization():
    with raises("unknown", "'gate'"):
        Layers("complex").linear(8, 8, role="gate")
    with raises("unknown", "'xavier'"):
        Layers("complex", init="xavier")


def test_stem_embedding_and_head_are_real_by_default():
    layers = Layers("quaternion")
    assert layers.embedding(12, 8).algebra.n == 1
    assert Layers("quaternion", "all+embed").embedding(12, 8, padding_idx=3).algebra.n == 4
    assert layers.linear(8, 3, role="head").algebra.n == layers.conv2d(3, 8, 2, role="stem").algebra.n == 1


def test_options_are_passed_to_the_layers():
    layers = Layers("quaternion", init="glorot")
    one = layers.linear(8, 24, False, role="attention", blocks=(1, 3))
    assert (one.out.blocks, one.bias, one.weight_module.init) == (3, None, "glorot")
    two = layers.conv1d(8, 16, 3, stride=2, groups=2)
    assert (two.stride, two.groups, two.weight_module.init) == ((2,), 2, "glorot")
    three = layers.conv2d(8, 16, (3, 1), padding="same", bias=False)
    assert (three.kernel_size, three.padding, three.bias) == ((3, 1), "same", None)


def test_learned_products_are_separate_or_shared():
    apart = Layers("phm-2")
    assert apart.linear(4, 4, role="ffn").algebra is not apart.linear(4, 4, role="ffn").algebra
    together = Layers("phm(n=2, shared=true)")
    assert together.linear(4, 4, role="ffn").algebra is together.conv1d(4, 4, 1).algebra


def test_norms_use_n():
    layers = Layers(algebra("quaternion"))
    assert isinstance(layers.norm(8), nn.LayerNorm)
    assert layers.norm(8, "element").n == 4


def make(spec, **options):
    torch.manual_seed(0)
    made = algebra(spec)
    layer = RelativeAttention(fitting_dim(made.n), 2, algebra=made, **options).double()
    for vector in (layer.u, layer.v, layer.qkv.bias, layer.proj.bias):
        nn.init.normal_(vector)
    return layer


def reference(layer, x, memory, mask=None):
    """One row, one head, one query at a time (Dai et al. 2019, section 3.3)."""
    rows = []
    for b in range(len(x)):
        words = torch.cat([memory[b], x[b]])
        q, k, v = layer.qkv(words).view(len(words), 3, 2, -1).unbind(1)
        heads = []
        for i in range(len(memory[b]), len(words)):
            visible = [j for j in range(i + 1) if mask is None or mask[b, j]]
            r = layer.distance(trigonometric(torch.tensor([i - j for j in visible]), layer.dim, x)).view(len(visible), 2, -1)
            scores = torch.stack([(q[i] + layer.u) * k[j] + (q[i] + layer.v) * r[p] for p, j in enumerate(visible)]).sum(-1)
            heads.append(((scores * (layer.dim // 2) ** -0.5).softmax(0)[..., None] * v[visible]).sum(0).flatten())
        rows.append(layer.proj(torch.stack(heads)))
    return torch.stack(rows)


@pytest.mark.parametrize("spec", installed_algebras())
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_definition(spec, masked):
    layer, noise = make(spec), torch.Generator().manual_seed(1)
    x = torch.randn(2, 4, layer.dim, dtype=torch.float64, generator=noise)
    memory = torch.randn(2, 3, layer.dim, dtype=torch.float64, generator=noise)
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1, 1]]).bool() if masked else None
    results = []
    for f in (layer, lambda *args: reference(layer, *args)):
        inputs = x.clone().requires_grad_()
        y = f(inputs, memory, mask)
        results.append((y, *torch.autograd.grad(y.pow(3).sum(), [inputs, *layer.parameters()])))
    torch.testing.assert_close(*results)


def test_memory_receives_no_gradient():
    layer, memory = make("quaternion"), torch.ones(1, 3, 32, dtype=torch.float64, requires_grad=True)
    layer(torch.ones(1, 2, 32, dtype=torch.float64), memory).sum().backward()
    assert memory.grad is None


def test_position_ids_start_after_padding():
    cache = KVCache()
    tokens = torch.tensor([[0, 0, 5], [4, 5, 6]])
    assert cache.advance(tokens, tokens != 0).tolist() == [[0, 0, 0], [0, 1, 2]]
    assert cache.advance(torch.ones(2, 2, dtype=torch.int64), None).tolist() == [[1, 2], [3, 4]]
    assert cache.mask.tolist() == [[False, False, True, True, True], [True] * 5]


def test_limit_truncates_keys_and_mask():
    cache, layer = KVCache(limit=2), nn.Identity()
    tokens = torch.tensor([[0, 5, 6]])
    cache.advance(tokens, tokens != 0)
    cache.append(layer, *(torch.arange(3.0).view(1, 1, 3, 1),) * 2)
    assert cache.advance(tokens[:, :1], None).tolist() == [[2]]
    keys, values = cache.append(layer, *(torch.tensor([[[[3.0]]]]),) * 2)
    assert keys.flatten().tolist() == values.flatten().tolist() == [1, 2, 3]
    assert cache.mask.tolist() == [[True, True, True]]


def test_select_applies_to_all_tensors():
    cache, layer = KVCache(torch.arange(2.0).view(2, 1, 1), torch.tensor([[True], [False]])), nn.Identity()
    tokens = torch.tensor([[0, 5], [4, 5]])
    cache.advance(tokens, tokens != 0)
    cache.append(layer, *(torch.arange(4.0).view(2, 1, 2, 1),) * 2)
    cache.select(torch.tensor([1, 1, 0]))
    assert cache.source.flatten().tolist() == [1, 1, 0]
    assert cache.source_mask.flatten().tolist() == [False, False, True]
    assert cache.get(layer)[0].flatten().tolist() == [2, 3, 2, 3, 0, 1]
    assert cache.advance(tokens[[0, 0, 0], :1], None).tolist() == [[2], [2], [1]]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("limit", [None, 0, 5, 90])
def test_append_equals_concatenation(mode, limit):
    """Append many times, with and without select."""
    with mode():
        cache, layer, torch_draw = KVCache(limit=limit), nn.Identity(), torch.Generator().manual_seed(0)
        expected = torch.zeros(2, 3, 0, 4)
        for step in range(150):
            new = torch.randn(2, 3, 70 if step == 90 else 1 + step % 3, 4, generator=torch_draw)
            recent = expected if limit is None else expected[:, :, max(0, expected.shape[2] - limit) :]
            expected = torch.cat([recent, new], 2)
            keys, values = cache.append(layer, new, -new)
            before = keys.clone()
            assert torch.equal(keys, expected)
            assert torch.equal(values, -expected)
            if step % 40 == 7:
                order = torch.tensor([1, 1]) if step == 47 else torch.tensor([1, 0])
                cache.select(order)
                expected = expected[order]
                assert torch.equal(keys, before)  # returned tensors do not change
        assert torch.equal(cache.get(layer)[0], expected)


def test_append_has_amortized_constant_cost(monkeypatch):
    copied = []
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *size: copied.append(size[-2]) or empty(self, *size))
    cache, layer, new = KVCache(), nn.Identity(), torch.ones(1, 1, 1, 2)
    with torch.no_grad():
        for _ in range(1000):
            cache.append(layer, new, new)
    assert copied == [64] * 2 + [130] * 2 + [262] * 2 + [526] * 2 + [1054] * 2


def test_append_in_another_grad_mode():
    cache, layer, new = KVCache(), nn.Identity(), torch.ones(1, 1, 1, 2)
    with torch.inference_mode():
        for _ in range(3):
            cache.append(layer, new, new)
    with torch.no_grad():
        cache.append(layer, new, new)
    weight = torch.ones(1, 1, 1, 2, requires_grad=True)
    keys, _ = cache.append(layer, weight * 3, new)
    cache.append(layer, new, new)
    keys.sum().backward()
    assert torch.equal(weight.grad, 3 * new)
    assert torch.equal(keys, torch.tensor([1.0, 1, 1, 1, 3]).view(1, 1, 5, 1).expand(1, 1, 5, 2))


def test_table_computes_each_row_once():
    cache, made = KVCache(), []

    def make(ids):
        made.extend(ids.tolist())
        return 2 * ids

    with torch.no_grad():
        for length in range(1, 200):
            assert torch.equal(cache.table("x", length, make), 2 * torch.arange(length))
    assert made == list(range(256))
    with torch.enable_grad():
        assert torch.equal(cache.table("x", 300, make), 2 * torch.arange(300))
        assert torch.equal(cache.table("x", 300, make), 2 * torch.arange(300))


def test_once_is_cached_by_position_ids():
    cache, ids, calls = KVCache(), torch.arange(3), []
    for given in (ids, ids, ids.clone()):
        assert cache.once("x", given, lambda given=given: calls.append(given) or given.tolist()) == [0, 1, 2]
    assert len(calls) == 2
