"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from the Hugging Face Hub or from local files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from zoo.data.cifar_files import from_datasets, read_local
from zoo.data.cifar_info import CIFAR10, CIFAR100, Cifar
from zoo.data.images import ImageData
from zoo.data.sources import existing, from_hub
from zoo.data.splits import Split, check_share, hold_out, thin


def cifar10(
    path: str | Path | None = None,
    size: int = 32,
    fraction: float = 1.0,
    limit: int | None = None,
    val: float = 0.1,
    batch_size: int = 64,
    num_workers: int = 0,
    augment: str = "auto",
    seed: int = 0,
) -> ImageData:
    """CIFAR-10: 32 x 32 RGB photographs, 10 classes, 50,000 training and 10,000 test images.

    A tenth of the training images is held out for validation.

    Args:
        path: A local copy: the binary version, parquet files as on the Hub, an image folder, or shards
            `train_*.npz` + `test.npz`. The pickled python version is refused. None fetches (once) from the Hub.
        size: Side in pixels to scale to.
        fraction: Share of the training images to use; validation and test stay whole.
        limit: At most so many images of every split.
        val: Share of the training images held out for validation.
        batch_size: Images per batch.
        num_workers: Worker processes.
        augment: See `ImageData`.
        seed: Of shuffling and augmentation; no split depends on it.

    Raises:
        InputError: The files are wrong, or the Hub cannot be reached.
    """
    loader = {"size": size, "batch_size": batch_size, "num_workers": num_workers, "augment": augment, "seed": seed}
    return _load(CIFAR10, path, fraction, limit, val, **loader)


def cifar100(
    path: str | Path | None = None,
    size: int = 32,
    fraction: float = 1.0,
    limit: int | None = None,
    val: float = 0.1,
    batch_size: int = 64,
    num_workers: int = 0,
    augment: str = "auto",
    seed: int = 0,
) -> ImageData:
    """CIFAR-100: 32 x 32 RGB photographs, 100 classes (the fine labels) of 500 training and 100 test images.

    Args:
        path: See `cifar10`.
        size: See `cifar10`.
        fraction: See `cifar10`.
        limit: See `cifar10`.
        val: See `cifar10`.
        batch_size: See `cifar10`.
        num_workers: See `cifar10`.
        augment: See `cifar10`.
        seed: See `cifar10`.

    Raises:
        InputError: The files are wrong, or the Hub cannot be reached.
    """
    loader = {"size": size, "batch_size": batch_size, "num_workers": num_workers, "augment": augment, "seed": seed}
    return _load(CIFAR100, path, fraction, limit, val, **loader)


def _load(cifar: Cifar, path: str | Path | None, fraction: float, limit: int | None, val: float, **loader: Any) -> ImageData:
    """Cut the splits; `loader` is for `ImageData`."""
    check_share(val, "val")
    check_share(fraction, "fraction", whole=True)
    place = None if path is None else existing(path, cifar.name)
    return ImageData(partial(_splits, cifar, place, fraction, limit, val), cifar.classes, **loader)


def _splits(cifar: Cifar, path: Path | None, fraction: float, limit: int | None, val: float) -> dict[str, Split]:
    return thin(hold_out(_read(cifar, path), "val", val), fraction, limit)


def _read(cifar: Cifar, path: Path | None) -> dict[str, Split]:
    if path is not None:
        return read_local(cifar, path)
    with from_hub(cifar.name, cifar.repository):
        import datasets

        loaded = datasets.load_dataset(cifar.repository, revision=cifar.revision)
    return from_datasets(loaded, cifar, cifar.repository)
