"""Tables of texts, labels and numbers that know the location of every row, and how they are read from files."""

import hashlib
import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from zoo.data.files import ENDINGS, BadRows, ColumnKey, Row, column_names, iter_rows, location, read_lines
from zoo.data.loader import Array, Mask
from zoo.data.options import DataError, find_file, quote_few, resolve_path
from zoo.data.tokens import RaggedFile, Texts
from zoo.errors import InputError


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length by name, and the location of every row.

    Attributes:
        columns: For text tasks `text`, or `first` and `second` of a pair; `label`, as written in the file; and `group`, the
            question of every row if its answers are to be ranked. For numbers and categories any columns, also arrays.
        source: Name of the file or data set for error messages.
        lines: The line of every row in `source`, from 1; the number of the row in a Parquet file.
        files: The files of the two columns of parallel text, one text per line.
        bad: The broken rows of the file, which are not in the table.
        rows: The index of every row in `source`, from 0, if rows were removed; else None.

    Example:
        >>> table = Table({"text": ["good", "bad", "fine"], "label": ["1", "0", "1"]}, source="reviews")
        >>> table.take([2, 0]).location(0), table.take([2, 0]).labels
        ('reviews, row 3', ['1', '1'])
    """

    columns: Mapping[str, Sequence[Any]]
    source: str = "the data"
    lines: Sequence[int] | Array | None = None
    files: tuple[str, str] | None = None
    bad: BadRows | None = None
    rows: Array | None = None

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column) != len(self):
                raise DataError(f"{self.source}: column {name!r} has {len(column)} values, but the first has {len(self)}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def texts(self) -> tuple[Sequence[str], ...]:
        """The columns of text, one, or two for pairs."""
        return tuple(self.columns[name] for name in ("text", "first", "second") if name in self.columns)

    @property
    def labels(self) -> Sequence[str]:
        """The label of every row; empty for pairs to translate."""
        return self.columns.get("label", ())

    @property
    def groups(self) -> Sequence[str] | None:
        """The question of every row, if its answers are to be ranked."""
        return self.columns.get("group")

    def location(self, row: int, side: int = 0) -> str:
        """Return where a row comes from: FILE:LINE (of parallel files, that of a side), or the source and the row number."""
        number = 1 + (row if self.rows is None else int(self.rows[row]))
        if self.files is not None:
            return f"{self.files[side]}:{number}"
        return f"{self.source}, row {number}" if self.lines is None else location(self.source, self.lines[row])

    def take(self, rows: Sequence[int] | Array) -> Self:
        """Return some rows; they keep their locations."""
        index = np.asarray(rows, dtype=np.int32)

        def take(column: Sequence[str]) -> Sequence[str]:
            return column.take(index) if isinstance(column, Texts) else [column[row] for row in index.tolist()]

        return replace(
            self,
            columns={name: take(column) for name, column in self.columns.items()},
            lines=None if self.lines is None else np.asarray(self.lines)[index],
            rows=index if self.rows is None else self.rows[index],
        )

    def where(self, keep: Mask | Sequence[bool]) -> Self:
        """Return the rows of a mask."""
        return self if np.all(keep) else self.take(np.flatnonzero(keep))


TableSplits = Mapping[str, Table] | Callable[[], Mapping[str, Table]]
"""Tables by split, or a function that reads them."""


def codes(values: Sequence[object] | Array) -> Array:
    """Number the values of a column in order of first appearance, int32 [N]."""
    known: dict[Any, int] = {}
    return np.fromiter((known.setdefault(value, len(known)) for value in values), np.int32, len(values))


def table_digest(tables: Mapping[str, Table], classes: Sequence[str] | None = None) -> str:
    """Return the SHA-256 of split names and texts, and if there are classes of these, the labels and the groups."""
    sha = hashlib.sha256(b"" if classes is None else repr(tuple(classes)).encode())
    for name, table in sorted(tables.items()):
        others = () if classes is None else (table.labels, table.groups or ())
        for column in (*table.texts, *others):
            sha.update(f"{name} {len(column)}".encode())
            sha.update(np.fromiter((len(text.encode()) for text in column), "<i8", len(column)).tobytes())
            for text in column:
                sha.update(text.encode())
    return sha.hexdigest()


SPLITS = {"train": ("train", "training"), "val": ("val", "dev", "valid", "validation"), "test": ("test", "testing")}
"""Names of the files (without extensions) and folders of the splits."""

LABEL_WORDS = {"label", "labels", "class", "category", "target"}
"""The first line is a header if the label column starts with one of these words."""


def read_table(
    path: str | Path,
    *,
    text: ColumnKey | None = None,
    first: ColumnKey | None = None,
    second: ColumnKey | None = None,
    label: ColumnKey = "label",
    group: ColumnKey | None = None,
    header: bool | str = "auto",
    delimiter: str = "auto",
    on_bad_rows: str = "error",
) -> Table:
    """Read a file of labeled texts or pairs.

    Columns are given by name, or by number from 0: `text`, or `first` and `second` of a pair, `label`, and `group`, which
    identifies the question of a ranking. The file extension is the format: .tsv (quotes are plain characters, only a line feed
    ends a line), .csv, .jsonl (one object per line) or .parquet; .gz and .xz are decompressed. `header=auto`: the first line
    of a TSV or CSV file is a header if a column is given by name, or if its label column starts with a word such as "label".
    For `delimiter` see `find_delimiter`. `on_bad_rows` is `error`, or `skip` to skip broken rows, which `Table.bad` counts.
    """
    if not isinstance(header, bool) and header != "auto":
        raise InputError(f"header={header!r}: use true, false or auto")
    file = resolve_path(path, "data file")
    columns = {"text": text, "first": first, "second": second, "label": label, "group": group}
    keys = {name: key for name, key in columns.items() if key is not None}
    texts = [name for name in keys if name not in ("label", "group")]
    same = next((name for name in texts if keys[name] == group), None)  # the question is the group
    if same is not None:
        del keys["group"]
    if header == "auto":
        is_named = any(isinstance(key, str) for key in keys.values())
        header = is_named or dict(enumerate(column_names(file, delimiter))).get(int(label), "").lower() in LABEL_WORDS
    hint = "; give the names of the columns, or their numbers from 0, and if necessary the delimiter in the data spec"
    rows = _checked(iter_rows(file, [*keys.values()], bool(header), hint, delimiter), [*keys.values()], len(texts))
    bad = BadRows(file, on_bad_rows)
    table = collect(rows, keys, bad, texts)
    bad.finish()
    if not len(table):
        raise DataError(f"{file}: no rows; expected at least one besides a header")
    return table if same is None else replace(table, columns={**table.columns, "group": table.columns[same]})


def collect(rows: Iterable[Row], names: Iterable[str], bad: BadRows, texts: Collection[str] = ()) -> Table:
    """Collect the rows of a file in a table; `texts` are the names of the columns with texts as bytes."""
    columns: dict[str, Any] = {name: RaggedFile() if name in texts else [] for name in names}
    lines = array("i")
    for row in rows:
        if row.problem:
            bad.add(location(bad.path, row.line), row.problem)
            continue
        for column, cell in zip(columns.values(), row.values, strict=True):
            column.append(cell)
        lines.append(row.line)
    columns |= {name: Texts(*columns[name].mapped("u1")) for name in texts}
    return Table(columns, str(bad.path), lines, bad=bad)


def _checked(rows: Iterable[Row], keys: Sequence[ColumnKey], num_texts: int) -> Iterator[Row]:
    """Yield rows with their texts as bytes and their labels as text, or with a problem."""
    for row in rows:
        cells = [*row.values[:num_texts], *map(_label_text, row.values[num_texts:])]
        problem = row.problem or next(filter(None, map(_problem, cells, keys)), "")
        yield Row(row.line, [] if problem else [*map(str.encode, cells[:num_texts]), *cells[num_texts:]], problem)


def _label_text(value: object) -> Any:
    """Return a label or group as text if it is text, a whole number, true or false."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (str, int)):
        return sys.intern(str(value).lower() if isinstance(value, bool) else str(value).strip())
    return value


def _problem(value: object, column: ColumnKey) -> str:
    """Return why a cell is broken, if it is."""
    if not isinstance(value, str):
        return f"column {column!r} is {'missing' if value is None else f'{value!r:.40}'}; expected text"
    if not value.strip():
        return f"column {column!r} is empty; fill it, or remove the row"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return f"column {column!r} contains a lone surrogate; save it as UTF-8"
    return ""


def as_read(table: Table) -> Table:
    """Return a table of texts from Python as it would be read from a file: its labels and groups are text.

    Arrays and Series become lists. `DataError` names the first row with a cell that is empty or not text.
    """
    columns: dict[str, Any] = {}
    for name, column in table.columns.items():
        cells = column.tolist() if hasattr(column, "tolist") else column
        columns[name] = [*map(_label_text, cells)] if name in ("label", "group") else cells
        if name in ("text", "first", "second", "label", "group") and not isinstance(cells, Texts):  # checked when read
            for row, cell in enumerate(columns[name]):
                if problem := _problem(cell, name):
                    raise DataError(f"{table.location(row)}: {problem}")
    return replace(table, columns=columns)


def read_splits(path: str | Path, **columns: Any) -> dict[str, Table]:
    """Read the table of every split, see `split_files`."""
    return {split: read_table(file, **columns) for split, file in split_files("data", path).items()}


def split_files(
    preset: str,
    path: str | Path,
    endings: Sequence[str] = ENDINGS,
    names: Mapping[str, Sequence[str]] = {},
    trained: Sequence[str] = ("train",),
) -> dict[str, Path]:
    """Return the files of the splits in a folder; a single file is the training split.

    `names` are further file names of each split without `endings`, which have precedence over those in `SPLITS`. The folder
    must have one of the splits in `trained`.
    """
    root = resolve_path(path, preset)
    if root.is_file():
        return {"train": root}
    files = {}
    for split, general in SPLITS.items():
        for stems in (names.get(split, ()), general):
            if file := find_file(preset, root, [f"{stem}{ending}" for stem in stems for ending in endings]):
                files[split] = file
                break
    if not any(split in files for split in trained):
        example = f"{(*names.get('train', ()), *SPLITS['train'])[0]}{endings[0]}"
        existing = sorted(file.name for file in root.iterdir())
        raise InputError(
            f"{preset}: {root} has no file {example}; the folder has {quote_few(existing) or 'nothing'}", code="missing"
        )
    return files


def read_pairs(*paths: str | Path) -> Table:
    """Read two parallel files of UTF-8 lines, plain or compressed; only a line feed ends a line."""
    source, target = (resolve_path(path, "parallel") for path in paths)
    if source.samefile(target):
        raise InputError(f"{source}: source and target are the same file; use two files", code="conflict")
    lines = ((line.removesuffix("\n").removesuffix("\r") for line in read_lines(path)) for path in (source, target))
    first, second = map(Texts.of, lines)
    if len(first) != len(second):
        lengths = f"{source}: {len(first)} lines, but {target}: {len(second)}"
        raise DataError(f"{lengths}; line i of one must be the translation of line i of the other")
    table = Table({"first": first, "second": second}, str(source), files=(str(source), str(target)))
    for side, column in enumerate(table.texts):
        for row, text in enumerate(column):
            if not text.strip():
                raise DataError(f"{table.location(row, side)}: an empty line; fill it, or remove it from both files")
    return table
