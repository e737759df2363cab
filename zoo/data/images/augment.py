"""Training augmentation: shifts and flips of whole batches, or timm's transforms image by image."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from zoo.data.info import ImageInfo

AUGMENTATIONS = ("auto", "none", "shift", "flip", "timm")


def resolve(augment: str, info: ImageInfo) -> str:
    """Return the augmentation that `auto` stands for: RGB from 64 pixels on `timm`, RGB from 32 on `flip`, others `shift`."""
    # A colour image is taken for a photograph. On CIFAR-10 `flip` validated better than timm's crops, and is faster.
    if augment != "auto":
        return augment
    if info.in_channels == 1 or info.image_size < 32:
        return "shift"
    return "timm" if info.image_size >= 64 else "flip"


def shift(pixels: Tensor, generator: torch.Generator, *, flip: bool = False) -> Tensor:
    """Move images, uint8 [B, C, S, S], by up to a sixteenth of their side, at least a pixel; mirror half of them if `flip`.

    Never mirror digits, letters or organs: a mirrored left kidney is a right one.
    """
    batch, channels, size, _ = pixels.shape
    reach = max(1, size // 16)  # an eighth made X-rays (28 pixels) and CIFAR worse
    padded = functional.pad(pixels, (reach,) * 4)
    steps = torch.arange(size)
    rows, columns = (torch.randint(2 * reach + 1, (2, batch, 1), generator=generator) + steps).unbind()
    if flip:
        columns = torch.where(torch.rand(batch, 1, generator=generator) < 0.5, columns.flip(1), columns)
    width = size + 2 * reach
    places = (rows[:, :, None] * width + columns[:, None, :]).view(batch, 1, -1).expand(-1, channels, -1)
    return padded.view(batch, channels, -1).gather(2, places).view_as(pixels)


def timm_transform(info: ImageInfo) -> Callable[[Image.Image], Tensor]:
    """Return timm's training transform: random resized crop, mirror, normalisation."""
    # timm's own least area of 8 % leaves nothing recognisable of a small image; 50 % with colour jitter did worse on CIFAR-10.
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
    """Seed the global generators, which timm's transforms draw from, and put them back afterwards."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
