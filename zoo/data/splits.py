"""Choosing rows in a fixed stratified way."""

import numpy as np
import numpy.typing as npt

from zoo.data.loader import Array


def stratified(labels: Array, count: int, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Choose `count` of the rows with these labels, every class in its share to within one row; return a mask [N]."""
    random = np.random.RandomState(seed)  # its streams are frozen for ever; those of np.random.Generator are not
    sizes = np.bincount(labels)
    shares = sizes * count / len(labels)
    counts = np.floor(shares).astype(int)
    counts[np.argsort(counts - shares, kind="stable")[: count - counts.sum()]] += 1
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.flatnonzero(counts):
        chosen[random.permutation(np.flatnonzero(labels == label))[: counts[label]]] = True
    return chosen
