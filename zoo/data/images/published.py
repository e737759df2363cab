"""A preset for every published set of labelled images, such as `cifar10`; see `zoo.data.images.table`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from zoo.data.images.cifar import from_datasets, read_cifar
from zoo.data.images.files import read_npz
from zoo.data.images.module import ImageData
from zoo.data.images.splits import Split, hold_out, thin
from zoo.data.images.table import SETS, Published
from zoo.data.options import options_of, whole
from zoo.data.sources import existing, from_hub, load
from zoo.data.splits import check_share
from zoo.errors import InputError


@cache
def __getattr__(name: str) -> Callable[..., ImageData]:
    """Return the preset of a set."""
    if name not in SETS:
        raise AttributeError(f"there is no published image set {name!r}; there are {', '.join(SETS)}")
    entry = SETS[name]
    made = _medmnist(entry) if entry.md5 else _cifar(entry)
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"{entry.summary} ({entry.citation}).\n\n{made.__doc__}"
    return made


def _cifar(entry: Published) -> Callable[..., ImageData]:
    @options_of(ImageData, "channels", size=32)
    def preset(
        path: str | Path | None = None, fraction: float = 1.0, limit: int | None = None, val: float = 0.1, **options: Any
    ) -> ImageData:
        """Make the data module.

        Args:
            path: A local copy: the binary version, parquet files as on the Hub, an image folder, or shards
                `train_*.npz` + `test.npz`. The pickled python version is refused. None fetches (once) from the Hub.
            fraction: Share of the training images to use; validation and test stay whole.
            limit: At most so many images of every split.
            val: Share of the training images held out for validation.
            options: See `ImageData`; no split depends on the seed.

        Raises:
            InputError: An option is wrong; or in `setup` the files are, or the Hub cannot be reached.
        """
        check_share(fraction, "fraction", whole=True)
        limit = None if limit is None else whole("limit", limit, 1)
        place = None if path is None else existing(path, entry.name)
        read = partial(_thin_cifar, entry, place, fraction, limit, check_share(val, "val"))
        return ImageData(read, entry.classes, **options)

    return preset


def _thin_cifar(entry: Published, path: Path | None, fraction: float, limit: int | None, val: float) -> dict[str, Split]:
    if path is not None:
        splits = read_cifar(entry, path)
    else:
        splits = from_datasets(load(entry.name, entry.repository, revision=entry.revision), entry, entry.repository)
    return thin(hold_out(splits, "val", val), fraction, limit)


def _medmnist(entry: Published) -> Callable[..., ImageData]:
    @options_of(ImageData, "channels", "val", augment="shift")
    def preset(path: str | Path | None = None, **options: Any) -> ImageData:
        """Make the data module, with the official splits.

        Args:
            path: A local `.npz` (also of 64, 128 or 224 pixels), or the folder that holds `<name>.npz`. None fetches it
                (once) from a mirror on the Hub and verifies MedMNIST's own MD5 sum.
            options: See `ImageData`; by default augmentation shifts by up to a sixteenth of the side.

        Raises:
            InputError: An option is wrong; or in `setup` the file is, or the Hub cannot be reached.
        """
        place = None if path is None else existing(path, entry.name)
        if place is not None and place.is_dir():
            place = existing(place / f"{entry.name}.npz", entry.name)
        return ImageData(partial(_read_medmnist, entry, place), entry.classes, **options)

    return preset


def _read_medmnist(entry: Published, path: Path | None) -> dict[str, Split]:
    return read_npz(_fetch(entry) if path is None else path)


def _fetch(entry: Published) -> Path:
    """Fetch an archive (once; then it is in the library's cache), and hold it against its published MD5 sum."""
    file = f"data/{entry.name}.npz"
    with from_hub(entry.name, entry.repository):
        import huggingface_hub

        place = huggingface_hub.hf_hub_download(entry.repository, file, repo_type="dataset", revision=entry.revision)
    with open(place, "rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != entry.md5:
        sums = f"MD5 {found}, MedMNIST says {entry.md5}"
        raise InputError(f"{entry.name}: {place} is damaged ({sums}); delete it and try again")
    return Path(place)
