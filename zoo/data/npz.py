"""MedMNIST-style `.npz` archives of images."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from zoo.data.images import ImageData
from zoo.data.loader import Array
from zoo.data.sources import existing
from zoo.data.splits import Split
from zoo.errors import InputError

SPLITS = ("train", "val", "test")


def npz(
    path: str | Path,
    classes: str | Sequence[str] | None = None,
    size: int | None = None,
    val: float = 0.1,
    batch_size: int = 64,
    num_workers: int = 0,
    augment: str = "auto",
    seed: int = 0,
) -> ImageData:
    """A .npz archive with the arrays `{train,val,test}_images` and `{train,val,test}_labels`.

    Images are uint8 [N, H, W] or [N, H, W, 3], labels whole numbers [N] or [N, 1]. Nothing is unpickled. `val` and
    `test` may be missing: then validation images are held out of the training split, and there is no test.

    Args:
        path: The file.
        classes: Label names as a sequence or a comma list; the numbers themselves if not given.
        size: Side in pixels to scale to; that of the archive if not given.
        val: Share of the training split to hold out if the archive has no `val`.
        batch_size: Images per batch.
        num_workers: Worker processes.
        augment: `auto` is a shift by up to a sixteenth of the side, never a flip: organs have a left and a right.
        seed: Of shuffling and augmentation.

    Raises:
        InputError: The file or one of its arrays is missing or wrong; the message names both.
    """
    if isinstance(classes, str):
        classes = [name.strip() for name in classes.split(",")]
    augment = "shift" if augment == "auto" else augment
    return ImageData(
        partial(read_npz, existing(path, "npz")),
        None if classes is None else [str(name) for name in classes],
        size=size,
        val=val,
        batch_size=batch_size,
        num_workers=num_workers,
        augment=augment,
        seed=seed,
    )


def arrays(path: Path) -> dict[str, Array]:
    """Read every array of an archive, unpickling nothing.

    Raises:
        InputError: The file is no archive, or an array cannot be read; the message names it.
    """
    name = "the archive"
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            found = {}
            for name in archive.files:
                found[name] = archive[name]
            return found
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        # A lone .npy array has no context manager, an object array would have to be unpickled.
        reason = "it must be an .npz archive of plain arrays; nothing is unpickled"
        raise InputError(f"{path}: cannot read {name} ({type(error).__name__}); {reason}") from error


def read_npz(path: Path) -> dict[str, Split]:
    """Read the splits of an archive.

    Raises:
        InputError: The file or one of its arrays is missing or wrong; the message names both.
    """
    found = arrays(path)
    names = [name for name in SPLITS if {f"{name}_images", f"{name}_labels"} & set(found)]
    for name in ["train", *names]:
        for part in ("images", "labels"):
            if f"{name}_{part}" not in found:
                raise InputError(f"{path}: no array {name}_{part}; it has {', '.join(sorted(found)) or 'no arrays'}")
    return {name: Split(found[f"{name}_images"], _labels(found[f"{name}_labels"], path, name), str(path)) for name in names}


def _labels(labels: Array, path: Path, name: str) -> Array:
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise InputError(f"{path}: {name}_labels has {labels.shape[1]} labels per image; only one per image is supported")
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "iuf":
        raise InputError(f"{path}: {name}_labels is {labels.dtype} {labels.shape}; it must be whole numbers [N] or [N, 1]")
    return labels.reshape(-1)
