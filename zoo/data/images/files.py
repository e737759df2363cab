"""Local images: folders of image files, `.npz` archives, and the digits of scikit-learn."""

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.images.module import ImageData
from zoo.data.images.splits import ENDINGS, EncodedImages, Split, hold_out
from zoo.data.loader import Array
from zoo.data.options import DataError, list_names, options_of, quote_few, resolve_path
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
    sha256 = hashlib.sha256(images.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
    if sha256 != DIGITS_SHA256:
        digests = f"SHA-256 {sha256[:12]}, expected {DIGITS_SHA256[:12]}"
        raise InputError(f"digits: the installed scikit-learn has other data ({digests})", code="mismatch")
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
    root = resolve_path(path, "npz")
    if root.is_dir():
        advice = f"use a .npz file, or imagefolder(path=...) for image files; the folder has {list_names(root)}"
        raise DataError(f"npz: {root} is a folder; {advice}")
    names = classes.split(",") if isinstance(classes, str) else classes
    return ImageData(partial(read_npz, root), None if names is None else [str(name).strip() for name in names], **options)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read every array of an archive without unpickling."""
    name = "the archive"
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            check_unpacked(path, sum(info.file_size for info in archive.zip.infolist()))
            arrays = {}
            for name in archive.files:
                arrays[name] = archive[name]
            return arrays
    except InputError:
        raise
    except (OSError, ValueError, EOFError, AttributeError, TypeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        # A single .npy array has no context manager, an object array would have to be unpickled.
        reason = "expected a complete .npz archive of plain arrays; nothing is unpickled"
        raise DataError(f"{path}: cannot read {name} ({type(error).__name__}); {reason}") from error


def read_npz(path: Path) -> dict[str, Split]:
    """Read the splits of an archive."""
    arrays = read_arrays(path)
    names = [name for name in ("train", "val", "test") if {f"{name}_images", f"{name}_labels"} & set(arrays)]
    check_arrays(path, arrays, [f"{name}_{part}" for name in ("train", *names) for part in ("images", "labels")])
    labels = {name: arrays[f"{name}_labels"] for name in names}
    labels |= {name: array.reshape(-1) for name, array in labels.items() if array.shape[1:] == (1,)}
    return {name: Split(arrays[f"{name}_images"], labels[name], str(path)) for name in names}


def check_arrays(path: Path, arrays: Mapping[str, Array], needed: Iterable[str]) -> None:
    """Raise `DataError` if an array is missing in an archive."""
    if missing := [name for name in needed if name not in arrays]:
        raise DataError(f"{path}: no array {missing[0]}; the archive has {', '.join(sorted(arrays)) or 'no arrays'}")


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
    return ImageData(partial(read_folder, root), class_folders(root), **options)


def class_folders(root: Path) -> list[str]:
    """Return the sorted names of the class folders."""
    return _folders(_split_folders(root)["train"])


def read_folder(root: Path) -> dict[str, Split]:
    """List the images of every split of a folder."""
    folders, classes = _split_folders(root), class_folders(root)
    if not classes:
        raise DataError(f"{folders['train']}: no class folders; expected {folders['train']}/<class>/")
    for name, folder in folders.items():
        if wrong := sorted(set(classes) ^ set(_folders(folder))):
            raise DataError(f"{folder}: the {name} split has other classes than train (differing: {quote_few(wrong, 5)})")
    return {name: _list_images(folder, classes, root) for name, folder in folders.items()}


def _split_folders(root: Path) -> dict[str, Path]:
    if not root.is_dir():
        raise DataError(f"{root}: not a folder; expected {root}/<class>/ or {root}/train/<class>/")
    named = [name for name in _folders(root) if name.lower() in FOLDERS]
    folders = {FOLDERS[name.lower()]: root / name for name in named}
    if len(folders) < len(named):
        raise InputError(f"{root}: {', '.join(named)} are folders of the same split; keep one", code="conflict")
    if folders and "train" not in folders:
        raise InputError(f"{root}: has {', '.join(sorted(folders))} but no train folder", code="missing")
    return folders or {"train": root}


def _list_images(folder: Path, classes: list[str], root: Path) -> Split:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = sorted(file for file in (folder / name).rglob("*") if file.suffix.lower() in ENDINGS and not file.is_dir())
        if not images:
            raise DataError(f"{folder / name}: no images ({', '.join(sorted(ENDINGS))})")
        if wrong := next((file for file in images if not file.is_file()), None):
            raise DataError(f"{wrong}: not a regular file (a broken link, a pipe or a device); replace or delete it")
        files += images
        labels += [label] * len(images)
    names = [file.relative_to(root).as_posix() for file in files]
    return Split(EncodedImages(files, names), np.array(labels), str(root))


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
