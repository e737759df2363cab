"""Holding out rows: stratified, and the same rows for ever, whatever the seed of a run."""

import numpy as np
import numpy.typing as npt

from zoo.data.loader import Array
from zoo.data.options import DataError

Mask = npt.NDArray[np.bool_]


def stratified(labels: Array, count: int) -> Mask:
    """Choose `count` of the rows with these labels, every class in its share to within one row; return a mask [N]."""
    random = np.random.RandomState(0)  # its streams are frozen for ever; those of np.random.Generator are not
    sizes = np.bincount(labels)
    shares = sizes * count / len(labels)
    counts = np.floor(shares).astype(int)
    counts[np.argsort(counts - shares, kind="stable")[: count - counts.sum()]] += 1
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.flatnonzero(counts):
        chosen[random.permutation(np.flatnonzero(labels == label))[: counts[label]]] = True
    return chosen


def held_out(labels: Array, name: str, share: float, source: str, *, keep_lone: bool = False) -> Mask:
    """Choose a stratified share of the training rows with these labels for another split, at least one; return a mask [N].

    Args:
        labels: A class for each row, [N]; zeros to hold out any rows.
        name: The split, for messages.
        share: Its share of the rows.
        source: What messages call the data.
        keep_lone: Whether the only row of a class stays in training: nobody can learn its label from other rows.

    Raises:
        InputError: No row would be left to train on.
    """
    if (count := max(1, round(share * len(labels)))) >= len(labels):
        raise DataError(f"{source}: {name}={share} of {len(labels)} training rows leaves none to train on")
    able = (np.bincount(labels) > 1)[labels] if keep_lone else np.ones(len(labels), np.bool_)
    chosen = np.zeros(len(labels), np.bool_)
    chosen[able] = stratified(labels[able], min(count, int(able.sum())))
    return chosen


def folds_of(labels: Array, folds: int) -> Array:
    """Deal the rows of every class onto `folds` parts; sizes differ by one at most, in all and per class; return parts [N].

    The only row of a class is in no part (-1), so it is always trained on.
    """
    random, sizes = np.random.RandomState(0), np.bincount(labels)
    parts, done = np.full(len(labels), -1, dtype=np.int32), 0
    for label in np.flatnonzero(sizes > 1):
        order = random.permutation(np.flatnonzero(labels == label).astype(np.int32))
        parts[order] = np.arange(done, done + len(order), dtype=np.int32) % folds
        done += len(order)
    return parts
