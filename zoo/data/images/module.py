"""The data module of labelled images, with augmentation by whole batches."""

import random as python_random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from zoo.data.images.preprocess import channel_statistics, normalise, to_mode, to_pixels, to_square
from zoo.data.images.splits import MAX_CLASSES, EncodedImages, Split, checked, hold_out, image_digest
from zoo.data.info import ImageInfo
from zoo.data.loader import Array, BatchDataset, generator
from zoo.data.module import DataModule
from zoo.data.options import DataError, check_integer, check_share
from zoo.errors import InputError, check_choice

Batch = tuple[Tensor, Tensor]

AUGMENTATIONS = ("auto", "none", "shift", "flip", "timm")


def resolve(augment: str, info: ImageInfo) -> str:
    """Resolve `auto`: `timm` for RGB of 64 pixels or more, `flip` for RGB of 32 or more, `shift` for others."""
    # Colour images are assumed to be photographs. On CIFAR-10 `flip` validated better than timm's crops, and is faster.
    if augment != "auto":
        return augment
    if info.in_channels == 1 or info.image_size < 32:
        return "shift"
    return "timm" if info.image_size >= 64 else "flip"


def shift(pixels: Tensor, generator: torch.Generator, *, flip: bool = False) -> Tensor:
    """Shift images, uint8 [B, C, S, S], by up to a sixteenth of their side, at least one pixel, and with `flip` mirror half.

    Do not mirror digits, letters or organs: a mirrored left kidney is a right one.
    """
    batch, channels, size, _ = pixels.shape
    reach = max(1, size // 16)  # an eighth was worse on X-rays (28 pixels) and CIFAR
    padded = functional.pad(pixels, (reach,) * 4)
    steps = torch.arange(size)
    rows, columns = (torch.randint(2 * reach + 1, (2, batch, 1), generator=generator) + steps).unbind()
    if flip:
        columns = torch.where(torch.rand(batch, 1, generator=generator) < 0.5, columns.flip(1), columns)
    width = size + 2 * reach
    index = (rows[:, :, None] * width + columns[:, None, :]).view(batch, 1, -1).expand(-1, channels, -1)
    return padded.view(batch, channels, -1).gather(2, index).view_as(pixels)


def timm_transform(info: ImageInfo) -> Callable[[Image.Image], Tensor]:
    """Return timm's training transform: random resized crop, random flip and normalisation."""
    # timm's minimum area of 8 % is unrecognisable in small images; 50 % with colour jitter did worse on CIFAR-10.
    from timm.data.transforms_factory import create_transform

    transform: Callable[[Image.Image], Tensor] = create_transform(
        (info.in_channels, info.image_size, info.image_size),
        is_training=True,
        scale=(0.7, 1.0),
        color_jitter=0.0,
        interpolation="bicubic",
        mean=info.mean,
        std=info.std,
    )
    return transform


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Temporarily seed the global generators, which timm's transforms use."""
    states = torch.get_rng_state(), python_random.getstate(), np.random.get_state()
    torch.default_generator.manual_seed(seed)
    python_random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        python_random.setstate(states[1])
        np.random.set_state(states[2])


class ImageDataset(BatchDataset[Batch]):
    """Make normalised batches of a split; an array of images must be [N, S, S, C].

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
            with seeded(random.initial_seed()):
                return torch.stack([self.transform(self._image(row)) for row in rows]), self.labels[rows]
        pixels = self._pixels(rows)
        if self.augment != "none":
            pixels = shift(pixels, random, flip=self.augment == "flip")
        return normalise(pixels, self.info.mean, self.info.std), self.labels[rows]

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
    """Feed batches (images float32 [B, C, S, S], labels int64 [B]) of labelled images.

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
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, seed=seed)
        self.size = None if size is None else check_integer("size", size, 1)
        if channels not in (None, 1, 3):
            raise InputError(f"channels={channels}: use 1 (grey) or 3 (RGB)")
        check_choice("augment", augment := augment or "none", AUGMENTATIONS)
        self.shares = {"test": check_share(test, "test") if test else 0.0, "val": check_share(val, "val")}
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
        size, channels = check_integer("size", size, 1), channels or 3
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
