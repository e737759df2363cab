"""Samplers: every row once, divided among processes, resumable."""

from functools import partial

import numpy as np
import pytest

from tests.errors import raises
from zoo.data import loader
from zoo.data.loader import EpochSampler, always, eval_sampler, shuffled


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
