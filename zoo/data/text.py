"""The data module of labeled texts and pairs of texts, and its presets for local files."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from zoo.data.info import TextInfo
from zoo.data.loader import Order, process_rank
from zoo.data.module import ALL_ROWS, DataModule
from zoo.data.splits import prepare_tables
from zoo.data.table import Table, TableSplits, as_read, codes, read_splits, table_digest
from zoo.data.tokenizer import Tokenizer, check_tokenizer, train_tokenizer
from zoo.data.tokens import TextDataset, bucketed
from zoo.registry import check_option, passes_options_to

__all__ = ["Table", "TextData", "TextInfo", "Tokenizer"]

Info = TypeVar("Info", bound=Any)


class TokenData(DataModule[Info]):
    """Base class of the data modules of tables of texts: reads the tables, and trains or reuses a tokenizer."""

    model_options = ("tokenizer", "vocab", "min_count", "lowercase")
    splits: dict[str, Table]
    tokenizer: Tokenizer

    def __init__(
        self,
        splits: TableSplits,
        tokenizer: str | Tokenizer,
        vocab: int,
        min_count: int,
        lowercase: bool,
        max_length: int | None,
        use_all: bool,
        *,
        ends: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._splits, self._ends, self._use_all, self._lowercase = splits, ends, use_all, lowercase
        self._max_length = check_option("max_length", int | None, max_length, f"[{1 + ends}, inf)")
        self._vocab = check_option("vocab", int, vocab, "[1, inf)")
        self._min_count = check_option("min_count", int, min_count, "[1, inf)")
        if not isinstance(tokenizer, Tokenizer):
            check_tokenizer(tokenizer, self._vocab, ends)
        self._given = tokenizer

    def read(self) -> dict[str, Table]:
        """Read the tables; with `use_all`, all rows of data without splits are in every split."""
        tables = {name: as_read(table) for name, table in (self._splits() if callable(self._splits) else self._splits).items()}
        self.source = next((table.source for table in tables.values()), self.source)
        self.has_split = len(tables) > 1
        self.skipped = sum(table.bad.count for table in tables.values() if table.bad is not None)
        if self._use_all and set(tables) == {"train"}:
            tables |= {"val": tables["train"], "test": tables["train"]}
            self.split_comment = ALL_ROWS
        return tables

    def make_tokenizer(self) -> Tokenizer:
        """Return the given tokenizer, truncating at `max_length` if that is set, or train one on the training rows."""
        if isinstance(self._given, Tokenizer):
            return self._given if self._max_length is None else self._given.shortened(self._max_length)
        texts = chain.from_iterable(self.splits["train"].texts)
        trained = train_tokenizer(self._given, texts, self._vocab, self._lowercase, self._min_count, ends=self._ends)
        return trained.limited(self._max_length, truncation=self._max_length is not None)

    def set_tokenizer(self, tokenizer: Tokenizer, longest: int) -> dict[str, Any]:
        """Set the tokenizer, limited to the longest text if it has no limit; return the fields of `TokenInfo`."""
        is_given = isinstance(self._given, Tokenizer)
        self.tokenizer = tokenizer if is_given or tokenizer.max_length is not None else tokenizer.limited(longest)
        limit = self._given.max_length if isinstance(self._given, Tokenizer) else tokenizer.max_length
        sizes = {name: len(table) for name, table in self.splits.items()}
        return {"vocab_size": tokenizer.vocab_size, "max_length": limit or longest, "sizes": sizes}


class TextData(TokenData[TextInfo]):
    """Feed batches (tokens, labels) of labeled texts; for pairs tokens is a tuple.

    Tokens are int64 [B, L], padded with 0 on the right to the longest text of the batch; labels are int64 [B]. If rows have
    questions (`Table.groups`) the data are a ranking: labels say whether an answer is right (1, 0), and batches have a third
    part, the question ids int64 [B].

    Args:
        splits: `train`, and optionally `val` and `test`; or a function that reads them. Without both, one of `folds` parts is
            the test split; without `val`, a share of `train` is held out. With `val` alone there is no test split.
        task: Spec of the task, of any package.
        classes: The labels in the order of their ids, or those of a trained model; by default sorted, whole numbers by value.
        names: Names that replace the labels; the classes then have the order of the names.
        tokenizer: `word`, `space`, `char` or `bpe`, see `train_tokenizer`; it is trained on the training split only. Or the
            `Tokenizer` of a trained model, with the model's `classes`.
        vocab: Maximum vocabulary size.
        lowercase: Whether to lowercase texts.
        min_count: Minimum count of a token; rarer ones are unknown.
        max_length: Truncate texts to this many tokens; None for the longest text of all splits.
        val: Share of the training split to hold out, stratified and independent of the seed.
        folds: Number of parts of data without splits, stratified (for ranking, whole questions).
        fold: The part to test on, from 0.
        batch_size: Examples per batch and process.
        num_workers: Worker processes that load batches.
        seed: Seed of the training order.
        use_all: Whether all rows of data without splits are validation and test rows, as for measuring on new data.

    Attributes:
        tokenizer: The tokenizer of the texts.
        splits: The rows of every split.

    Example:
        >>> from zoo.data.module import ready
        >>> texts = ["a fine day", "rain", "sun again", "more rain"]
        >>> table = Table({"text": texts * 5, "label": ["1", "0", "1", "0"] * 5})
        >>> data = ready(TextData({"train": table}, "text_classification", batch_size=5))
        >>> data.info.sizes, data.info.vocab_size, next(iter(data.test_dataloader()))[0].shape
        ({'train': 16, 'val': 2, 'test': 2}, 9, torch.Size([2, 3]))
    """

    def __init__(
        self,
        splits: TableSplits,
        task: str,
        names: Mapping[str, str] | None = None,
        *,
        classes: Sequence[str] | None = None,
        tokenizer: str | Tokenizer = "word",
        vocab: int = 30000,
        min_count: int = 1,
        lowercase: bool = True,
        max_length: int | None = None,
        val: float = 0.1,
        folds: int = 10,
        fold: int = 0,
        batch_size: int = 32,
        num_workers: int = 0,
        seed: int = 0,
        use_all: bool = False,
    ) -> None:
        options: Any = {"batch_size": batch_size, "num_workers": num_workers, "seed": seed}
        super().__init__(splits, tokenizer, vocab, min_count, lowercase, max_length, use_all, **options)
        share, count = check_option("val", float, val, "(0, 1)"), check_option("folds", int, folds, "[2, inf)")
        self._cut = share, count, check_option("fold", int, fold, f"[0, {count - 1}]")
        self.task, self._classes, self._names = task, classes, names

    def load(self) -> TextInfo:
        """Read, split and tokenize the texts."""
        is_trained = isinstance(self._given, Tokenizer)
        self.splits, classes, comment = prepare_tables(self.read(), self._classes, self._names, is_trained, *self._cut)
        self.split_comment = comment or self.split_comment
        content, tokenizer = table_digest(self.splits, classes), self.make_tokenizer()
        self._tokens = {
            name: tuple(tokenizer.encode(column, table.location) for column in table.texts)
            for name, table in self.splits.items()
        }
        longest = max(int(column.lengths.max()) for columns in self._tokens.values() for column in columns)
        train, fields = self.splits["train"], self.set_tokenizer(tokenizer, longest)
        return TextInfo(pair=len(train.texts) == 2, ranking=train.groups is not None, classes=classes, sha256=content, **fields)

    def dataset(self, split: str) -> TextDataset:
        """Return the rows of a split."""
        table, ids = self.splits[split], {name: i for i, name in enumerate(self.info.classes)}
        labels = np.array([ids[label] for label in table.labels], dtype=np.int32)
        return TextDataset(self._tokens[split], labels, None if table.groups is None else codes(table.groups))

    def order(self, data: TextDataset) -> Order:
        """Return the training order: in each step, all processes have texts of similar length."""
        return partial(bucketed, data.lengths, self.batch_size * process_rank()[1], self.seed)


@passes_options_to(TextData)
def text(
    path: str,
    text: str | int = "text",
    label: str | int = "label",
    header: bool | str = "auto",
    delimiter: str = "auto",
    on_bad_rows: str = "error",
    **options: Any,
) -> TextData:
    """Labeled texts from a TSV, CSV, JSONL or Parquet file, or a folder with train.* and optionally val.* and test.*.

    Args:
        path: The file or folder; files may be compressed (.gz, .xz). A single file is cut into splits, see `TextData`.
        text: Column of the text, by name or by number from 0.
        label: Column of the label.
        header: Whether the first line is a header; see `read_table`.
        delimiter: The character between the fields of a CSV or TSV file; see `find_delimiter`.
        on_bad_rows: `error`, or `skip` to skip broken rows, which the run counts.
        options: See `TextData`.
    """
    file = {"header": header, "delimiter": delimiter, "on_bad_rows": on_bad_rows}
    return TextData(partial(read_splits, path, text=text, label=label, **file), "text_classification", **options)


@passes_options_to(TextData)
def pairs(
    path: str,
    first: str | int = "first",
    second: str | int = "second",
    label: str | int = "label",
    header: bool | str = "auto",
    delimiter: str = "auto",
    on_bad_rows: str = "error",
    **options: Any,
) -> TextData:
    """Labeled pairs of texts from a TSV, CSV, JSONL or Parquet file, or a folder as for `text`.

    `first`, `second` and `label` are columns, by name or by number from 0; the other options are those of `text`.
    """
    columns = {"first": first, "second": second, "label": label}
    file = {"header": header, "delimiter": delimiter, "on_bad_rows": on_bad_rows}
    return TextData(partial(read_splits, path, **columns, **file), "pair_classification", **options)


@passes_options_to(TextData)
def ranking(
    path: str,
    query: str | int = "query",
    answer: str | int = "answer",
    label: str | int = "label",
    group: str | int | None = None,
    header: bool | str = "auto",
    delimiter: str = "auto",
    on_bad_rows: str = "error",
    **options: Any,
) -> TextData:
    """Questions and answers to rank, right ones labeled 1 and wrong ones 0, from files or a folder as for `text`.

    `query`, `answer`, `label` and `group` are columns, by name or by number from 0; the last one identifies the question, by
    default by its text. The other options are those of `text`.
    """
    columns = {"first": query, "second": answer, "label": label, "group": query if group is None else group}
    file = {"header": header, "delimiter": delimiter, "on_bad_rows": on_bad_rows}
    return TextData(partial(read_splits, path, **columns, **file), "answer_ranking", **options)
