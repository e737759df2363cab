"""The data module of tables of numbers and categories, and data modules of arrays in memory."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.data.columns import MAX_CATEGORIES, Column, is_frame, split_names, table_rows
from zoo.data.files import BadRows, column_names
from zoo.data.images import ImageData
from zoo.data.info import TableInfo
from zoo.data.loader import Array, BatchDataset, TensorBatches
from zoo.data.module import ALL_ROWS, DataModule
from zoo.data.options import DataError, quote_few
from zoo.data.pixels import Split
from zoo.data.splits import held_out
from zoo.data.table import Table, TableSplits, codes, collect, split_files
from zoo.errors import InputError
from zoo.registry import check_option, passes_options_to

TASKS = {"classification": "vector_classification", "regression": "regression"}
MAX_AUTO_CLASSES = 20
"""By default, whole numbers with at most this many different values are classes."""


class TableData(DataModule[TableInfo]):
    """Feed batches (x float32 [B, features], y) of a table; y is int64 [B] for classes, float32 [B, 1] for numbers.

    A numeric column is one feature, standardized with the mean and standard deviation of the training rows; missing numbers
    become the mean. A text column is a 0/1 feature for each category in the training rows; a missing or unknown category is all
    zeros. Text with more than `MAX_CATEGORIES` different values, such as names, is left out. A numeric target is standardized
    too; metrics and predictions are in its own units.

    Args:
        splits: `train`, and optionally `val` and `test`: tables with the same columns. Or a function that reads them.
        target: The column to predict.
        kind: `classification` or `regression`; `auto` classifies text, and whole numbers with at most 20 different values.
        categories: Columns to treat as categories, such as numeric codes.
        test: Share of the rows to hold out for testing if there are neither validation nor test rows.
        val: Share of the training rows to hold out for validation if there are no validation rows.
        batch_size, num_workers, seed: See `DataModule`.
        use_all: Whether all rows of data without splits are validation and test rows, as for measuring on new data.
    """

    def __init__(
        self,
        splits: TableSplits,
        target: str,
        *,
        kind: str = "auto",
        categories: str | Sequence[str] = (),
        test: float = 0.1,
        val: float = 0.1,
        batch_size: int = 32,
        num_workers: int = 0,
        seed: int = 0,
        use_all: bool = False,
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, seed=seed)
        self.use_all = use_all
        if kind not in ("auto", *TASKS):
            raise InputError(f"kind={kind!r}: use auto, {' or '.join(TASKS)}")
        self.target, self.categories = target, split_names(categories)
        self.test = check_option("test", float, test, "(0, 1)")
        self.val = check_option("val", float, val, "(0, 1)")
        self._splits, self._kind, self._left_out = splits, kind, set[str]()
        self._files: dict[str, tuple[range, Table]] = {}  # the rows of each split, and their locations
        self._rows: dict[str, Array] = {}

    @cached_property
    def columns(self) -> dict[str, Column]:
        """The columns of all rows, one split after another, read on first access."""
        tables = self._splits() if callable(self._splits) else self._splits
        train = tables["train"]
        self.source = train.source
        for name in (self.target, *self.categories):
            if name not in train.columns:
                message = f"{self.source}: no column {name!r}; the table has {quote_few(train.columns)}"
                if len(train.columns) == 1:
                    message += "; check the delimiter"
                raise InputError(message, code="missing")
        if not len(train):
            raise DataError(f"{self.source}: no rows; expected at least one besides the header")
        if len(train.columns) == 1:
            raise DataError(f"{self.source}: {self.target!r} is the only column; add columns to predict it from")
        columns = {}
        for name in train.columns:
            cells = (table.columns[name] for table in tables.values())
            columns[name] = Column.of(name, *cells, has_categories=name in (self.target, *self.categories))
        start = 0
        for name, table in tables.items():
            self._files[name] = range(start, start + len(table)), replace(table, columns={})
            start += len(table)
        self._splits = {}  # the cells take several times the memory of the columns
        return columns

    @property
    def kind(self) -> str:
        """`classification` or `regression`; for `auto` the table is read."""
        if self._kind == "auto":
            column = self.columns[self.target]
            is_whole = all(number.is_integer() for number in column.numbers.tolist() if number == number)
            has_few_values = len(column.categories) <= MAX_AUTO_CLASSES
            self._kind = "classification" if not column.is_number or (is_whole and has_few_values) else "regression"
        return self._kind

    @property
    def task(self) -> str:  # type: ignore[override]
        """The spec of the task."""
        return TASKS[self.kind]

    def load(self) -> TableInfo:
        """Read and split the rows, and fit their encoding to the training rows."""
        self._check_categories()
        self._rows = self._split(self._usable())
        train = self._rows["train"]
        features: list[tuple[str, str | None, float, float]] = []
        for column in self._inputs():
            features += self._features(column, train)
        columns, values, mean, std = zip(*features, strict=True)
        sizes = {name: len(rows) for name, rows in self._rows.items()}
        fields = {"columns": columns, "values": values, "mean": mean, "std": std, **self._target_fields(train)}
        info = TableInfo(in_features=len(features), target=self.target, sizes=sizes, **fields)
        return replace(info, sha256=_digest(info, {name: self._encode(info, rows) for name, rows in self._rows.items()}))

    @property
    def splits(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Features and targets of every split, encoded as in `info`, which may be that of a trained model."""
        return {name: self._encode(self.info, rows) for name, rows in self._rows.items()}

    def dataset(self, split: str) -> BatchDataset[Any]:
        """Return the rows of a split."""
        return TensorBatches(*self._encode(self.info, self._rows[split]))

    def _encode(self, info: TableInfo, rows: Array) -> tuple[Tensor, Tensor]:
        """Return features float32 [N, in_features] and targets of these rows."""
        x = np.empty((len(rows), info.in_features), dtype=np.float32)
        for i, (name, value) in enumerate(zip(info.columns, info.values, strict=True)):
            if name not in self.columns:
                raise InputError(f"{self.source}: no column {name!r}, which the model requires", code="mismatch")
            column = self.columns[name]
            if value is None:
                self._check_numbers(column, rows)
                x[:, i] = np.nan_to_num((column.numbers[rows] - info.mean[i]) / info.std[i])
            else:
                x[:, i] = column.category_texts()[rows] == value
        target = self.columns[self.target]
        if info.classes:
            ids = {name: i for i, name in enumerate(info.classes)}
            return torch.from_numpy(x), torch.tensor([ids.get(text, -1) for text in target.category_texts()[rows]])
        self._check_numbers(target, rows)
        numbers = (target.numbers[rows] - info.target_mean) / info.target_std
        return torch.from_numpy(x), torch.from_numpy(numbers.astype(np.float32)[:, None])

    def _check_numbers(self, column: Column, rows: Array) -> None:
        """Raise `DataError` for a word in a column of numbers, which other data than those of a trained model may have."""
        if len(wrong := rows[column.words[rows]]):
            word = column.category_texts()[wrong[0]]
            raise DataError(f"{self.source}: column {column.name!r} is numeric in training, but contains {word!r:.40}")

    def _is_category(self, column: Column) -> bool:
        if column.name == self.target:
            return self.kind == "classification"
        return column.name in self.categories or not column.is_number

    def _inputs(self) -> list[Column]:
        """Return the columns to predict from."""
        return [column for name, column in self.columns.items() if name != self.target and name not in self._left_out]

    def _check_categories(self) -> None:
        """Leave out names and row numbers, and note columns that are probably not meant as they are read."""
        for name, column in self.columns.items():
            self._check_column(name, column, len(column.categories))
        if not self._inputs():
            raise DataError(f"{self.source}: no column is left to predict {self.target!r} from; {'; '.join(self.notes)}")

    def _check_column(self, name: str, column: Column, count: int) -> None:
        has_categories, is_given = self._is_category(column), name == self.target or name in self.categories
        example = f", such as {quote_few(sorted(column.categories), 3)}"
        note, drop = f"{self.source}: column {name!r} ", f"drop={name} leaves it out"
        if has_categories and count > MAX_CATEGORIES:
            text = f"{note}has {count:,} different values{example}"
            if is_given or np.isfinite(column.numbers).sum() > column.words.sum():
                raise DataError(f"{text}; at most {MAX_CATEGORIES} can be categories")
            self._left_out.add(name)
            self.notes.append(f"{text}, and is left out")
        elif has_categories and not is_given and column.looks_like:
            self.notes.append(f"{note}holds {column.looks_like}{example}, which are read as {count} categories; {drop}")
        elif not has_categories and not is_given and column.is_row_number:
            if column.is_index:
                self._left_out.add(name)
                self.notes.append(f"{note}numbers the rows, and is left out")
            else:
                self.notes.append(f"{note}numbers the rows, and is read as a feature; {drop}")

    def _usable(self) -> dict[str, Array]:
        """Report the broken rows of each file, unless they are skipped; return the other rows of each split."""
        problems, usable = self._problems(), {}
        for name, (rows, table) in self._files.items():
            bad = table.bad or BadRows(Path(table.source), "skip")
            for row in sorted(problems):
                if row in rows:
                    bad.add(table.location(row - rows.start), problems[row])
            bad.finish()
            self.skipped += bad.count
            usable[name] = np.setdiff1d(rows, [*problems])
        return usable

    def _problems(self) -> dict[int, str]:
        problems: dict[int, str] = {}
        for column in (*self._inputs(), self.columns[self.target]):
            if not self._is_category(column):
                message = f"column {column.name!r} is numeric, but contains text or infinity"
                problems |= dict.fromkeys(np.flatnonzero(column.words).tolist(), message)
        target = self.columns[self.target]
        missing = np.isnan(target.numbers) if self.kind == "regression" else target.category_texts() == ""
        for row in np.flatnonzero(missing).tolist():
            problems.setdefault(row, f"missing value in the target column {self.target!r}")
        return problems

    def _split(self, rows: dict[str, Array]) -> dict[str, Array]:
        """Return the rows of every split; missing splits are cut from the training rows."""
        for name, usable in rows.items():
            if not len(usable):
                raise DataError(f"{self.source}: no usable rows in the {name} split")
        if self.use_all and set(rows) == {"train"}:
            self.split_comment = ALL_ROWS
            rows |= dict.fromkeys(("val", "test"), rows["train"])
        shares = {"test": self.test, "val": self.val} if len(rows) == 1 else {"val": self.val}
        missing = {name: share for name, share in shares.items() if name not in rows}
        classes = codes(self.columns[self.target].category_texts()) if self.kind == "classification" else None
        for name, share in missing.items():
            train = rows["train"]
            labels = np.zeros(len(train), np.int64) if classes is None else classes[train]
            held = held_out(labels, name, share, self.source)
            rows |= {"train": train[~held], name: train[held]}
        if missing:
            self.split_comment = f"{' and '.join(missing)} held out of train"
        return {name: rows[name] for name in ("train", "val", "test") if name in rows}

    def _features(self, column: Column, train: Array) -> list[tuple[str, str | None, float, float]]:
        """Return the features of a column: name, category (None for a number), mean and standard deviation."""
        if not self._is_category(column):
            return [(column.name, None, *_moments(column.numbers[train]))]
        return [(column.name, name, 0.0, 1.0) for name in sorted({*column.category_texts()[train]} - {""})]

    def _target_fields(self, train: Array) -> dict[str, Any]:
        column = self.columns[self.target]
        if self.kind == "regression":
            mean, std = _moments(column.numbers[train])
            return {"out_features": 1, "target_mean": mean, "target_std": std}
        if not self.use_all and len({*column.category_texts()[train]}) < 2:
            raise DataError(f"{self.source}: the training rows have one value of {self.target!r} only; expected at least two")
        classes = sorted(column.categories, key=str if column.words.any() else lambda name: (float(name), name))
        return {"out_features": len(classes), "classes": tuple(classes)}


def _moments(numbers: Array) -> tuple[float, float]:
    """Return mean and standard deviation without missing numbers; 0 and 1 if there are none, and 1 for a constant column."""
    numbers = numbers[~np.isnan(numbers)]
    if not len(numbers):
        return 0.0, 1.0
    if numbers.min() == numbers.max():  # the computed deviation of equal numbers may be 1e-17
        return float(numbers[0]), 1.0
    return float(numbers.mean()), float(numbers.std()) or 1.0


def _digest(info: TableInfo, splits: dict[str, tuple[Tensor, Tensor]]) -> str:
    sha = hashlib.sha256(repr((info.columns, info.values, info.target, info.classes)).encode())
    for name in sorted(splits):
        sha.update(name.encode())
        for part in splits[name]:
            sha.update(np.ascontiguousarray(part.numpy()).data)
    return sha.hexdigest()


@passes_options_to(TableData)
def table(
    path: str | Path,
    target: str,
    drop: str | Sequence[str] = (),
    delimiter: str = "auto",
    on_bad_rows: str = "error",
    **options: Any,
) -> TableData:
    """Numbers and categories from a CSV, TSV, JSONL or Parquet file, or a folder with train.* and optionally val.*, test.*.

    Files may be compressed (.gz, .xz); their first line is a header. `target` is the column to predict from all others, except
    those to `drop`, such as row numbers. For `delimiter` see `find_delimiter`; in a file with semicolons a comma in a number is
    a decimal comma. With `on_bad_rows=skip` broken rows are skipped, and the run counts them.
    """

    def read() -> dict[str, Table]:
        files, dropped = split_files("table", path), split_names(drop)
        names = column_names(train := files["train"], delimiter)
        if unknown := [name for name in dropped if name not in names]:
            raise InputError(f"{train}: drop: no column {unknown[0]!r}; the file has {quote_few(names)}", code="missing")
        kept = [name for name in dict.fromkeys(names) if name not in dropped]
        return {
            split: collect(table_rows(file, kept, delimiter), kept, BadRows(file, on_bad_rows)) for split, file in files.items()
        }

    return TableData(read, target, **options)


SOURCE = "the arrays"


def from_arrays(x: Any, y: Any, **options: Any) -> ImageData | TableData:
    """Make a data module of inputs and targets; a tenth of the rows is held out for testing, then a tenth for validation.

    Args:
        x: Images, uint8 or floats in [0, 1] (rounded to 8 bits), [N, H, W], [N, H, W, C] or [N, C, H, W] with C = 1 or 3; or
            vectors of numbers, [N, features]. Arrays, tensors or lists. Or a DataFrame of pandas, which keeps its column names.
        y: A label for each image; a label or a number for each vector or row, [N].
        options: ``batch_size``, ``num_workers`` and ``seed``.
    """
    frame = {str(name): cells for name, cells in x.to_dict("list").items()} if is_frame(x) else None
    target = str(getattr(y, "name", None) or "y")
    x, y = (values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values) for values in (x, y))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or x.ndim not in (2, 3, 4) or len(x) != len(y) or (frame is None and x.dtype.kind not in "biuf"):
        given = f"X of type {x.dtype} and shape {list(x.shape)}, y of shape {list(y.shape)}"
        use = "use images [N, H, W], [N, H, W, C] or [N, C, H, W], or vectors [N, features], and one target per row"
        raise InputError(f"data=(X, y): {given}; {use}")
    if x.ndim > 2:
        if missing := [row for row, label in enumerate(y.tolist()) if label is None or label != label]:
            raise DataError(f"data=(X, y): image {missing[0]} has no label; leave it out")
        classes, labels = np.unique(y, return_inverse=True)
        return ImageData({"train": Split(_pixels(x), labels, SOURCE)}, [str(name) for name in classes], test=0.1, **options)
    columns = frame or {f"x{i}": x[:, i] for i in range(x.shape[1])}
    if target in columns:
        raise InputError(f"data=(X, y): X has a column {target!r} like the targets; drop it, or rename y", code="conflict")
    return TableData({"train": Table({**columns, target: y}, SOURCE)}, target, **options)


def _pixels(x: Array) -> Array:
    """Return images as uint8 [N, H, W] or [N, H, W, C]."""
    if x.ndim == 4 and x.shape[-1] not in (1, 3):
        x = np.moveaxis(x, 1, -1)
    if x.dtype.kind == "f" and x.min(initial=0) >= 0 and x.max(initial=0) <= 1:
        x = np.rint(x * 255).astype(np.uint8)
    if x.dtype != np.uint8:
        given = f"images of type {x.dtype} from {x.min(initial=0):.3g} to {x.max(initial=0):.3g}"
        raise InputError(f"data=(X, y): {given}; use uint8, or floats in [0, 1]")
    return np.ascontiguousarray(x)
