"""Labelled splits of images, in arrays or encoded: check, cut and hash them."""

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
from PIL import Image, ImageOps

from zoo.data.loader import Array
from zoo.data.options import DataError
from zoo.data.splits import held_out
from zoo.errors import InputError

Result = TypeVar("Result")
MAX_CLASSES = 100_000  # for labels without names

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
"""Allowed formats. Pillow detects them by content, and others of its formats start programs (EPS starts Ghostscript)."""
_DECODING_ERRORS = (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError)


class EncodedImages:
    """A sequence of image files, as paths or bytes, that are decoded on access."""

    def __init__(self, items: Sequence[Path | bytes], names: Sequence[str]) -> None:
        self.items = items
        self.names = names

    def __len__(self) -> int:
        return len(self.items)

    def apply(self, index: int, function: Callable[[Image.Image], Result]) -> Result:
        """Decode an image, upright by its EXIF tag, and apply a function to it; errors name the image."""
        item = self.items[index]
        try:
            with Image.open(io.BytesIO(item) if isinstance(item, bytes) else item, formats=FORMATS) as image:
                return function(ImageOps.exif_transpose(image))
        except (*_DECODING_ERRORS, InputError) as error:
            reason = error if isinstance(error, InputError) else f"not a readable image ({type(error).__name__})"
            raise DataError(f"{self.names[index] if isinstance(item, bytes) else item}: {reason}") from error

    def take(self, index: Iterable[int]) -> Self:
        """Return some images, still encoded."""
        rows = [int(i) for i in index]
        return type(self)([self.items[i] for i in rows], [self.names[i] for i in rows])

    def content(self) -> Iterable[bytes]:
        """Yield the data to hash: bytes in memory, or names and sizes of files, since a folder may be huge."""
        for item, name in zip(self.items, self.names, strict=True):
            yield item if isinstance(item, bytes) else f"{name}\0{item.stat().st_size}\0".encode()


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: uint8 array [N, H, W] or [N, H, W, C] with C = 1 or 3, or encoded images.
        labels: Integers [N].
        source: Name of the file or data set in error messages.
    """

    images: Array | EncodedImages
    labels: Array
    source: str = "the data"

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Array) -> Self:
        """Return some rows."""
        images = self.images.take(index) if isinstance(self.images, EncodedImages) else self.images[index]
        return replace(self, images=images, labels=self.labels[index])


def checked(split: Split, name: str, num_classes: int) -> Split:
    """Return the split with int64 labels; `DataError` if images or labels are not as documented in `Split`."""
    location, images, labels = f"{split.source}, {name} split", split.images, np.asarray(split.labels)
    if not (
        isinstance(images, EncodedImages)
        or (images.dtype == np.uint8 and images.ndim > 2 and images.shape[3:] in ((), (1,), (3,)))
    ):
        given = f"images of type {images.dtype} and shape {images.shape}"
        raise DataError(f"{location}: {given}; use uint8 [N, H, W] or [N, H, W, 1 or 3]")
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),) or not len(labels):
        given = f"{len(images)} images but labels of type {labels.dtype} and shape {labels.shape}"
        raise DataError(f"{location}: {given}; use one whole number per image")
    if (wrong := labels.min()) < 0 or (wrong := labels.max()) >= num_classes:
        raise DataError(f"{location}: label {wrong} is outside 0..{num_classes - 1} ({num_classes:,} classes)")
    return replace(split, labels=labels.astype(np.int64))


def hold_out(splits: Mapping[str, Split], name: str, fraction: float) -> dict[str, Split]:
    """Hold out a stratified share of the training split as a split, unless that exists."""
    if name in splits:
        return dict(splits)
    train = splits["train"]
    chosen = held_out(train.labels, name, fraction, train.source)
    return {**splits, "train": train.take(np.flatnonzero(~chosen)), name: train.take(np.flatnonzero(chosen))}


def image_digest(splits: Mapping[str, Split], classes: Sequence[str]) -> str:
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
