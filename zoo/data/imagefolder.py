"""Folders of image files, one folder per class."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from zoo.data.encoded import EncodedImages
from zoo.data.images import ImageData
from zoo.data.sources import existing
from zoo.data.splits import Split, check_share, hold_out
from zoo.errors import InputError

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"}
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def imagefolder(
    path: str | Path,
    size: int = 64,
    channels: int = 3,
    val: float = 0.1,
    test: float = 0.0,
    batch_size: int = 64,
    num_workers: int = 0,
    augment: str = "auto",
    seed: int = 0,
) -> ImageData:
    """A folder of images: path/{train,val,test}/CLASS/*.png or path/CLASS/*.png, any format, any size.

    Images are decoded when they are needed; their short side is scaled to `size` and the centre cut out. The digest of
    the info covers names and sizes of the files, not their content: reading a huge folder twice would take too long.
    For the same reason mean and deviation are measured on 1024 training images.

    Args:
        path: The folder.
        size: Side in pixels.
        channels: 3 (RGB) or 1 (grey).
        val: Share of the training split to hold out for validation if there is no such folder.
        test: Share of all images to hold out for the test if there is no such folder; 0 for none.
        batch_size: Images per batch.
        num_workers: Worker processes; decoding large photographs is worth some.
        augment: See `ImageData`.
        seed: Of shuffling and augmentation; the held-out images do not depend on it.

    Raises:
        InputError: There are no images, or the splits have different classes; a broken image is named when it is read.
    """
    root = existing(path, "imagefolder")
    return ImageData(
        partial(_splits, root, check_share(test, "test") if test else 0.0),
        class_names(root),
        size=size,
        channels=channels,
        val=val,
        batch_size=batch_size,
        num_workers=num_workers,
        augment=augment,
        seed=seed,
    )


def _splits(root: Path, test: float) -> dict[str, Split]:
    splits = read_folder(root)
    return hold_out(splits, "test", test) if test else splits


def class_names(root: Path) -> list[str]:
    """Return the class folders of a folder of images in alphabetical order."""
    return _folders(_split_folders(root)["train"])


def read_folder(root: Path) -> dict[str, Split]:
    """List the images of a folder, split by split."""
    folders = _split_folders(root)
    classes = _folders(folders["train"])
    for name, folder in folders.items():
        if wrong := set(classes) ^ set(_folders(folder)):
            raise InputError(f"{folder}: the {name} split has other classes than train (differing: {_few(sorted(wrong))})")
    return {name: _split(folder, classes, root) for name, folder in folders.items()}


def _split_folders(root: Path) -> dict[str, Path]:
    if not root.is_dir():
        raise InputError(f"{root}: not a folder; images lie in {root}/<class>/ or {root}/train/<class>/")
    folders = {SPLITS[name]: root / name for name in _folders(root) if name in SPLITS}
    if folders and "train" not in folders:
        raise InputError(f"{root}: has {', '.join(sorted(folders))} but no train folder")
    return folders or {"train": root}


def _split(folder: Path, classes: list[str], root: Path) -> Split:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(file for file in (folder / name).rglob("*") if file.suffix.lower() in ENDINGS)
        if not found:
            raise InputError(f"{folder / name}: no images ({', '.join(sorted(ENDINGS))})")
        files += found
        labels += [label] * len(found)
    if not files:
        raise InputError(f"{folder}: no class folders; images lie in {folder}/<class>/")
    names = [file.relative_to(root).as_posix() for file in files]
    return Split(EncodedImages(files, names), np.array(labels), str(root))


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
