"""Labelled splits of images, in arrays or still encoded: checking them, cutting them, and taking their digest."""

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
from PIL import Image, ImageOps

from zoo.data.loader import Array
from zoo.data.options import check_share
from zoo.data.splits import stratified
from zoo.errors import InputError

T = TypeVar("T")
MOST_CLASSES = 100_000  # classes at most, where only numbers name them

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
"""What is read: Pillow goes by the content, and some of its other formats start programs (EPS, Ghostscript)."""
# Pillow's decoders fail with any of these, depending on the format and on what is wrong.
_DECODING = (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError)


class EncodedImages:
    """A sequence of images (paths, or bytes of image files) that decodes one when it is asked for it, and their names."""

    def __init__(self, items: Sequence[Path | bytes], names: Sequence[str]) -> None:
        self.items = items
        self.names = names

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Image.Image:
        """Decode one image, upright as its EXIF note says."""
        item = self.items[index]
        try:
            with Image.open(io.BytesIO(item) if isinstance(item, bytes) else item, formats=FORMATS) as image:
                return ImageOps.exif_transpose(image)
        except _DECODING as error:
            reason = f"not a readable image ({type(error).__name__}); replace or delete it"
            raise InputError(f"{self.name(index)}: {reason}", code="data") from error

    def name(self, index: int) -> str:
        """Return what an error calls this image: its path, or its name in the file that holds it."""
        item = self.items[index]
        return self.names[index] if isinstance(item, bytes) else str(item)

    def apply(self, index: int, function: Callable[[Image.Image], T]) -> T:
        """Decode one image and apply a function to it; what that refuses is refused with the image's name."""
        image = self[index]
        try:
            return function(image)
        except InputError as error:
            raise InputError(f"{self.name(index)}: {error}", code="data") from None

    def take(self, index: Iterable[int]) -> Self:
        """Return the images at these places, still encoded."""
        places = [int(i) for i in index]
        return type(self)([self.items[i] for i in places], [self.names[i] for i in places])

    def content(self) -> Iterable[bytes]:
        """Yield what the digest covers: bytes in memory whole, files by name and size only (a folder may be huge)."""
        for item, name in zip(self.items, self.names, strict=True):
            yield item if isinstance(item, bytes) else f"{name}\0{item.stat().st_size}\0".encode()


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

    def take(self, index: Array) -> Self:
        """Return the rows at these places."""
        images = self.images.take(index) if isinstance(self.images, EncodedImages) else self.images[index]
        return replace(self, images=images, labels=self.labels[index])


def class_numbers(splits: Mapping[str, Split]) -> tuple[str, ...]:
    """Return the whole numbers from 0 to the largest label as the names of classes."""
    largest = 0
    for name, split in splits.items():
        labels = np.asarray(split.labels)
        if labels.size and labels.max() >= MOST_CLASSES:  # of any type of numbers, before anything is made of it
            wrong = f"label {labels.max()} is too large to be a class"
            raise InputError(
                f"{split.source}, {name} split: {wrong}; number classes from 0 on, at most {MOST_CLASSES:,}", code="data"
            )
        largest = max(largest, int(checked(split, name, MOST_CLASSES).labels.max()))
    return tuple(map(str, range(largest + 1)))


def checked(split: Split, name: str, num_classes: int) -> Split:
    """Return the split with int64 labels."""
    location = f"{split.source}, {name} split"
    if not isinstance(split.images, EncodedImages):
        _check_pixels(split.images, location)
    labels = np.asarray(split.labels)
    if labels.ndim != 1 or len(labels) != len(split.images):
        raise InputError(
            f"{location}: {len(split.images)} images but labels of shape {labels.shape}; one label per image", code="data"
        )
    if len(labels) == 0:
        raise InputError(f"{location}: no images; every split needs at least one", code="data")
    if labels.dtype.kind not in "iu" and not (labels.dtype.kind == "f" and np.array_equal(labels, labels.round())):
        raise InputError(f"{location}: labels of type {labels.dtype}; they must be integers", code="data")
    if labels.min() < 0 or labels.max() >= num_classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(f"{location}: label {wrong} is outside 0..{num_classes - 1} ({num_classes} classes)", code="data")
    return Split(split.images, labels.astype(np.int64), split.source)


def _check_pixels(images: Array, location: str) -> None:
    if images.dtype != np.uint8:
        raise InputError(f"{location}: images of type {images.dtype}; they must be uint8 (0..255)", code="data")
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] not in (1, 3)) or 0 in images.shape[1:]:
        raise InputError(
            f"{location}: images of shape {images.shape}; they must be [N, H, W] or [N, H, W, 1 or 3]", code="data"
        )


def hold_out(splits: Mapping[str, Split], name: str, fraction: float) -> dict[str, Split]:
    """Cut a stratified share of the training split off as a split of its own, unless there is one of that name."""
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
