"""The data module of labelled texts and pairs of texts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar, overload

import numpy as np

from zoo.data.info import TextInfo
from zoo.data.loader import Order, process_rank
from zoo.data.module import DataModule
from zoo.data.options import Preset, check_share, options_of, whole
from zoo.data.text.splits import prepared, question_numbers
from zoo.data.text.table import Table, digest
from zoo.data.text.tokenizer import Tokenizer, check_tokenizer, train_tokenizer
from zoo.data.text.tokens import TextDataset, bucketed
from zoo.errors import InputError

Splits = Mapping[str, Table] | Callable[[], Mapping[str, Table]]  # tables by split, or a function that reads them
Info = TypeVar("Info", bound=Any)


class TokenData(DataModule[Info]):
    """Base of the data modules of tables of texts: what reads the tables and learns, or is given, the tokenizer."""

    model_options = ("tokenizer", "vocab", "min_count", "lowercase")
    splits: dict[str, Table]
    tokenizer: Tokenizer

    def __init__(
        self,
        splits: Splits,
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
        self._length = None if max_length is None else whole("max_length", max_length, 1 + ends)
        self._vocab, self._min_count = whole("vocab", vocab, 1), whole("min_count", min_count, 1)
        if not isinstance(tokenizer, Tokenizer):
            check_tokenizer(tokenizer, self._vocab, ends)
        self._given = tokenizer

    def read(self) -> dict[str, Table]:
        """Read the tables; note whether they come with splits, and use all rows for each if that was asked for."""
        tables = dict(self._splits() if callable(self._splits) else self._splits)
        self.source = next((table.source for table in tables.values()), self.source)
        self.has_split = len(tables) > 1
        self.skipped = sum(table.skipped for table in tables.values())
        if self._use_all and set(tables) == {"train"}:
            tables |= {"val": tables["train"], "test": tables["train"]}
            self.split_comment = "all rows of a set without splits"
        return tables

    def learn(self) -> Tokenizer:
        """Return the tokenizer of a trained model, shortened if a length is given, or one learnt from the training rows."""
        if isinstance(self._given, Tokenizer):
            return self._given if self._length is None else self._given.shortened(self._length)
        texts = chain.from_iterable(self.splits["train"].texts)
        learnt = train_tokenizer(self._given, texts, self._vocab, self._lowercase, self._min_count, ends=self._ends)
        return learnt.limited(self._length, truncation=self._length is not None)

    def limit(self, tokenizer: Tokenizer, longest: int) -> dict[str, Any]:
        """Keep the tokenizer, limited to the longest text unless it is limited already, and return what infos say of it."""
        trained = isinstance(self._given, Tokenizer)
        self.tokenizer = tokenizer if trained or tokenizer.max_length is not None else tokenizer.limited(longest)
        limit = self._given.max_length if isinstance(self._given, Tokenizer) else tokenizer.max_length
        sizes = {name: len(table) for name, table in self.splits.items()}
        return {"vocab_size": tokenizer.vocab_size, "max_length": limit or longest, "sizes": sizes}

    @property
    def files(self) -> dict[str, str]:
        """The text of every file to store beside a model, by name."""
        return {self.info.tokenizer: self.tokenizer.to_json()}


class TextData(TokenData[TextInfo]):
    """Feed batches (tokens, labels) of labelled texts; for pairs tokens is a tuple.

    Tokens are int64 [B, L], padded with 0 on the right to the longest text of the batch; labels int64 [B]. Rows that say which
    question they answer (`Table.groups`) are a ranking: labels say whether an answer is right (1, 0), and batches have a third
    part, the question numbers int64 [B]. Tables and tokens of more than 8 MiB stay in mapped files of the user's cache.

    Args:
        splits: `train`, and if there are any `val` and `test`; or a function that reads them. Without both, one of `folds`
            parts is the test split; without `val` alone, a share of `train` is held out. With `val` alone there is no test.
        task: Spec of the task that they are for, of any package.
        classes: The labels in their order, or those of a trained model; by default sorted, by value if they are whole numbers.
        names: The names shown in place of labels; the classes then have the order of the names.
        tokenizer: `word`, `space`, `char` or `bpe`, see `train_tokenizer`: it learns from the training split only. Or the
            `Tokenizer` of a trained model: then nothing is learnt from these texts, and `classes` are those of the model.
        vocab: Tokens at most.
        lowercase: Whether capitals are made small.
        min_count: Tokens that occur less often are unknown.
        max_length: Tokens that a text is cut to; None reads the longest text of all splits whole.
        val: Share of the training split to hold out, stratified; the same rows whatever the seed.
        folds: Parts of a set without splits, stratified (whole questions for ranking).
        fold: The part to test on, from 0 on.
        batch_size: Examples per batch and process.
        num_workers: Worker processes that load batches.
        seed: Seed of the training order.
        use_all: Whether all rows of a set without splits are validation and test rows: what measuring on new data means.

    Attributes:
        tokenizer: What turned the texts into tokens.
        splits: The rows of every split.

    Example:
        >>> from zoo.data.module import ready
        >>> table = Table((["a fine day", "rain", "sun again", "more rain"] * 5,), ["1", "0", "1", "0"] * 5)
        >>> data = ready(TextData({"train": table}, "text_classification", batch_size=5))
        >>> data.info.sizes, data.info.vocab_size, next(iter(data.test_dataloader()))[0].shape
        ({'train': 16, 'val': 2, 'test': 2}, 9, torch.Size([2, 3]))
    """

    def __init__(
        self,
        splits: Splits,
        task: str,
        *,
        classes: Sequence[str] | None = None,
        names: Mapping[str, str] | None = None,
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
        cut = check_share(val, "val"), whole("folds", folds, 2), whole("fold", fold, 0, folds - 1)
        if classes is not None and (isinstance(classes, str) or not all(isinstance(name, str) for name in classes)):
            raise InputError(f"classes={classes!r}: give a list of labels")
        self.task, self._classes, self._names, self._cut = task, classes, names, cut

    def load(self) -> TextInfo:
        """Read, split and tokenise the texts."""
        trained = isinstance(self._given, Tokenizer)
        self.splits, classes, cut = prepared(self.read(), self._classes, self._names, trained, *self._cut)
        self.split_comment = cut or self.split_comment
        content, tokenizer = digest(self.splits, classes), self.learn()
        self._tokens = {
            name: tuple(
                tokenizer.encode_column(column, table.location, f"{content} {name} {number}")
                for number, column in enumerate(table.texts)
            )
            for name, table in self.splits.items()
        }
        longest = max(int(column.lengths.max()) for columns in self._tokens.values() for column in columns)
        train = self.splits["train"]
        facts = self.limit(tokenizer, longest)
        return TextInfo(pair=len(train.texts) == 2, ranking=train.groups is not None, classes=classes, sha256=content, **facts)

    def dataset(self, split: str) -> TextDataset:
        """Return the rows of a split."""
        table, number = self.splits[split], {name: i for i, name in enumerate(self.info.classes)}
        labels = np.array([number.get(name, -1) for name in table.labels.names], dtype=np.int32)[table.labels.codes]
        groups = None if table.groups is None else question_numbers(table)
        return TextDataset(self._tokens[split], labels, groups)

    def order(self, data: TextDataset) -> Order:
        """Return the training order: texts of similar length in one step of all processes, steps in random order."""
        return partial(bucketed, data.lengths, self.batch_size * process_rank()[1], self.seed)


@overload
def text_options(preset: Preset) -> Preset: ...
@overload
def text_options(**defaults: Any) -> Callable[[Preset], Preset]: ...
def text_options(preset: Preset | None = None, **defaults: Any) -> Preset | Callable[[Preset], Preset]:
    """Show the options of `TextData` in the signature of a preset, in place of its ``**options``; see `options_of`.

    Args:
        preset: The function, if the decorator is used without parentheses.
        defaults: Other defaults of this preset.
    """
    shown = options_of(TextData, **defaults)
    return shown if preset is None else shown(preset)
