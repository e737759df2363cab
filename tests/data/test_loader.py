"""Samplers and batches of texts of similar length: every row once, divided among processes, resumable."""

import random
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from tests.errors import raises
from zoo.data import loader, ready
from zoo.data import text as module
from zoo.data.loader import EpochSampler, always, eval_sampler, shuffled
from zoo.data.text import text
from zoo.data.tokens import LengthBatches, bucketed


def shares(order, world, even, epoch=0):
    samplers = [EpochSampler(order, even=even, rank=rank, world=world) for rank in range(world)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    found = [list(sampler) for sampler in samplers]
    assert [len(sampler) for sampler in samplers] == [len(share) for share in found]
    return found


@pytest.mark.parametrize("world", [1, 3, 12])
@pytest.mark.parametrize("rows", [4, 11])
def test_evaluation_rows_are_in_one_process_each(rows, world):
    found = shares(partial(always, range(rows)), world, even=False)
    assert sorted(key for share in found for key in share) == list(range(rows))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("world", [1, 3])
def test_training_rows_are_divided_evenly_and_differ_with_the_epoch(world):
    for epoch in (0, 1):
        whole = shuffled(11, 3, epoch).tolist()
        found = shares(partial(shuffled, 11, 3), world, even=True, epoch=epoch)
        assert {len(share) for share in found} == {11 // world}
        assert [key for keys in zip(*found, strict=True) for key in keys] == whole[: 11 - 11 % world]
    assert sorted(key % 11 for key in shuffled(11, 3, 5).tolist()) == list(range(11))


def test_orders_of_arrays_and_of_whole_batches():
    assert shares(partial(always, np.arange(5)), 2, even=False) == [[0, 2, 4], [1, 3]]
    assert shares(partial(always, [[0, 1], [2], [3, 4]]), 2, even=True) == [[[0, 1]], [[2]]]


def test_skip_and_epochs_without_set_epoch():
    through, resumed = (EpochSampler(partial(shuffled, 10, 0), even=True) for _ in range(2))
    epochs = [list(through) for _ in range(3)]
    resumed.set_epoch(2)
    resumed.skip = 4
    assert list(resumed) == epochs[2][4:]
    assert resumed.epoch == 3


def test_fewer_rows_than_processes_raise(monkeypatch):
    monkeypatch.setattr(loader, "process_rank", lambda: (1, 3))
    assert list(eval_sampler(range(4))) == [1]
    with raises("invalid", "2 rows", "3 processes", "--trainer.devices"):
        eval_sampler(range(2))


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


MANY = np.random.RandomState(0).randint(1, 200, 1003)


def test_batches_have_similar_lengths():
    order = list(EpochSampler(partial(bucketed, MANY, 8, 0), even=True))[: 1003 // 8 * 8]
    spread = np.ptp(MANY[order].reshape(-1, 8), axis=1)
    assert np.median(spread) < 8
    assert np.median(np.ptp(MANY[: len(order)].reshape(-1, 8), axis=1)) > 100


def test_two_processes_equal_one_with_twice_the_batch_size(corpus, tmp_path, monkeypatch):
    """A run may be resumed with another number of processes and the same steps."""
    corpus(tmp_path / "texts.tsv", "text", 200)

    def order(batch_size, processes):
        monkeypatch.setattr(module, "process_rank", lambda: (0, processes))
        data = ready(text(str(tmp_path / "texts.tsv"), batch_size=batch_size))
        keys = data.order(data.dataset("train"))(0)
        shares = [keys[rank::processes][:batch_size] for rank in range(processes)]
        return {int(key) for share in shares for key in share}

    assert order(8, 2) == order(16, 1)
