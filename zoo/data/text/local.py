"""Labelled texts, pairs and rankings from local files."""

from functools import partial
from typing import Any

from zoo.data.options import options_of
from zoo.data.text.module import TextData
from zoo.data.text.reading import read_splits


@options_of(TextData)
def text(
    path: str,
    text: str | int = "text",
    label: str | int = "label",
    header: bool | str = "auto",
    on_bad_rows: str = "error",
    **options: Any,
) -> TextData:
    """Labelled texts from a TSV, CSV, JSONL or Parquet file, or a folder with train.* and optionally val.* and test.*.

    Args:
        path: The file or folder; files may be compressed (.gz, .xz). A single file is cut into splits, see `TextData`.
        text: Column of the text, by name or by number from 0.
        label: Column of the label.
        header: Whether the first line is a header; see `read_table`.
        on_bad_rows: `error`, or `skip` to skip broken rows, which the run counts.
        options: See `TextData`.
    """
    read = partial(read_splits, path, text=text, label=label, header=header, on_bad_rows=on_bad_rows)
    return TextData(read, "text_classification", **options)


@options_of(TextData)
def pairs(
    path: str,
    first: str | int = "first",
    second: str | int = "second",
    label: str | int = "label",
    header: bool | str = "auto",
    on_bad_rows: str = "error",
    **options: Any,
) -> TextData:
    """Labelled pairs of texts from a TSV, CSV, JSONL or Parquet file, or a folder as for `text`.

    Args:
        path: See `text`.
        first: Column of the first text, by name or by number from 0.
        second: Column of the second text.
        label: See `text`.
        header: See `text`.
        on_bad_rows: See `text`.
        options: See `TextData`.
    """
    read = partial(read_splits, path, first=first, second=second, label=label, header=header, on_bad_rows=on_bad_rows)
    return TextData(read, "pair_classification", **options)


@options_of(TextData)
def ranking(
    path: str,
    query: str | int = "query",
    answer: str | int = "answer",
    label: str | int = "label",
    group: str | int | None = None,
    header: bool | str = "auto",
    on_bad_rows: str = "error",
    **options: Any,
) -> TextData:
    """Questions and answers to rank, right ones labelled 1 and wrong ones 0, from files or a folder as for `text`.

    Args:
        path: See `text`.
        query: Column of the question, by name or by number from 0.
        answer: Column of the answer.
        label: See `text`.
        group: Column that identifies the question; by default its text.
        header: See `text`.
        on_bad_rows: See `text`.
        options: See `TextData`.
    """
    columns = {"first": query, "second": answer, "label": label, "group": query if group is None else group}
    return TextData(partial(read_splits, path, **columns, header=header, on_bad_rows=on_bad_rows), "answer_ranking", **options)
