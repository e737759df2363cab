"""The data module of labeled images, and its presets for local images and the digits of scikit-learn."""

import random as python_random
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from PIL import Image
from torch import Tensor

from zoo.data.files import check_unpacked
from zoo.data.folder import ImageFolder, read_folder
from zoo.data.info import ImageInfo
from zoo.data.loader import Array, BatchDataset, generator
from zoo.data.module import ALL_ROWS, DataModule
from zoo.data.options import DataError, check_pinned, quote_few, resolve_path
from zoo.data.pixels import (
    AUGMENTATIONS,
    MAX_CLASSES,
    EncodedImages,
    Split,
    channel_statistics,
    checked,
    hold_out,
    image_digest,
    normalize,
    resolve,
    shift,
    timm_transform,
    to_mode,
    to_pixels,
    to_square,
)
from zoo.errors import InputError, check_choice
from zoo.registry import check_option, passes_options_to

Batch = tuple[Tensor, Tensor]
CROPPED = "resized to a short side of {} pixels and cropped to a square at the centre"


class ImageDataset(BatchDataset[Batch]):
    """Make normalized batches of a split; an array of images must be [N, S, S, C].

    For small images, tensor operations on a whole batch are many times faster than transforms of each image.
    """

    def __init__(self, split: Split, info: ImageInfo, augment: str = "none", seed: int = 0) -> None:
        self.info, self.augment, self.seed = info, augment, seed
        self.images = split.images
        self.labels = torch.from_numpy(split.labels)
        self.transform = timm_transform(info) if augment == "timm" else None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, keys: list[int]) -> Batch:
        """Return the images float32 [B, C, S, S] and labels int64 [B] of these keys (`epoch * length + row`)."""
        epoch, first = divmod(keys[0], len(self))
        rows = [key % len(self) for key in keys]
        random = generator(self.seed, epoch, first)
        if self.transform is not None:
            seed = random.initial_seed()
            with isolate_rng(include_cuda=False):  # timm's transforms use the global generators
                torch.default_generator.manual_seed(seed)
                python_random.seed(seed)
                np.random.seed(seed % 2**32)
                return torch.stack([self.transform(self._image(row)) for row in rows]), self.labels[rows]
        pixels = self._pixels(rows)
        if self.augment != "none":
            pixels = shift(pixels, random, flip=self.augment == "flip")
        return normalize(pixels, self.info.mean, self.info.std), self.labels[rows]

    def _image(self, row: int) -> Image.Image:
        images, channels = self.images, self.info.in_channels
        if isinstance(images, EncodedImages):
            return images.apply(row, lambda image: to_mode(image, channels))
        return to_mode(_to_image(images[row]), channels)

    def _pixels(self, rows: list[int]) -> Tensor:
        images, channels, size = self.images, self.info.in_channels, self.info.image_size
        if isinstance(images, EncodedImages):
            return torch.stack([images.apply(row, lambda image: to_pixels(image, channels, size)) for row in rows])
        return torch.from_numpy(images).permute(0, 3, 1, 2)[rows].contiguous()


def _to_image(pixels: Array) -> Image.Image:
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


class ImageData(DataModule[ImageInfo]):
    """Feed batches (images float32 [B, C, S, S], labels int64 [B]) of labeled images.

    Args:
        splits: `train`, and optionally `val` and `test`; or a function that reads them. Without `val`, a share of `train` is
            held out.
        classes: The label names; None for the numbers 0, 1, ... up to the largest label.
        size: Side of the square images in pixels; None keeps the height of an array. Required for encoded images.
        channels: 1 (grey) or 3 (RGB); None keeps that of an array, and is RGB for encoded images.
        val: That share, stratified and independent of the seed.
        test: Share of `train` to hold out first if there is no test split; 0 for none.
        augment: `none` (or None), `shift`, `flip` (shift and mirror), `timm`, or `auto` (see `resolve`).
        batch_size: See `DataModule`.
        num_workers: See `DataModule`.
        seed: Seed of the training order and of augmentation.
        use_all: Whether all images are validation and test images instead of the share `test`, as for measuring on new data.

    Attributes:
        splits: The images and labels of every split, after `setup`.

    Example:
        >>> pixels, labels = np.zeros((20, 4, 4), np.uint8), np.arange(20) % 2
        >>> data = ImageData({"train": Split(pixels, labels)}, ["even", "odd"], batch_size=6)
        >>> data.setup()
        >>> data.split_note, [tuple(images.shape) for images, _ in data.train_dataloader()]
        ('18 train, 2 val images (val held out of train)', [(6, 1, 4, 4), (6, 1, 4, 4), (6, 1, 4, 4)])
    """

    task = "image_classification"
    unit = "images"

    def __init__(
        self,
        splits: Mapping[str, Split] | Callable[[], Mapping[str, Split]],
        classes: Sequence[str] | None,
        *,
        size: int | None = None,
        channels: int | None = None,
        val: float = 0.1,
        test: float = 0.0,
        batch_size: int = 64,
        num_workers: int = 0,
        augment: str | None = "auto",
        seed: int = 0,
        use_all: bool = False,
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, seed=seed)
        self.use_all = use_all
        self.size = check_option("size", int | None, size, "[1, inf)")
        if channels not in (None, 1, 3):
            raise InputError(f"channels={channels}: use 1 (grey) or 3 (RGB)")
        check_choice("augment", augment := augment or "none", AUGMENTATIONS)
        self.shares = {"test": check_option("test", float, test, "[0, 1)"), "val": check_option("val", float, val, "(0, 1)")}
        self.channels, self.augment = channels, augment
        self.classes = None if classes is None else tuple(classes)
        self._read = splits
        self.splits: dict[str, Split] = {}

    def load(self) -> ImageInfo:
        """Read the splits, hold out missing ones and resize arrays."""
        given = self._read() if callable(self._read) else self._read
        if "train" not in given:
            raise InputError(f"splits {sorted(given)}: train is missing", code="missing")
        known = MAX_CLASSES if self.classes is None else len(self.classes)
        splits = {name: checked(split, name, known) for name, split in given.items()}
        numbers = range(1 + max(int(split.labels.max()) for split in splits.values()))
        classes = self.classes or tuple(map(str, numbers))
        self.source = splits["train"].source
        if len(classes) < 2:
            raise DataError(f"{self.source}: one class only; expected at least two")
        if self.use_all and self.shares["test"] and set(splits) == {"train"}:
            splits |= dict.fromkeys(("val", "test"), splits["train"])
            self.split_comment = ALL_ROWS
        missing = [name for name, share in self.shares.items() if share and name not in splits]
        for name in missing:
            splits = hold_out(splits, name, self.shares[name])
        if missing:
            self.split_comment = f"{' and '.join(missing)} held out of train"
        info = self._resize(splits, classes)
        self.splits, self.augment = splits, resolve(self.augment, info)
        return info

    def _resize(self, splits: dict[str, Split], classes: tuple[str, ...]) -> ImageInfo:
        sha256 = image_digest(splits, classes)
        images, size, channels = splits["train"].images, self.size, self.channels
        if not isinstance(images, EncodedImages):
            size = images.shape[1] if size is None else size
            channels = channels or (images.shape[3] if images.ndim == 4 else 1)
            height, width = images.shape[1:3]
            if height != width:
                self.notes.append(f"{self.source}: images of {height} x {width} pixels are {CROPPED.format(size)}")
        size, channels = check_option("size", int, size, "[1, inf)"), channels or 3
        for name, split in splits.items():
            if not isinstance(split.images, EncodedImages):
                pixels = split.images.reshape(*split.images.shape[:3], -1)
                if pixels.shape[1:] != (size, size, channels):
                    pixels = np.stack([np.asarray(to_square(_to_image(image), channels, size)) for image in pixels])
                    pixels = pixels.reshape(-1, size, size, channels)
                # torch warns about read-only memory
                splits[name] = replace(split, images=np.require(pixels, requirements=["C", "W"]))
        mean, std = channel_statistics(splits["train"].images, channels, size)
        sizes = {name: len(split) for name, split in splits.items()}
        return ImageInfo(in_channels=channels, image_size=size, classes=classes, mean=mean, std=std, sizes=sizes, sha256=sha256)

    def dataset(self, split: str) -> ImageDataset:
        """Return the images of a split; training images are augmented."""
        augment = self.augment if split == "train" else "none"
        return ImageDataset(self.splits[split], self.info, augment, self.seed)


DIGITS_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


@passes_options_to(ImageData, "val", "test", "channels", "use_all")
def digits(**options: Any) -> ImageData:
    """Handwritten digits of scikit-learn: 8 x 8 grey, 10 classes, 1257 / 180 / 360 images; needs no network access.

    The test half of the UCI optical digits (Alpaydin & Kaynak 1998). The splits are stratified and independent of the seed.
    `augment=auto` is a shift by up to one pixel.
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


@passes_options_to(ImageData, "channels", augment="shift")
def npz(path: str | Path, classes: str | Sequence[str] | None = None, **options: Any) -> ImageData:
    """A .npz archive with the arrays `{train,val,test}_images` and `{train,val,test}_labels`.

    Images are uint8 [N, H, W] or [N, H, W, 3], labels integers [N] or [N, 1]. Nothing is unpickled. Without `val`, validation
    images are held out; without `test`, so are test images if the option `test` is set. `classes` are the label names, by
    default the numbers. The default augmentation shifts by up to a sixteenth of the side and does not mirror, since organs have
    a left and a right.
    """
    names = [name.strip() for name in classes.split(",")] if isinstance(classes, str) else classes
    return ImageData(partial(read_npz, resolve_path(path, "npz")), names, **options)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read every array of an archive without unpickling."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            check_unpacked(path, sum(info.file_size for info in archive.zip.infolist()))
            return {name: archive[name] for name in archive.files}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, MemoryError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
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


class FolderData(ImageData):
    """`ImageData` of a folder, see `imagefolder`."""

    def __init__(self, folder: Callable[[], ImageFolder], **options: Any) -> None:
        super().__init__({}, None, **options)
        self._folder = folder

    def load(self) -> ImageInfo:
        """Read the folder, and note how its images are read."""
        self._read, self.classes, self.notes, self.skipped = self._folder()
        info = super().load()
        crop = f"{CROPPED.format(info.image_size)} (size={info.image_size})"
        self.notes.append(f"{self.source}: images are {crop}; training has augment={self.augment}")
        return info


@passes_options_to(ImageData, size=64, channels=3, test=0.1)
def imagefolder(path: str | Path, splits: bool | str = "auto", on_bad_rows: str = "error", **options: object) -> ImageData:
    """A folder of images of any format and size: path/{train,val,test}/CLASS/*.png or path/CLASS/*.png.

    Images are decoded on access; their short side is resized to `size` and the centre cropped. Whether folders such as `train`
    are splits or classes depends on what is inside, unless `splits` is true or false. Without a test folder a tenth of the
    images is held out for testing. Before training every image is checked; with `on_bad_rows=skip` broken ones are skipped, and
    the run counts them. Because a folder may be huge, the digest covers names and sizes of files only, and mean and deviation
    are measured on 1024 training images.
    """
    return FolderData(partial(read_folder, resolve_path(path, "imagefolder"), splits, on_bad_rows), **options)
