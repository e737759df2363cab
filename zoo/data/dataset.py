"""One split as a torch data set that makes whole batches."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from zoo.data.augment import seeded, shift, timm_transform
from zoo.data.encoded import EncodedImages
from zoo.data.info import ImageInfo
from zoo.data.loader import Array, generator
from zoo.data.preprocess import normalise, to_mode, to_pixels, to_square
from zoo.data.splits import Split

Batch = tuple[Tensor, Tensor]


def squared(images: Array, channels: int, size: int) -> Array:
    """Return an array [N, H, W] or [N, H, W, C] as uint8 [N, size, size, channels], scaled only if it must be."""
    images = images.reshape(*images.shape[:3], -1)
    if images.shape[1:] != (size, size, channels):
        images = np.stack([np.asarray(to_square(_picture(image), channels, size)) for image in images])
        images = images.reshape(-1, size, size, channels)
    return np.require(images, requirements=["C", "W"])  # torch warns about memory that it must not write to


def _picture(image: Array) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


class ImageDataset(Dataset[Batch]):
    """Make normalised batches of a split.

    A batch is made as a whole (`__getitems__`), because tensor operations over a batch of small images are many times
    faster than transforms image by image.

    Args:
        split: A checked split; an array of images must be [N, S, S, C] as the info say.
        info: Of the whole data set.
        augment: `none`, `shift`, `flip` or `timm`.
        seed: Of the augmentation.
    """

    def __init__(self, split: Split, info: ImageInfo, augment: str = "none", seed: int = 0) -> None:
        self.info, self.augment, self.seed = info, augment, seed
        self.images = split.images
        self.labels = torch.from_numpy(split.labels)
        self.transform = timm_transform(info) if augment == "timm" else None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, key: int) -> Batch:
        images, labels = self.__getitems__([key])
        return images[0], labels[0]

    def __getitems__(self, keys: list[int]) -> Batch:
        """Make the batch of these keys (`epoch * length + row`).

        Returns:
            Images float32 [B, C, S, S] and labels int64 [B].
        """
        epoch, first = divmod(keys[0], len(self))
        rows = [key % len(self) for key in keys]
        draws = generator(self.seed, epoch, first)
        if self.transform is not None:
            with seeded(draws.initial_seed()):
                return torch.stack([self.transform(self._image(row)) for row in rows]), self.labels[rows]
        pixels = self._pixels(rows)
        if self.augment != "none":
            pixels = shift(pixels, draws, flip=self.augment == "flip")
        return normalise(pixels, self.info.mean, self.info.std), self.labels[rows]

    def _image(self, row: int) -> Image.Image:
        image = self.images[row] if isinstance(self.images, EncodedImages) else _picture(self.images[row])
        return to_mode(image, self.info.in_channels)

    def _pixels(self, rows: list[int]) -> Tensor:
        images, channels, size = self.images, self.info.in_channels, self.info.image_size
        if isinstance(images, EncodedImages):
            return torch.stack([to_pixels(images[row], channels, size) for row in rows])
        return torch.from_numpy(images).permute(0, 3, 1, 2)[rows].contiguous()
