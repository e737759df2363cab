"""The data module of labelled texts and pairs of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from zoo.data.info import TextInfo
from zoo.data.loader import loader
from zoo.data.options import whole
from zoo.data.text.buckets import BucketSampler
from zoo.data.text.dataset import Batch, TextDataset
from zoo.data.text.encoding import encode, fitted, shortened
from zoo.data.text.labels import RELEVANCE, RELEVANCE_NAMES, check_answers, class_names, model_classes, named, numbers
from zoo.data.text.splits import codes, digest, questions, split
from zoo.data.text.table import Table, check_columns
from zoo.data.text.tokenizer import Tokenizer, train_tokenizer
from zoo.errors import InputError


class TextData(LightningDataModule):
    """Feed batches (tokens, labels) of labelled texts; for pairs tokens is a tuple, and ranking adds question numbers.

    Tokens are int64 [B, L], padded with 0 on the right to the longest text of the batch; labels and questions int64 [B].

    Args:
        splits: `train`, and if there are any `val` and `test`. Without both, one of `folds` parts is the test split; without
            `val` alone, a share of `train` is held out. With `val` alone there is no test.
        task: `text_classification`, `pair_classification` or `answer_ranking`.
        classes: The labels in their order, or those of a trained model; by default sorted, by value if they are whole
            numbers.
        names: What people see in place of a label; the classes then have the order of the names.
        tokenizer: `word`, `space`, `char` or `bpe`, see `train_tokenizer`: it learns from the training split only. Or the
            `Tokenizer` of a trained model: then nothing is learnt from these texts, and `classes` are those of the model.
        vocab: Tokens at most.
        min_count: Tokens that occur less often are unknown.
        lowercase: Whether capitals are made small.
        max_length: Tokens that a text is cut to; None reads the longest text of all splits whole.
        val: Share of the training split to hold out, stratified; the same rows whatever the seed.
        folds: Parts of a set without splits, stratified (whole questions for ranking).
        fold: The part to test on, from 0 on.
        batch_size: Rows per batch.
        num_workers: Worker processes; 0 makes batches in the training process, which is best for texts.
        seed: Decides the order of training; the splits do not depend on it.
        use_all: Whether all rows of a set without splits are validation and test rows: what measuring on new data means.

    Attributes:
        info: What a model must know of the data.
        tokenizer: What turned the texts into tokens.
        splits: The rows of every split.
        has_split: Whether the data came with rows to validate or test on.

    Raises:
        InputError: A row or an option is wrong; the message says where.

    Example:
        >>> table = Table((["a fine day", "rain", "sun again", "more rain"] * 5,), ["1", "0", "1", "0"] * 5)
        >>> data = TextData({"train": table}, "text_classification", batch_size=5)
        >>> data.info.sizes, data.info.vocab_size
        ({'train': 16, 'val': 2, 'test': 2}, 9)
        >>> next(iter(data.test_dataloader()))[0].shape
        torch.Size([2, 3])
    """

    info: TextInfo
    tokenizer: Tokenizer

    def __init__(
        self,
        splits: Mapping[str, Table],
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
        super().__init__()
        self.batch_size = whole("batch_size", batch_size, 1)
        self.num_workers = whole("num_workers", num_workers, 0)
        self.seed = whole("seed", seed, 0)
        self.task = task
        length = None if max_length is None else whole("max_length", max_length, 1)
        check_columns(splits, task)
        trained = tokenizer if isinstance(tokenizer, Tokenizer) else None
        if ranking := task == "answer_ranking":
            classes, names = RELEVANCE, names or RELEVANCE_NAMES
        tables = {name: named(table, names) for name, table in splits.items()}
        known = class_names(tables, classes, names) if trained is None or not classes else model_classes(tables, tuple(classes))
        self.has_split = len(tables) > 1
        if use_all and not self.has_split:
            tables |= {"val": tables["train"], "test": tables["train"]}
        self.splits = split(tables, val, folds, fold, grouped=ranking)
        if ranking:
            check_answers(self.splits)
        if isinstance(tokenizer, Tokenizer):
            self.tokenizer = shortened(tokenizer, length)
        else:
            texts = (text for column in self.splits["train"].texts for text in column)
            learnt = train_tokenizer(tokenizer, texts, whole("vocab", vocab, 1), lowercase, whole("min_count", min_count, 1))
            self.tokenizer = learnt.limited(length, truncation=length is not None)
        self._tokens = encode(self.splits, self.tokenizer)
        self.tokenizer = fitted(self.tokenizer, self._tokens)
        self.info = TextInfo(
            pair=len(self.splits["train"].texts) == 2,
            classes=known,
            vocab_size=self.tokenizer.vocab_size,
            max_length=(trained or self.tokenizer).max_length or self.tokenizer.max_length,
            sizes={name: len(table) for name, table in self.splits.items()},
            sha256=digest(self.splits, known),
        )

    @property
    def has_test(self) -> bool:
        """Whether there is a test split."""
        return "test" in self.splits

    @property
    def files(self) -> dict[str, str]:
        """The text of every file to store beside a model, by name."""
        return {self.info.tokenizer: self.tokenizer.to_json()}

    def train_dataloader(self) -> DataLoader[Batch]:
        """Return training batches of texts of similar length, in an order that changes with the epoch.

        A last batch of one single row is left out (unless it is the only batch or `batch_size` is 1): batch normalization
        cannot train on it. Which row that is changes with the epoch.
        """
        data = self._dataset("train")
        lone = len(data) > self.batch_size and len(data) % self.batch_size == 1
        return self._loader(data, sampler=BucketSampler(data.lengths, self.batch_size, self.seed), drop_last=lone)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Return validation batches in order."""
        return self._loader(self._dataset("val"))

    def test_dataloader(self) -> DataLoader[Batch]:
        """Return test batches in order.

        Raises:
            InputError: There is no test split.
        """
        if not self.has_test:
            source = self.splits["train"].source
            raise InputError(f"{source} has no test split: add one beside the training split, or validate instead")
        return self._loader(self._dataset("test"))

    def predict_dataloader(self) -> DataLoader[Batch]:
        """Return the test batches."""
        return self.test_dataloader()

    def _dataset(self, name: str) -> TextDataset:
        table = self.splits[name]
        labels = numbers(table, self.info.classes)
        groups = codes(questions(table)) if self.task == "answer_ranking" else None
        return TextDataset(self._tokens[name], labels, groups)

    def _loader(self, data: TextDataset, **options: Any) -> DataLoader[Batch]:
        return loader(data, self.batch_size, self.num_workers, self.seed, **options)
