"""The layouts in which CIFAR lies on disks and on the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.images.files import class_folders, read_arrays, read_folder
from zoo.data.images.splits import EncodedImages, Split
from zoo.data.images.table import Published
from zoo.errors import InputError

PIXELS = 32 * 32 * 3


def read_cifar(entry: Published, root: Path) -> dict[str, Split]:
    """Read a local copy, whichever layout it has.

    Raises:
        InputError: The layout is unknown or pickled, or a file is damaged.
    """
    if found := next(root.rglob(entry.train_files[0]), None) if root.is_dir() else None:
        return _binary(entry, found.parent)
    if shards := sorted(root.glob("train_*.npz")):
        return {"train": _shards(shards), "test": _shards([root / "test.npz"])}
    if any(root.rglob("*.parquet")):
        return _parquet(entry, root)
    if (root / "train").is_dir():
        classes = class_folders(root)
        if tuple(classes) != entry.classes:
            raise InputError(f"{root}: its {len(classes)} class folders are not the {len(entry.classes)} of {entry.name}")
        return read_folder(root)
    accepted = "the binary version (*.bin), parquet files, an image folder (train/<class>/) or train_*.npz + test.npz"
    reason = "only the pickled python version, and nothing is ever unpickled" if _pickled(root) else "no known layout"
    raise InputError(f"{entry.name}: {root} holds {reason}; accepted: a folder with {accepted}")


def _pickled(root: Path) -> bool:
    names = {"data_batch_1", "batches.meta", "meta", "cifar-10-python.tar.gz", "cifar-100-python.tar.gz"}
    return root.name in names or any(file.name in names for file in root.rglob("*"))


def _binary(entry: Published, folder: Path) -> dict[str, Split]:
    """Read records of label bytes (the last one counts) and 3 x 32 x 32 colour planes."""
    splits = {}
    for name, files in (("train", entry.train_files), ("test", (entry.test_file,))):
        records = np.concatenate([_records(folder / file, entry.label_bytes + PIXELS) for file in files])
        pixels = records[:, entry.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        splits[name] = Split(np.ascontiguousarray(pixels), records[:, entry.label_bytes - 1], str(folder))
    return splits


def _records(file: Path, length: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if not file.is_file():
        raise InputError(f"{file}: missing; the other files of the binary version are there")
    content = np.fromfile(file, np.uint8)
    if len(content) == 0 or len(content) % length:
        raise InputError(f"{file}: {len(content)} bytes are not whole records of {length}; the file is damaged")
    return content.reshape(-1, length)


def _shards(files: list[Path]) -> Split:
    """Read archives of image files laid end to end: `jpeg` (bytes), `offsets` [N + 1] and `labels` [N]."""
    items: list[Path | bytes] = []
    names: list[str] = []
    labels = []
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: missing; the training shards are there")
        found = read_arrays(file)
        if missing := {"jpeg", "offsets", "labels"} - set(found):
            raise InputError(f"{file}: no array {', '.join(sorted(missing))}; it has {', '.join(sorted(found))}")
        content, offsets = found["jpeg"].tobytes(), found["offsets"].tolist()
        if len(offsets) != len(found["labels"]) + 1 or sorted(offsets) != offsets or offsets[-1] != len(content):
            raise InputError(f"{file}: offsets do not fit jpeg and labels; the file is damaged")
        items += [content[start:end] for start, end in pairwise(offsets)]
        names += [f"{file}, image {i}" for i in range(len(offsets) - 1)]
        labels.append(found["labels"])
    return Split(EncodedImages(items, names), np.concatenate(labels), str(files[0].parent))


def _parquet(entry: Published, root: Path) -> dict[str, Split]:
    files = sorted(root.rglob("*.parquet"))
    # The Hub keeps <config>/train-00000-of-00001.parquet; its conversion branch <config>/train/0000.parquet.
    names = {file: f"{file.parent.name}/{file.name}" if file.parent != root else file.name for file in files}
    parts = {split: [str(file) for file in files if split in names[file]] for split in ("train", "test")}
    if not parts["train"] or not parts["test"]:
        raise InputError(f"{root}: parquet files of train and test are needed; found {', '.join(f.name for f in files[:5])}")
    import datasets

    try:
        loaded = datasets.load_dataset("parquet", data_files=parts)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise InputError(f"{root}: cannot read the parquet files ({error.__cause__ or error})") from error
    return from_datasets(loaded, entry, str(root))


def from_datasets(loaded: Mapping[str, Any], entry: Published, source: str) -> dict[str, Split]:
    """Take the splits of a Hugging Face `DatasetDict`, images still encoded.

    Raises:
        InputError: A split or a column is missing.
    """
    return {name: _rows(loaded, name, entry, source) for name in ("train", "test")}


def _rows(loaded: Mapping[str, Any], name: str, entry: Published, source: str) -> Split:
    if name not in loaded:
        raise InputError(f"{entry.name}: {source} has no {name} split; it has {', '.join(loaded)}")
    from datasets import Image

    table = loaded[name]
    image = next((column for column in ("img", "image") if column in table.column_names), None)
    label = next((column for column in ("fine_label", "label") if column in table.column_names), None)
    if image is None or label is None:
        raise InputError(f"{entry.name}: {source} needs columns img and label; it has {', '.join(table.column_names)}")
    items = [entry["bytes"] for entry in table.cast_column(image, Image(decode=False))[image]]
    names = [f"{source}, {name} row {i}" for i in range(len(items))]
    return Split(EncodedImages(items, names), np.array(table[label]), source)
