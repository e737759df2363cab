"""Shares of rows: checking them, and choosing rows in a fixed stratified way."""

import numpy as np
import numpy.typing as npt

from zoo.data.loader import Array
from zoo.errors import InputError


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


def check_share(fraction: float, name: str, *, whole: bool = False) -> float:
    """Return an option that must be a share, above 0 and below 1 (or, with `whole`, at most 1)."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise InputError(f"{name}={fraction!r}: must be a number")
    if not 0 < fraction < 1 and not (whole and fraction == 1):
        raise InputError(f"{name}={fraction}: must be above 0 and {'at most' if whole else 'below'} 1")
    return fraction
