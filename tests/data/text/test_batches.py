from functools import partial

import numpy as np

from zoo.data import ready
from zoo.data import text as module
from zoo.data.loader import EpochSampler
from zoo.data.text import text
from zoo.data.tokens import bucketed


def BucketSampler(lengths, batch_size, seed):
    return EpochSampler(partial(bucketed, lengths, batch_size, seed), even=True)


LENGTHS = np.random.RandomState(0).randint(1, 200, 1003)


def test_batches_have_similar_lengths():
    order = list(BucketSampler(LENGTHS, 8, 0))[: 1003 // 8 * 8]
    spread = np.ptp(LENGTHS[order].reshape(-1, 8), axis=1)
    assert np.median(spread) < 8
    assert np.median(np.ptp(LENGTHS[: len(order)].reshape(-1, 8), axis=1)) > 100


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
