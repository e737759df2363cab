"""CIFAR, in the layouts of local copies and of the Hugging Face Hub."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.images.files import check_arrays, class_folders, read_arrays, read_folder
from zoo.data.images.module import ImageData
from zoo.data.images.splits import EncodedImages, Split, hold_out, thin
from zoo.data.options import DataError, OptionalPath, check_integer, check_share, options_of, resolve_path
from zoo.errors import InputError
from zoo_datasets.hub import attach_record, load


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
        label_bytes: Bytes per label in the binary version; the last one is the label.
    """

    name: str
    repository: str
    revision: str
    classes: tuple[str, ...]
    train_files: tuple[str, ...]
    test_file: str
    label_bytes: int = 1


def cifar_set(**record: Any) -> Callable[..., ImageData]:
    """Return the preset of CIFAR-10 or CIFAR-100: `preset(path=None, fraction=1.0, limit=None, val=0.1, ...)`.

    `path` is a local copy: the binary version, parquet files as on the Hub, an image folder, or shards `train_*.npz` and
    `test.npz`; the pickled python version is refused. Without, the set is downloaded from the Hub. `fraction` is the share of
    the training images to use, `limit` the maximum number of images of every split, `val` the share held out for validation.

    Args:
        record: The fields of `CifarSet`, which is the attribute `record` of the preset.
    """

    @options_of(ImageData, "channels", "test", size=32)
    def preset(
        path: OptionalPath = None, fraction: float = 1.0, limit: int | None = None, val: float = 0.1, **options: Any
    ) -> ImageData:
        record: CifarSet = preset.record  # type: ignore[attr-defined]
        check_share(fraction, "fraction", allow_one=True)
        limit = None if limit is None else check_integer("limit", limit, 1)
        root = None if path is None else resolve_path(path, record.name)
        return ImageData(partial(_read, record, root, fraction, limit, check_share(val, "val")), record.classes, **options)

    return attach_record(preset, CifarSet(**record))


def _read(record: CifarSet, path: Path | None, fraction: float, limit: int | None, val: float) -> dict[str, Split]:
    if path is not None:
        splits = read_cifar(record, path)
    else:
        splits = from_datasets(load(record.name, record.repository, revision=record.revision), record, record.repository)
    return thin(hold_out(splits, "val", val), fraction, limit)


def read_cifar(record: CifarSet, root: Path) -> dict[str, Split]:
    """Read a local copy in any layout."""
    if train_file := next(root.rglob(record.train_files[0]), None) if root.is_dir() else None:
        return _binary(record, train_file.parent)
    if shards := sorted(root.glob("train_*.npz")):
        return {"train": _shards(shards), "test": _shards([root / "test.npz"])}
    if any(root.rglob("*.parquet")):
        return _parquet(record, root)
    if (root / "train").is_dir():
        classes = class_folders(root)
        if tuple(classes) != record.classes:
            raise DataError(f"{root}: {len(classes)} class folders that are not the {len(record.classes)} of {record.name}")
        return read_folder(root)
    accepted = "the binary version (*.bin), parquet files, an image folder (train/<class>/) or train_*.npz + test.npz"
    pickles = {"data_batch_1", "batches.meta", "meta", "cifar-10-python.tar.gz", "cifar-100-python.tar.gz"}
    is_pickled = root.name in pickles or any(file.name in pickles for file in root.rglob("*"))
    reason = "contains only the pickled python version, which is not unpickled" if is_pickled else "has no known layout"
    raise DataError(f"{record.name}: {root} {reason}; use a folder with {accepted}")


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
        if not file.is_file():
            raise InputError(f"{file}: missing beside the training shards", code="missing")
        arrays = read_arrays(file)
        check_arrays(file, arrays, ("jpeg", "offsets", "labels"))
        content, offsets = arrays["jpeg"].tobytes(), arrays["offsets"].tolist()
        if len(offsets) != len(arrays["labels"]) + 1 or sorted(offsets) != offsets or offsets[-1] != len(content):
            raise InputError(f"{file}: offsets do not match jpeg and labels; the file is damaged", code="corrupt")
        items += [content[start:end] for start, end in pairwise(offsets)]
        names += [f"{file}, image {i}" for i in range(len(offsets) - 1)]
        labels.append(arrays["labels"])
    return Split(EncodedImages(items, names), np.concatenate(labels), str(files[0].parent))


def _parquet(record: CifarSet, root: Path) -> dict[str, Split]:
    files = sorted(root.rglob("*.parquet"))
    # The Hub has <config>/train-00000-of-00001.parquet, or <config>/train/0000.parquet in its conversion branch.
    names = {file: f"{file.parent.name}/{file.name}" if file.parent != root else file.name for file in files}
    parts = {split: [str(file) for file in files if split in names[file]] for split in ("train", "test")}
    if not parts["train"] or not parts["test"]:
        raise DataError(f"{root}: expected parquet files of train and test; found {', '.join(f.name for f in files[:5])}")
    import datasets

    try:
        loaded = datasets.load_dataset("parquet", data_files=parts)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"{root}: cannot read the parquet files ({error.__cause__ or error})") from error
    return from_datasets(loaded, record, str(root))


def from_datasets(loaded: Mapping[str, Any], record: CifarSet, source: str) -> dict[str, Split]:
    """Return the splits of a `datasets.DatasetDict`, with encoded images."""
    from datasets import Image

    splits = {}
    for name in ("train", "test"):
        if name not in loaded:
            raise DataError(f"{record.name}: {source} has no {name} split; it has {', '.join(loaded)}")
        table = loaded[name]
        image = next((column for column in ("img", "image") if column in table.column_names), None)
        label = next((column for column in ("fine_label", "label") if column in table.column_names), None)
        if image is None or label is None:
            raise DataError(f"{record.name}: {source} needs columns img and label; it has {', '.join(table.column_names)}")
        items = [item["bytes"] for item in table.cast_column(image, Image(decode=False))[image]]
        names = [f"{source}, {name} row {i}" for i in range(len(items))]
        splits[name] = Split(EncodedImages(items, names), np.array(table[label]), source)
    return splits
