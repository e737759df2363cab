"""What a network remembers while it reads on."""

import torch
from torch import nn

from zoo.layers.kv_cache import KVCache


def test_places_count_on():
    cache, tokens = KVCache(), torch.ones(2, 3, dtype=torch.int64)
    assert cache.advance(tokens, None).tolist() == [0, 1, 2]
    assert cache.advance(tokens[:, :2], None).tolist() == [3, 4]
    assert cache.mask is None
    assert cache.length == 5


def test_places_begin_behind_padding():
    cache = KVCache()
    tokens = torch.tensor([[0, 0, 5], [4, 5, 6]])
    assert cache.advance(tokens, tokens != 0).tolist() == [[0, 0, 0], [0, 1, 2]]
    assert cache.advance(torch.ones(2, 2, dtype=torch.int64), None).tolist() == [[1, 2], [3, 4]]
    assert cache.mask.tolist() == [[False, False, True, True, True], [True] * 5]


def test_a_limit_drops_the_oldest_keys_and_their_mask():
    cache, layer = KVCache(limit=2), nn.Identity()
    tokens = torch.tensor([[0, 5, 6]])
    cache.advance(tokens, tokens != 0)
    cache.append(layer, *(torch.arange(3.0).view(1, 1, 3, 1),) * 2)
    assert cache.advance(tokens[:, :1], None).tolist() == [[2]]
    keys, values = cache.append(layer, *(torch.tensor([[[[3.0]]]]),) * 2)
    assert keys.flatten().tolist() == values.flatten().tolist() == [1, 2, 3]
    assert cache.mask.tolist() == [[True, True, True]]


def test_rows_are_chosen_in_every_part():
    cache, layer = KVCache(torch.arange(2.0).view(2, 1, 1), torch.tensor([[True], [False]])), nn.Identity()
    tokens = torch.tensor([[0, 5], [4, 5]])
    cache.advance(tokens, tokens != 0)
    cache.append(layer, *(torch.arange(4.0).view(2, 1, 2, 1),) * 2)
    cache.select(torch.tensor([1, 1, 0]))
    assert cache.source.flatten().tolist() == [1, 1, 0]
    assert cache.source_mask.flatten().tolist() == [False, False, True]
    assert cache.get(layer)[0].flatten().tolist() == [2, 3, 2, 3, 0, 1]
    assert cache.advance(tokens[[0, 0, 0], :1], None).tolist() == [[2], [2], [1]]
