import random
from itertools import pairwise

import pytest

from zoo.data.tokens import LengthBatches

DRAWS = random.Random(0)
LENGTHS = [DRAWS.randint(2, 30) for _ in range(500)]


def lengths(batch):
    return [LENGTHS[row] for row in batch]


@pytest.mark.parametrize("options", [{"batch_size": 8}, {"batch_size": 7}, {"batch_size": 900}, {"batch_tokens": 64}])
def test_epochs_yield_every_row_once_in_equally_many_batches(options):
    epochs = [LengthBatches(LENGTHS, epoch=epoch, **options) for epoch in range(3)]
    assert len({len(batches) for batches in epochs}) == 1
    for batches in epochs:
        assert sorted(row for batch in batches for row in batch) == list(range(500))


@pytest.mark.parametrize("budget", [1, 30, 31, 64, 100, 10**6])
def test_batches_fill_the_token_budget(budget):
    batches = LengthBatches(LENGTHS, batch_tokens=budget)
    batches = sorted(batches, key=lambda batch: (min(lengths(batch)), max(lengths(batch)), -len(batch)))
    assert all(len(batch) * max(lengths(batch)) <= budget or len(batch) == 1 for batch in batches)
    for batch, following in pairwise(batches):
        assert (len(batch) + 1) * min(lengths(following)) > budget, "one more row would fit"


def test_batches_without_a_token_budget():
    assert sorted(map(len, LengthBatches(LENGTHS, batch_size=8))) == [4, *[8] * 62]


@pytest.mark.parametrize("options", [{"batch_size": 8}, {"batch_tokens": 64}])
def test_rows_of_a_batch_have_similar_lengths(options):
    ranges = sorted((min(lengths(batch)), max(lengths(batch))) for batch in LengthBatches(LENGTHS, **options))
    assert all(most <= least for (_, most), (least, _) in pairwise(ranges))
