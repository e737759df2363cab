"""Local images: folders of image files, `.npz` archives, and the digits of scikit-learn."""

import zipfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.images.module import ImageData
from zoo.data.images.splits import ENDINGS, EncodedImages, Split, hold_out
from zoo.data.loader import Array
from zoo.data.options import DataError, check_pinned, options_of, quote_few, resolve_path
from zoo.data.text.files import check_unpacked
from zoo.errors import InputError

FOLDERS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
FOLDERS |= dict.fromkeys(("val", "valid", "validation", "dev"), "val")
DIGITS_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


@options_of(ImageData, "val", "test", "channels")
def digits(**options: Any) -> ImageData:
    """Handwritten digits of scikit-learn: 8 x 8 grey, 10 classes, 1257 / 180 / 360 images; needs no network access.

    The test half of the UCI optical digits (Alpaydin & Kaynak 1998). The splits are stratified and independent of the seed.

    Args:
        options: See `ImageData`; `augment=auto` is a shift by up to one pixel.
    """
    return ImageData(_digits, [str(digit) for digit in range(10)], **options)


def _digits() -> dict[str, Split]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
    check_pinned("digits", DIGITS_SHA256, images.tobytes() + labels.astype(np.uint8).tobytes())
    pixels = np.rint(images * (255 / 16)).astype(np.uint8)
    splits = hold_out({"train": Split(pixels, labels, "digits")}, "test", 360 / len(labels))
    return hold_out(splits, "val", 180 / len(splits["train"]))


@options_of(ImageData, "channels", augment="shift")
def npz(path: str | Path, classes: str | Sequence[str] | None = None, **options: Any) -> ImageData:
    """A .npz archive with the arrays `{train,val,test}_images` and `{train,val,test}_labels`.

    Images are uint8 [N, H, W] or [N, H, W, 3], labels integers [N] or [N, 1]. Nothing is unpickled. Without `val`, validation
    images are held out; without `test`, so are test images if the option `test` is set.

    Args:
        path: The file.
        classes: Label names, as a sequence or separated by commas; by default the numbers.
        options: See `ImageData`. The default augmentation shifts by up to a sixteenth of the side and does not mirror, since
            organs have a left and a right.
    """
    names = classes.split(",") if isinstance(classes, str) else classes
    read = partial(read_npz, resolve_path(path, "npz"))
    return ImageData(read, None if names is None else [name.strip() for name in names], **options)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read every array of an archive without unpickling."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            check_unpacked(path, sum(info.file_size for info in archive.zip.infolist()))
            return {name: archive[name] for name in archive.files}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        # A single .npy array has no context manager, an object array would have to be unpickled.
        reason = f"cannot read the archive ({type(error).__name__}: {error})"
        raise DataError(f"{path}: {reason}; expected a complete .npz archive of plain arrays") from error


def read_npz(path: Path) -> dict[str, Split]:
    """Read the splits of an archive."""
    arrays = read_arrays(path)
    splits = {}
    for name in ("train", "val", "test"):
        if name == "train" or {f"{name}_images", f"{name}_labels"} & arrays.keys():
            images, labels = (find_array(path, arrays, f"{name}_{part}") for part in ("images", "labels"))
            splits[name] = Split(images, labels[:, 0] if labels.shape[1:] == (1,) else labels, str(path))
    return splits


def find_array(path: Path, arrays: dict[str, Array], name: str) -> Array:
    """Return an array of an archive, or raise `DataError`."""
    if name not in arrays:
        raise DataError(f"{path}: no array {name}; the archive has {quote_few(sorted(arrays))}")
    return arrays[name]


@options_of(ImageData, size=64, channels=3, test=0.1)
def imagefolder(path: str | Path, **options: Any) -> ImageData:
    """A folder of images of any format and size: path/{train,val,test}/CLASS/*.png or path/CLASS/*.png.

    Images are decoded on access; their short side is resized to `size` and the centre cropped. Because a folder may be huge,
    the digest covers names and sizes of files only, and mean and deviation are measured on 1024 training images.

    Args:
        path: The folder.
        options: See `ImageData`. Without a test folder a tenth of the images is held out for testing.
    """
    root = resolve_path(path, "imagefolder")
    if not root.is_dir() or not _folders(root):
        raise DataError(f"{root}: no folders of images; expected {root}/<class>/ or {root}/train/<class>/")
    names = [name for name in _folders(root) if name.lower() in FOLDERS]
    folders = {FOLDERS[name.lower()]: root / name for name in names} or {"train": root}
    if "train" not in folders:
        raise InputError(f"{root}: has {', '.join(sorted(folders))} but no train folder", code="missing")
    classes = _folders(folders["train"])
    return ImageData(lambda: {name: _list(folder, classes, root) for name, folder in folders.items()}, classes, **options)


def _list(folder: Path, classes: list[str], root: Path) -> Split:
    """List the images of a folder with one folder per class; names are relative to the root."""
    if wrong := sorted(set(classes) ^ set(_folders(folder))):
        raise DataError(f"{folder}: other classes than in the training folder (differing: {quote_few(wrong, 5)})")
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = sorted(file for file in (folder / name).rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
        if not images:
            raise DataError(f"{folder / name}: no images ({', '.join(sorted(ENDINGS))})")
        files += images
        labels += [label] * len(images)
    names = [file.relative_to(root).as_posix() for file in files]
    return Split(EncodedImages(files, names), np.array(labels), str(root))


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
