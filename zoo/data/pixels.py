"""Labeled images: encoded files, splits, the tensors that a network reads, and augmentation of whole batches."""

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional

from zoo.data.info import ImageInfo
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
        self.items, self.names = items, names

    def __len__(self) -> int:
        return len(self.items)

    def apply(self, index: int, function: Callable[[Image.Image], Result]) -> Result:
        """Decode an image, upright by its EXIF tag, and apply a function to it; errors name the image."""
        with self._open(index) as image:
            return function(ImageOps.exif_transpose(image))

    def check(self, index: int) -> None:
        """Raise `DataError` if an image cannot be read, for a whole JPEG or PNG many times faster than by decoding it."""
        with self._open(index) as image:
            check_shape(image)
            if self._is_whole(index, image):
                return
        self.apply(index, Image.Image.load)

    def _is_whole(self, index: int, image: Image.Image) -> bool:
        """Return whether a JPEG ends with its marker, or the checksums of a PNG are right; False for other formats."""
        item = self.items[index]
        if image.format == "JPEG" and isinstance(item, Path):
            with item.open("rb") as file:
                file.seek(-2, os.SEEK_END)
                return file.read() == b"\xff\xd9"
        if image.format != "PNG":
            return False
        try:
            image.verify()
        except _DECODING_ERRORS:
            return False
        return True

    @contextmanager
    def _open(self, index: int) -> Iterator[Image.Image]:
        item = self.items[index]
        try:
            with Image.open(io.BytesIO(item) if isinstance(item, bytes) else item, formats=FORMATS) as image:
                yield image
        except (*_DECODING_ERRORS, InputError) as error:
            reason = f"not a readable image ({getattr(error, 'strerror', None) or type(error).__name__})"
            reason = str(error) if isinstance(error, InputError) else reason
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


MAX_ASPECT = 200
"""Maximum aspect ratio: an image is resized by its short side, so the long one could exhaust the memory."""
SAMPLE = 1024  # encoded images to measure; decoding a whole folder would take longer than an epoch


def check_shape(image: Image.Image) -> None:
    """Raise `DataError` for 32-bit images, as their white is undefined, and for extreme aspect ratios, see `MAX_ASPECT`."""
    if image.mode in ("I", "F"):
        raise DataError(f"32-bit images (mode {image.mode}) are not supported; convert to 8 or 16 bits")
    if max(image.size) > MAX_ASPECT * min(image.size):
        raise DataError(f"{image.size[0]} x {image.size[1]} pixels: one side is more than {MAX_ASPECT} times the other")


def check_layout(pixels: object, channels: int) -> None:
    """Raise `DataError` for uint8 [C, H, W] in place of grey images, which could be C of them as well."""
    shape, kind = list(getattr(pixels, "shape", ())), str(getattr(pixels, "dtype", ""))
    is_grey = channels == 1 and kind.endswith("uint8") and len(shape) == 3
    if is_grey and shape[0] in (3, 4) and shape[2] not in (1, 3, 4):
        raise DataError(f"pixels {shape} may be {shape[0]} grey images or one with colors: use [N, H, W, 1] or [1, C, H, W]")


def to_mode(image: Image.Image, channels: int) -> Image.Image:
    """Convert to grey (1 channel) or RGB (3 channels) with 8 bits, see `check_shape`."""
    check_shape(image)
    if image.mode.startswith("I"):  # Pillow clips 16-bit grey to 8 bits instead of scaling it
        image = Image.fromarray((np.asarray(image) / 257).clip(0, 255).astype(np.uint8))
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("L" if channels == 1 else "RGB")


def to_square(image: Image.Image, channels: int, size: int) -> Image.Image:
    """Convert to grey or RGB, resize the short side to `size` pixels and crop the centre."""
    image = to_mode(image, channels)
    if image.size == (size, size):
        return image
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    return resized.crop((left, top, left + size, top + size))


def to_pixels(image: Image.Image, channels: int, size: int) -> Tensor:
    """Return the square image as uint8 [channels, size, size]."""
    array = np.array(to_square(image, channels, size))
    return torch.from_numpy(array).reshape(size, size, channels).permute(2, 0, 1)


def normalize(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return `(pixels / 255 - mean) / std`, float32, for uint8 [..., C, H, W] and mean and std [C] on the 0..1 scale."""
    centre, scale = (torch.tensor(values, device=pixels.device).view(-1, 1, 1) * 255 for values in (mean, std))
    return pixels.to(torch.float32).sub_(centre).div_(scale)


def preprocess(image: Image.Image, info: ImageInfo) -> Tensor:
    """Convert an image to the tensor that evaluation feeds to the network, float32 [in_channels, image_size, image_size].

    Example:
        >>> info = ImageInfo(in_channels=1, image_size=2, classes=("a",), mean=(0.5,), std=(0.5,), sizes={}, sha256="")
        >>> preprocess(Image.new("RGB", (4, 6), "white"), info).tolist()
        [[[1.0, 1.0], [1.0, 1.0]]]
    """
    return normalize(to_pixels(image, info.in_channels, info.image_size), info.mean, info.std)


def channel_statistics(images: Array | EncodedImages, channels: int, size: int) -> Sequence[tuple[float, ...]]:
    """Return mean and deviation per channel (0..1 scale) of an array [N, S, S, C], or of a fixed sample of encoded images."""
    if isinstance(images, EncodedImages):
        sample = np.random.RandomState(0).permutation(len(images))[:SAMPLE]
        pixels = partial(to_pixels, channels=channels, size=size)
        images = np.stack([images.apply(int(i), pixels).permute(1, 2, 0).numpy() for i in sample])
    return list(zip(*(_moments(images[..., channel]) for channel in range(channels)), strict=True))


def _moments(values: npt.NDArray[np.uint8]) -> tuple[float, float]:
    # A histogram of the 256 values is exact and needs no float copy of the images.
    counts = np.bincount(values.reshape(-1), minlength=256) / values.size
    grey = np.arange(256) / 255
    mean = float(counts @ grey)
    return mean, max(float(np.sqrt(counts @ (grey - mean) ** 2)), 1 / 255)  # a constant channel must not divide by zero


AUGMENTATIONS = ("auto", "none", "shift", "flip", "timm")


def resolve(augment: str, info: ImageInfo) -> str:
    """Resolve `auto`: `timm` for RGB of 64 pixels or more, `flip` for RGB of 32 or more, `shift` for others."""
    # Color images are assumed to be photographs. On CIFAR-10 `flip` validated better than timm's crops, and is faster.
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
    """Return timm's training transform: random resized crop, random flip and normalization."""
    # timm's minimum area of 8 % is unrecognizable in small images; 50 % with color jitter did worse on CIFAR-10.
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
