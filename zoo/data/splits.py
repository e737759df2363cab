"""A labelled split of images: checking it, cutting it in a fixed stratified way, and taking its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zoo.data.encoded import EncodedImages
from zoo.data.loader import Array
from zoo.errors import InputError


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: uint8 array [N, H, W] or [N, H, W, C] with C = 1 or 3, or images that decode lazily.
        labels: Integers [N].
        source: What an error message calls the place the split came from.
    """

    images: Array | EncodedImages
    labels: Array
    source: str = "the data"

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Array) -> Split:
        """Return the rows at these places."""
        images = self.images.take(index) if isinstance(self.images, EncodedImages) else self.images[index]
        return Split(images, self.labels[index], self.source)


def checked(split: Split, name: str, num_classes: int) -> Split:
    """Return the split with int64 labels.

    Raises:
        InputError: Images are not uint8 or of a wrong shape, labels are no class numbers, or the two do not match.
    """
    place = f"{split.source}, {name} split"
    if not isinstance(split.images, EncodedImages):
        _check_pixels(split.images, place)
    labels = np.asarray(split.labels)
    if labels.ndim != 1 or len(labels) != len(split.images):
        raise InputError(f"{place}: {len(split.images)} images but labels of shape {labels.shape}; one label per image")
    if len(labels) == 0:
        raise InputError(f"{place}: no images; every split needs at least one")
    if labels.dtype.kind not in "iu" and not (labels.dtype.kind == "f" and np.array_equal(labels, labels.round())):
        raise InputError(f"{place}: labels of type {labels.dtype}; they must be integers")
    if labels.min() < 0 or labels.max() >= num_classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(f"{place}: label {wrong} is outside 0..{num_classes - 1} ({num_classes} classes)")
    return Split(split.images, labels.astype(np.int64), split.source)


def _check_pixels(images: Array, place: str) -> None:
    if images.dtype != np.uint8:
        raise InputError(f"{place}: images of type {images.dtype}; they must be uint8 (0..255)")
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] not in (1, 3)) or 0 in images.shape[1:]:
        raise InputError(f"{place}: images of shape {images.shape}; they must be [N, H, W] or [N, H, W, 1 or 3]")


def stratified(labels: Array, count: int, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Choose `count` rows, every class in its share to within one row.

    Args:
        labels: Integers [N].
        count: Rows to choose.
        seed: Decides the draw; the default everywhere, so that every run sees the same splits.

    Returns:
        A mask [N] with `count` true entries.
    """
    random = np.random.RandomState(seed)  # its streams are frozen for ever; those of np.random.Generator are not
    sizes = np.bincount(labels)
    shares = sizes * count / len(labels)
    counts = np.floor(shares).astype(int)
    counts[np.argsort(counts - shares, kind="stable")[: count - counts.sum()]] += 1
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.flatnonzero(counts):
        chosen[random.permutation(np.flatnonzero(labels == label))[: counts[label]]] = True
    return chosen


def hold_out(splits: Mapping[str, Split], name: str, fraction: float) -> dict[str, Split]:
    """Cut a stratified share of the training split off as a split of its own, unless there is one of that name.

    Raises:
        InputError: The share leaves nothing to train on, or is nothing itself.
    """
    if name in splits:
        return dict(splits)
    train = splits["train"]
    count = max(1, round(check_share(fraction, name) * len(train)))
    if count >= len(train):
        raise InputError(f"{train.source}: {name}={fraction} of {len(train)} training images leaves none to train on")
    chosen = stratified(train.labels, count)
    return {**splits, "train": train.take(np.flatnonzero(~chosen)), name: train.take(np.flatnonzero(chosen))}


def thin(splits: Mapping[str, Split], fraction: float = 1.0, limit: int | None = None) -> dict[str, Split]:
    """Keep a stratified fraction of the training split, then at most `limit` images of every split."""
    check_share(fraction, "fraction", whole=True)
    if limit is not None and limit < 1:
        raise InputError(f"limit={limit}: must be at least 1 image per split")
    counts = {name: round(fraction * len(split)) if name == "train" else len(split) for name, split in splits.items()}
    counts = {name: max(1, count if limit is None else min(count, limit)) for name, count in counts.items()}
    return {
        name: split if counts[name] >= len(split) else split.take(np.flatnonzero(stratified(split.labels, counts[name])))
        for name, split in splits.items()
    }


def check_share(fraction: float, name: str, *, whole: bool = False) -> float:
    """Return an option that must be a share, above 0 and below 1 (or, with `whole`, at most 1).

    Raises:
        InputError: It is not.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise InputError(f"{name}={fraction!r}: must be a number")
    if not 0 < fraction < 1 and not (whole and fraction == 1):
        raise InputError(f"{name}={fraction}: must be above 0 and {'at most' if whole else 'below'} 1")
    return fraction


def digest(splits: Mapping[str, Split], classes: Sequence[str]) -> str:
    """Return the SHA-256 of class names, split names, images and labels."""
    sha = hashlib.sha256(repr(tuple(classes)).encode())
    for name in sorted(splits):
        images, labels = splits[name].images, splits[name].labels
        sha.update(f"{name} {len(labels)}".encode())
        if isinstance(images, EncodedImages):
            for content in images.content():
                sha.update(content)
        else:
            sha.update(f"{images.shape}".encode())
            sha.update(np.ascontiguousarray(images).data)
        sha.update(labels.astype("<i8").tobytes())
    return sha.hexdigest()
