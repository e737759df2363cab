"""Relative attention and the key-value cache against reference implementations."""

import pytest
import torch
from torch import nn

from zoo.algebras import algebra
from zoo.layers import RelativeAttention
from zoo.layers.embedding import trigonometric
from zoo.layers.kv_cache import KVCache
from zoo.testing.backbone import fitting_dim, installed_algebras


def make(spec, **options):
    torch.manual_seed(0)
    made = algebra(spec)
    layer = RelativeAttention(made, fitting_dim(made.n), 2, **options).double()
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
