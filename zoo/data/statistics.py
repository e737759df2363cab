"""Mean and standard deviation of every channel of the training images."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zoo.data.encoded import EncodedImages
from zoo.data.loader import Array
from zoo.data.preprocess import to_pixels

SAMPLE = 1024  # decoding a whole image folder to learn three means would take longer than an epoch

Statistics = tuple[tuple[float, ...], tuple[float, ...]]


def channel_statistics(images: Array | EncodedImages, channels: int, size: int) -> Statistics:
    """Measure the training images.

    Args:
        images: uint8 array [N, S, S, C], measured whole, or encoded images, of which a fixed sample of 1024 is decoded.
        channels: 1 or 3.
        size: Side in pixels at which encoded images are measured.

    Returns:
        Mean and standard deviation per channel on the 0..1 scale.
    """
    if isinstance(images, EncodedImages):
        chosen = np.random.RandomState(0).permutation(len(images))[:SAMPLE]
        stack = [to_pixels(images[int(i)], channels, size).permute(1, 2, 0).numpy() for i in chosen]
        images = np.stack(stack)
    means, deviations = zip(*(_moments(images[..., channel]) for channel in range(channels)), strict=True)
    return means, deviations


def _moments(values: npt.NDArray[np.uint8]) -> tuple[float, float]:
    # Counting the 256 grey values is exact and needs no float copy of the images.
    counts = np.bincount(values.reshape(-1), minlength=256) / values.size
    grey = np.arange(256) / 255
    mean = float(counts @ grey)
    deviation = float(np.sqrt(counts @ (grey - mean) ** 2))
    return mean, max(deviation, 1 / 255)  # one constant channel must not divide by zero
