"""Hold out rows and assign folds, stratified and independent of the seed of a run."""

import numpy as np
import numpy.typing as npt

from zoo.data.loader import Array
from zoo.data.options import DataError

Mask = npt.NDArray[np.bool_]


def stratified(labels: Array, count: int) -> Mask:
    """Choose `count` rows with every class in proportion, to within one row; return a mask [N]."""
    random = np.random.RandomState(0)  # its streams are frozen, unlike those of np.random.Generator
    sizes = np.bincount(labels)
    shares = sizes * count / len(labels)
    counts = np.floor(shares).astype(int)
    counts[np.argsort(counts - shares, kind="stable")[: count - counts.sum()]] += 1
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.flatnonzero(counts):
        chosen[random.permutation(np.flatnonzero(labels == label))[: counts[label]]] = True
    return chosen


def held_out(labels: Array, name: str, share: float, source: str, *, keep_lone: bool = False) -> Mask:
    """Choose a stratified share of the training rows, at least one, for another split; return a mask [N].

    Args:
        labels: The class of each row, [N]; zeros for no stratification.
        name: The other split, for messages.
        share: Its share of the rows; `InputError` if no training row would remain.
        source: Name of the data in messages.
        keep_lone: Whether the only row of a class stays in training, since no other row teaches its label.
    """
    if (count := max(1, round(share * len(labels)))) >= len(labels):
        raise DataError(f"{source}: {name}={share} of {len(labels)} training rows leaves none to train on")
    eligible = (np.bincount(labels) > 1)[labels] if keep_lone else np.ones(len(labels), np.bool_)
    chosen = np.zeros(len(labels), np.bool_)
    chosen[eligible] = stratified(labels[eligible], min(count, int(eligible.sum())))
    return chosen


def assign_folds(labels: Array, folds: int) -> Array:
    """Assign the rows of every class to folds whose sizes differ by at most one, in total and per class; return folds [N].

    The only row of a class has fold -1, so it is always trained on.
    """
    random, sizes = np.random.RandomState(0), np.bincount(labels)
    assigned, done = np.full(len(labels), -1, dtype=np.int32), 0
    for label in np.flatnonzero(sizes > 1):
        order = random.permutation(np.flatnonzero(labels == label).astype(np.int32))
        assigned[order] = np.arange(done, done + len(order), dtype=np.int32) % folds
        done += len(order)
    return assigned
