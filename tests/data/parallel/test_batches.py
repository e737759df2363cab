import random
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from zoo.data.text.tokens import LengthBatches as Epoch


class LengthBatches:
    """The batches of one epoch after the other."""

    def __init__(self, *args, **options):
        self.made, self.epoch = partial(Epoch, *args, **options), 0

    def __len__(self):
        return len(self.made(epoch=0))

    def __iter__(self):
        self.epoch += 1
        return iter(self.made(epoch=self.epoch - 1))

    def set_epoch(self, epoch):
        self.epoch = epoch


DRAWS = random.Random(0)
LENGTHS = [DRAWS.randint(2, 30) for _ in range(500)]


def of(batch):
    return [LENGTHS[row] for row in batch]


@pytest.mark.parametrize("options", [{"batch_size": 8}, {"batch_size": 7}, {"batch_size": 900}, {"batch_tokens": 64}])
def test_epochs_yield_every_row_once_in_equally_many_batches(options):
    batches = LengthBatches(LENGTHS, **options)
    for _ in range(3):
        epoch = list(batches)
        assert len(epoch) == len(batches)
        assert sorted(row for batch in epoch for row in batch) == list(range(500))


@pytest.mark.parametrize("budget", [1, 30, 31, 64, 100, 10**6])
def test_batches_fill_the_token_budget(budget):
    made = LengthBatches(LENGTHS, batch_tokens=budget)
    batches = sorted(made, key=lambda batch: (min(of(batch)), max(of(batch)), -len(batch)))
    assert all(len(batch) * max(of(batch)) <= budget or len(batch) == 1 for batch in batches)
    for batch, following in pairwise(batches):
        assert (len(batch) + 1) * min(of(following)) > budget, "one more would have fitted"


def test_batches_without_a_token_budget():
    assert sorted(map(len, LengthBatches(LENGTHS, batch_size=8))) == [4, *[8] * 62]


@pytest.mark.parametrize("options", [{"batch_size": 8}, {"batch_tokens": 64}])
def test_rows_of_a_batch_have_similar_lengths(options):
    ranges = sorted((min(of(batch)), max(of(batch))) for batch in LengthBatches(LENGTHS, **options))
    assert all(most <= least for (_, most), (least, _) in pairwise(ranges))


def test_order_depends_on_seed_and_epoch_only():
    def epochs(seed, count=2):
        made = LengthBatches(LENGTHS, 8, seed=seed)
        return [list(made) for _ in range(count)]

    before = torch.get_rng_state()
    first, second = epochs(3)
    assert torch.equal(before, torch.get_rng_state())
    assert [first, second] == epochs(3)
    assert first != second != epochs(4)[1]
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}, "ties were not shuffled"
    resumed = LengthBatches(LENGTHS, 8, seed=3)
    resumed.set_epoch(1)
    assert list(resumed) == second


def test_no_rows():
    for options in ({"batch_size": 4}, {"batch_tokens": 4}):
        made = LengthBatches(np.array([], dtype=np.int64), **options)
        assert (len(made), list(made)) == (0, [])
