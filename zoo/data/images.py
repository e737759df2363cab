"""The data module of labelled images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from zoo.data.augment import resolve
from zoo.data.dataset import Batch, ImageDataset, squared
from zoo.data.encoded import EncodedImages
from zoo.data.info import ImageInfo
from zoo.data.loader import loader
from zoo.data.sampler import EpochSampler
from zoo.data.splits import Split, checked, digest, hold_out
from zoo.data.statistics import channel_statistics
from zoo.data.whole import whole
from zoo.errors import InputError


class ImageData(LightningDataModule):
    """Feed batches (images float32 [B, C, S, S], labels int64 [B]) of a labelled image data set.

    Args:
        splits: `train`, and if there are any `val` and `test`. Without `val`, a share of `train` is held out.
        classes: The label names.
        size: Side of the square images in pixels; None keeps the height of an array. Decoded images need it.
        channels: 1 (grey) or 3 (RGB); None keeps that of an array and decodes to RGB.
        val: That share, stratified; the same images whatever the seed.
        batch_size: Images per batch.
        num_workers: Worker processes; 0 makes batches in the training process, which is best for small arrays.
        augment: `none`, `shift`, `flip` (shift and mirror), `timm`, or `auto` (see `zoo.data.augment.resolve`).
        seed: Decides shuffling and augmentation; the splits do not depend on it.

    Attributes:
        info: What a model must know of the data; mean and std are those of the training split.

    Raises:
        InputError: A split or an option is wrong; the message names it.

    Example:
        >>> import numpy as np
        >>> pixels, labels = np.zeros((20, 4, 4), np.uint8), np.arange(20) % 2
        >>> data = ImageData({"train": Split(pixels, labels)}, ["even", "odd"], batch_size=6)
        >>> data.info.sizes
        {'train': 18, 'val': 2}
        >>> [tuple(images.shape) for images, _ in data.train_dataloader()]
        [(6, 1, 4, 4), (6, 1, 4, 4), (6, 1, 4, 4)]
    """

    info: ImageInfo
    has_split = True
    files: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        splits: Mapping[str, Split],
        classes: Sequence[str],
        *,
        size: int | None = None,
        channels: int | None = None,
        val: float = 0.1,
        batch_size: int = 64,
        num_workers: int = 0,
        augment: str = "auto",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.batch_size = whole("batch_size", batch_size, 1)
        self.num_workers = whole("num_workers", num_workers, 0)
        self.seed = whole("seed", seed, 0)
        splits = {name: checked(split, name, len(classes)) for name, split in splits.items()}
        if "train" not in splits:
            raise InputError(f"no train split among {sorted(splits)}; one is needed")
        if len(classes) < 2:
            raise InputError(f"{splits['train'].source}: one class only: nothing to tell apart")
        self.splits = hold_out(splits, "val", val)
        self.info = self._square(tuple(classes), size, channels)
        self.augment = resolve(augment, self.info)

    def _square(self, classes: tuple[str, ...], size: int | None, channels: int | None) -> ImageInfo:
        """Bring arrays to one size and gather the info."""
        sha256 = digest(self.splits, classes)
        images = self.splits["train"].images
        if not isinstance(images, EncodedImages):
            size = images.shape[1] if size is None else size
            channels = channels or (images.shape[3] if images.ndim == 4 else 1)
        size, channels = whole("size", size or 0, 1), channels or 3
        if channels not in (1, 3):
            raise InputError(f"channels={channels}: must be 1 (grey) or 3 (RGB)")
        for name, split in self.splits.items():
            if not isinstance(split.images, EncodedImages):
                self.splits[name] = replace(split, images=squared(split.images, channels, size))
        mean, std = channel_statistics(self.splits["train"].images, channels, size)
        sizes = {name: len(split) for name, split in self.splits.items()}
        return ImageInfo(in_channels=channels, image_size=size, classes=classes, mean=mean, std=std, sizes=sizes, sha256=sha256)

    @property
    def has_test(self) -> bool:
        """Whether there is a test split."""
        return "test" in self.splits

    def train_dataloader(self) -> DataLoader[Batch]:
        """Return shuffled, augmented training batches.

        A last batch of one single image is left out (unless it is the only batch or `batch_size` is 1): batch normalization
        cannot train on it. Which image that is changes with the epoch.
        """
        data = ImageDataset(self.splits["train"], self.info, self.augment, self.seed)
        lone = len(data) > self.batch_size and len(data) % self.batch_size == 1
        return self._loader(data, sampler=EpochSampler(len(data), self.seed), drop_last=lone)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Return validation batches in order."""
        return self._loader(ImageDataset(self.splits["val"], self.info))

    def test_dataloader(self) -> DataLoader[Batch]:
        """Return test batches in order.

        Raises:
            InputError: There is no test split.
        """
        if not self.has_test:
            source = self.splits["train"].source
            raise InputError(f"{source} has no test split: add one beside the training split, or validate instead")
        return self._loader(ImageDataset(self.splits["test"], self.info))

    def predict_dataloader(self) -> DataLoader[Batch]:
        """Return the test batches."""
        return self.test_dataloader()

    def _loader(self, data: ImageDataset, **options: Any) -> DataLoader[Batch]:
        return loader(data, self.batch_size, self.num_workers, self.seed, **options)
