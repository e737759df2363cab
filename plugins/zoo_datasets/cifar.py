"""CIFAR, from the Hugging Face Hub or from a local copy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.images.files import find_array, read_arrays
from zoo.data.images.module import ImageData
from zoo.data.images.splits import EncodedImages, Split, hold_out
from zoo.data.options import DataError, OptionalPath, check_integer, check_share, options_of, resolve_path
from zoo.data.splits import stratified
from zoo.errors import InputError
from zoo_datasets.hub import attach_record, hub_changed, load


@dataclass(frozen=True, kw_only=True)
class CifarSet:
    """CIFAR-10 or CIFAR-100.

    Attributes:
        name: Name of the preset.
        repository: The data set repository on the Hub.
        revision: The commit to read.
        classes: The label names; label i is called `classes[i]`.
        train_files: Training files of the binary version.
        test_file: Test file of the binary version.
        columns: The columns of images and labels on the Hub.
        label_bytes: Bytes per label in the binary version; the last one is the label.
    """

    name: str
    repository: str
    revision: str
    classes: tuple[str, ...]
    train_files: tuple[str, ...]
    test_file: str
    columns: tuple[str, str] = ("img", "label")
    label_bytes: int = 1


def cifar_set(**fields: Any) -> Callable[..., ImageData]:
    """Return the preset of CIFAR-10 or CIFAR-100: `preset(path=None, limit=None, val=0.1, ...)`.

    `path` is a folder with the binary version, or with shards `train_*.npz` and `test.npz`; nothing is unpickled. Without, the
    set is downloaded from the Hub. `limit` is the maximum number of images of every split, `val` the share held out for
    validation.

    Args:
        fields: The fields of `CifarSet`, which is the attribute `record` of the preset.
    """
    record = CifarSet(**fields)

    @options_of(ImageData, "channels", "test", size=32)
    def preset(path: OptionalPath = None, limit: int | None = None, val: float = 0.1, **options: Any) -> ImageData:
        limit = None if limit is None else check_integer("limit", limit, 1)
        root = None if path is None else resolve_path(path, record.name)
        return ImageData(partial(_read, record, root, limit, check_share(val, "val")), record.classes, **options)

    return attach_record(preset, record)


def _read(record: CifarSet, path: Path | None, limit: int | None, val: float) -> dict[str, Split]:
    splits = hold_out(read_hub(record) if path is None else read_copy(record, path), "val", val)
    for name, split in splits.items():
        if limit is not None and limit < len(split):
            splits[name] = split.take(np.flatnonzero(stratified(split.labels, limit)))
    return splits


def read_copy(record: CifarSet, root: Path) -> dict[str, Split]:
    """Read a local copy: the binary version or shards."""
    if train_file := next(root.rglob(record.train_files[0]), None):
        return _binary(record, train_file.parent)
    if shards := sorted(root.glob("train_*.npz")):
        return {"train": _shards(shards), "test": _shards([root / "test.npz"])}
    accepted = f"the binary version ({record.train_files[0]} ...), or train_*.npz and test.npz"
    raise DataError(f"{record.name}: {root} has none of the known files; use a folder with {accepted}")


def _binary(record: CifarSet, folder: Path) -> dict[str, Split]:
    """Read records of label bytes (the last one is the label) and 3 x 32 x 32 colour planes."""
    splits, length = {}, record.label_bytes + 32 * 32 * 3
    for name, files in (("train", record.train_files), ("test", (record.test_file,))):
        parts = []
        for file in (folder / name for name in files):
            if not file.is_file():
                raise InputError(f"{file}: missing in this binary version", code="missing")
            parts.append(np.fromfile(file, np.uint8))
            if not (size := len(parts[-1])) or size % length:
                message = f"{file}: {size} bytes, expected a multiple of {length}; the file is damaged"
                raise InputError(message, code="corrupt")
        records = np.concatenate(parts).reshape(-1, length)
        pixels = records[:, record.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        splits[name] = Split(np.ascontiguousarray(pixels), records[:, record.label_bytes - 1], str(folder))
    return splits


def _shards(files: list[Path]) -> Split:
    """Read archives of concatenated image files: `jpeg` (bytes), `offsets` [N + 1] and `labels` [N]."""
    items: list[Path | bytes] = []
    names: list[str] = []
    labels = []
    for file in files:
        arrays = read_arrays(file)
        encoded, offsets, numbers = (find_array(file, arrays, name) for name in ("jpeg", "offsets", "labels"))
        content = encoded.tobytes()
        if len(offsets) != len(numbers) + 1 or offsets[-1] != len(content):
            raise InputError(f"{file}: offsets do not match jpeg and labels; the file is damaged", code="corrupt")
        items += [content[start:end] for start, end in pairwise(offsets.tolist())]
        names += [f"{file}, image {i}" for i in range(len(numbers))]
        labels.append(numbers)
    return Split(EncodedImages(items, names), np.concatenate(labels), str(files[0].parent))


def read_hub(record: CifarSet) -> dict[str, Split]:
    """Return the splits of the Hub, with encoded images."""
    loaded: Mapping[str, Any] = load(record.name, record.repository, revision=record.revision)
    from datasets import Image

    image, label = record.columns
    splits = {}
    for name in ("train", "test"):
        table = loaded[name]
        if missing := {image, label} - {*table.column_names}:
            raise hub_changed(record.name, record.repository, f"no column {', '.join(missing)}")
        items = [item["bytes"] for item in table.cast_column(image, Image(decode=False))[image]]
        names = [f"{record.repository}, {name} row {i}" for i in range(len(items))]
        splits[name] = Split(EncodedImages(items, names), np.array(table[label]), record.repository)
    return splits
