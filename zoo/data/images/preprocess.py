"""Convert images to the tensors a network reads, alike in evaluation and prediction, and measure channel statistics."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from zoo.data.images.splits import EncodedImages
from zoo.data.info import ImageInfo
from zoo.data.loader import Array
from zoo.data.options import DataError

MAX_ASPECT = 200
"""Maximum aspect ratio: an image is resized by its short side, so the long one could exhaust the memory."""
SAMPLE = 1024  # encoded images to measure; decoding a whole folder would take longer than an epoch
Statistics = tuple[tuple[float, ...], tuple[float, ...]]


def to_mode(image: Image.Image, channels: int) -> Image.Image:
    """Convert to grey (1 channel) or RGB (3 channels) with 8 bits; 32-bit images are refused, as their white is undefined."""
    if image.mode in ("I", "F"):
        raise DataError(f"32-bit images (mode {image.mode}) are not supported; convert to 8 or 16 bits")
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
    if max(image.size) > MAX_ASPECT * min(image.size):
        raise DataError(f"{image.size[0]} x {image.size[1]} pixels: one side is more than {MAX_ASPECT} times the other")
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    return resized.crop((left, top, left + size, top + size))


def to_pixels(image: Image.Image, channels: int, size: int) -> Tensor:
    """Return the square image as uint8 [channels, size, size]."""
    array = np.array(to_square(image, channels, size))
    return torch.from_numpy(array).reshape(size, size, channels).permute(2, 0, 1)


def normalise(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return `(pixels / 255 - mean) / std`, float32, for uint8 [..., C, H, W] and mean and std [C] on the 0..1 scale."""
    centre, scale = (torch.tensor(values, device=pixels.device).view(-1, 1, 1) * 255 for values in (mean, std))
    return pixels.to(torch.float32).sub_(centre).div_(scale)


def preprocess(image: Image.Image, info: ImageInfo) -> Tensor:
    """Convert an image to the tensor that evaluation feeds to the network.

    Args:
        image: Any Pillow image.
        info: Info of the training data.

    Returns:
        float32 [info.in_channels, info.image_size, info.image_size].

    Example:
        >>> info = ImageInfo(in_channels=1, image_size=2, classes=("a",), mean=(0.5,), std=(0.5,), sizes={}, sha256="")
        >>> preprocess(Image.new("RGB", (4, 6), "white"), info).tolist()
        [[[1.0, 1.0], [1.0, 1.0]]]
    """
    return normalise(to_pixels(image, info.in_channels, info.image_size), info.mean, info.std)


def channel_statistics(images: Array | EncodedImages, channels: int, size: int) -> Statistics:
    """Return mean and deviation per channel (0..1 scale) of an array [N, S, S, C], or of a fixed sample of encoded images."""
    if isinstance(images, EncodedImages):
        sample = np.random.RandomState(0).permutation(len(images))[:SAMPLE]
        pixels = partial(to_pixels, channels=channels, size=size)
        images = np.stack([images.apply(int(i), pixels).permute(1, 2, 0).numpy() for i in sample])
    means, deviations = zip(*(_moments(images[..., channel]) for channel in range(channels)), strict=True)
    return means, deviations


def _moments(values: npt.NDArray[np.uint8]) -> tuple[float, float]:
    # A histogram of the 256 values is exact and needs no float copy of the images.
    counts = np.bincount(values.reshape(-1), minlength=256) / values.size
    grey = np.arange(256) / 255
    mean = float(counts @ grey)
    deviation = float(np.sqrt(counts @ (grey - mean) ** 2))
    return mean, max(deviation, 1 / 255)  # a constant channel must not divide by zero
