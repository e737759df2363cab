import numpy as np
import pytest

from zoo.data.corpus.module import Blocks, in_order, shuffled, streams

EXTENTS = np.array([[0, 0], [1, 1], *([[1, 2]] * 998)])


def blocks(count, length):
    return Blocks(np.arange(1, count + 1, dtype=np.uint16), length, EXTENTS)


def test_targets_are_one_token_further_on():
    tokens, targets, sizes = blocks(20, 4).__getitems__([0, 11])
    assert tokens.tolist() == [[1, 2, 3, 4], [12, 13, 14, 15]]
    assert targets.tolist() == [[2, 3, 4, 5], [13, 14, 15, 16]]
    assert sizes.tolist() == [[4, 8], [4, 8]]
    assert {part.dtype.itemsize for part in (tokens, targets, sizes)} == {8}


def test_behind_the_end_is_padding_in_both():
    tokens, targets, sizes = blocks(6, 4).__getitems__([4, 5, 900])
    assert tokens.tolist() == [[5, 0, 0, 0], [0] * 4, [0] * 4]
    assert targets.tolist() == [[6, 0, 0, 0], [0] * 4, [0] * 4]
    assert sizes.tolist() == [[1, 2], [0, 0], [0, 0]]


@pytest.mark.parametrize("steps", [5, 6, 9, 10, 11, 14, 103])
def test_an_epoch_reads_every_block_once(steps):
    orders = [shuffled(steps, 5, seed=1, epoch=epoch) for epoch in range(40)]
    assert len({len(order) for order in orders}) == 1, "epochs of different length"
    for order in orders:
        starts = np.sort(order)
        assert (np.diff(starts) == 5).all()
        assert starts[0] in range(5)
        assert starts[-1] + 5 <= steps
        assert steps - 5 * len(starts) <= 8
    assert len({int(order.min()) for order in orders}) == min(5, steps - 4), "not all shifts are tried"


def test_seed_and_epoch_decide():
    first = shuffled(500, 5, seed=3, epoch=2)
    assert (first == shuffled(500, 5, seed=3, epoch=2)).all()
    for seed, epoch in ((4, 2), (3, 3)):
        assert (first - first.min()).tolist() != (other := shuffled(500, 5, seed, epoch)).tolist()
        assert (first - first.min()).tolist() != (other - other.min()).tolist()


@pytest.mark.parametrize("steps", [5, 6, 79, 80, 81, 164, 1000])
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_streams_go_on_where_they_were(steps, rows):
    for whole in (True, False):
        places, count = streams(steps, 5, rows, whole=whole)
        table = places.reshape(-1, count)
        assert 1 <= count <= rows
        assert (np.diff(table, axis=0) == 5).all()
        assert (table[0, 1:] == table[-1, :-1] + 5).all(), "a stream begins where the one before ends"
        assert table[0, 0] == 0
        if whole:
            assert count == min(rows, steps // 5)
            assert table.max() + 5 <= steps
            assert steps - len(places) * 5 < 5 * count
        else:
            covered = (places[:, None] + np.arange(5)).ravel()
            assert sorted(covered[covered < steps]) == list(range(steps))
            assert table[0, -1] < steps, "a stream of nothing but padding"


def test_blocks_in_order_hold_every_token_once():
    for steps in (1, 5, 6, 99):
        covered = (in_order(steps, 5)[:, None] + np.arange(5)).ravel()
        assert covered.tolist() == list(range(-(-steps // 5) * 5))
