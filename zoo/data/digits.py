"""The embedded image data set: 1,797 handwritten digits that scikit-learn carries."""

from __future__ import annotations

import hashlib

import numpy as np

from zoo.data.images import ImageData
from zoo.data.splits import Split, hold_out
from zoo.errors import InputError

SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
TEST = 360  # a fifth; of the rest, a tenth of the whole is for validation
VAL = 180
CLASSES = tuple(map(str, range(10)))


def digits(
    size: int | None = None, batch_size: int = 64, num_workers: int = 0, augment: str = "auto", seed: int = 0
) -> ImageData:
    """Handwritten digits out of scikit-learn: 8 x 8 grey, 10 classes, 1257 / 180 / 360 images; needs no network.

    The data are real (Alpaydin & Kaynak 1998, the test half of the UCI optical digits) and need no network. The splits
    are stratified and the same for every seed.

    Args:
        size: Side in pixels to scale the images to; None keeps 8.
        batch_size: Images per batch.
        num_workers: Worker processes.
        augment: `auto` is a shift by up to one pixel; see `ImageData`.
        seed: Of shuffling and augmentation.

    Example:
        >>> data = digits()
        >>> data.setup()
        >>> data.info.sizes
        {'train': 1257, 'test': 360, 'val': 180}
    """
    return ImageData(
        read_digits,
        CLASSES,
        size=size,
        batch_size=batch_size,
        num_workers=num_workers,
        augment=augment,
        seed=seed,
    )


def read_digits() -> dict[str, Split]:
    """Read the digits and cut the splits.

    Raises:
        InputError: The installed scikit-learn ships other data.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
    found = hashlib.sha256(images.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
    if found != SHA256:
        raise InputError(f"digits: the installed scikit-learn ships other data (SHA-256 {found[:12]}, not {SHA256[:12]})")
    pixels = np.rint(images * (255 / 16)).astype(np.uint8)
    splits = hold_out({"train": Split(pixels, labels, "digits")}, "test", TEST / len(labels))
    return hold_out(splits, "val", VAL / len(splits["train"]))
