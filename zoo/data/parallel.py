"""Pairs of source and target texts: parallel files, the data module and its batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from zoo.data.files import OPENERS
from zoo.data.info import ParallelInfo
from zoo.data.loader import Array, EpochSampler, Order, eval_sampler, process_rank
from zoo.data.splits import check_splits, with_validation
from zoo.data.table import Table, TableSplits, read_pairs, split_files, table_digest
from zoo.data.text import TokenData
from zoo.data.tokenizer import Tokenizer
from zoo.data.tokens import BEGIN, END, PAD, LengthBatches, Tokens
from zoo.errors import InputError
from zoo.registry import check_option, passes_options_to

Batch = tuple[Any, ...]

VAL_SHARE = 0.05  # share of the training pairs to hold out if there is no validation split


@dataclass(frozen=True, eq=False)
class ParallelDataset(Dataset[Batch]):
    """Make batches of a split, each side padded to its longest text."""

    tokens: tuple[Tokens, Tokens]  # sources and targets, ending with [EOS]
    references: Sequence[str] | None = None  # the original target texts, which generated texts are compared with

    def __len__(self) -> int:
        return len(self.tokens[0])

    @property
    def lengths(self) -> Array:
        """Length of the longer side of every pair, int32 [N]."""
        return np.asarray(np.maximum(self.tokens[0].lengths, self.tokens[1].lengths))

    def __getitem__(self, rows: list[int]) -> Batch:
        """Return ((source, shifted), targets, rows), and the references if there are any; see `ParallelData`."""
        source, targets = (side.padded(rows) for side in self.tokens)
        shifted = torch.cat([targets.new_full((len(rows), 1), BEGIN), targets[:, :-1]], dim=1)
        shifted[shifted == END] = PAD  # padding of shorter targets
        batch = (source, shifted), targets, torch.tensor(rows, dtype=torch.int64)
        return batch if self.references is None else (*batch, [self.references[row] for row in rows])


class ParallelData(TokenData[ParallelInfo]):
    """Feed batches ((source, shifted), targets, rows) of pairs of texts.

    All are int64 and padded with 0 on the right. The source [B, S] and the targets [B, T] end with [EOS]; `shifted` [B, T] are
    the targets shifted right by one, starting with [BOS]. `rows` [B] are the indices of the pairs in their split. Validation
    and test batches have a fourth part, the list of the original target texts, which generated texts are compared with. The
    pairs of a batch have similar lengths, in every split.

    Args:
        splits: `train`, and optionally `val` and `test`: tables of sources and targets. Or a function that reads them. Without
            `val`, 5 % of `train` are held out, at least one pair, independent of the seed.
        tokenizer: `bpe`, `char`, `space` or `word`, see `train_tokenizer`; it is trained on both sides of the training split.
            `word` does not restore spaces, so it cannot reproduce a text. Or the `Tokenizer` of a trained model.
        vocab, lowercase, min_count: See `TextData`.
        max_length: Maximum tokens of a source or target, [EOS] included. Training pairs with a longer side are dropped, as in
            Tensor2Tensor; texts of the other splits are truncated. None for the longest text of all splits.
        batch_size, num_workers, seed: See `DataModule`.
        batch_tokens: Maximum tokens per batch (pairs times the longest side), instead of `batch_size`.
        use_all: Whether all pairs of data without splits are validation and test pairs, as for measuring on new data.

    Example:
        >>> from zoo.data.module import ready
        >>> first, second = ["one", "two", "three", "two two"], ["eins", "zwei", "drei", "zwei zwei"]
        >>> table = Table({"first": first * 5, "second": second * 5})
        >>> data = ready(ParallelData({"train": table}, tokenizer="space", batch_size=5))
        >>> (source, shifted), targets, rows, references = next(iter(data.val_dataloader()))
        >>> data.info.sizes, data.tokenizer.decode(targets[0]) == references[0]
        ({'train': 19, 'val': 1}, True)
    """

    task = "seq2seq"
    unit = "pairs"
    source_options = ("path", "source", "target")

    def __init__(
        self,
        splits: TableSplits,
        *,
        tokenizer: str | Tokenizer = "bpe",
        vocab: int = 8000,
        lowercase: bool = False,
        min_count: int = 1,
        max_length: int | None = None,
        batch_size: int = 32,
        batch_tokens: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        use_all: bool = False,
    ) -> None:
        options: Any = {"batch_size": batch_size, "num_workers": num_workers, "seed": seed}
        super().__init__(splits, tokenizer, vocab, min_count, lowercase, max_length, use_all, ends=True, **options)
        self.batch_tokens = check_option("batch_tokens", int | None, batch_tokens, "[1, inf)")

    def load(self) -> ParallelInfo:
        """Read, split and tokenize the texts."""
        tables = self.read()
        check_splits(tables, 2)
        self.splits = with_validation(tables, VAL_SHARE)
        if len(self.splits) > len(tables):
            self.split_comment = f"validation pairs are {VAL_SHARE:.0%} of the training pairs, held out"
        content, tokenizer = table_digest(self.splits), self.make_tokenizer()
        self._tokens = {name: self._encode(name, tokenizer) for name in self.splits}
        if not len(self.splits["train"]) and not isinstance(self._given, Tokenizer):
            raise InputError(f"{self.source}: every training pair is longer than max_length={self._max_length}; increase it")
        longest = max(int(self.dataset(name).lengths.max(initial=1)) for name in self.splits)
        return ParallelInfo(sha256=content, **self.set_tokenizer(tokenizer, longest))

    def dataset(self, split: str) -> ParallelDataset:
        """Return the pairs of a split."""
        return ParallelDataset(self._tokens[split], None if split == "train" else self.splits[split].texts[1])

    def order(self, data: ParallelDataset) -> Order:
        """Return the training order: the rows of whole batches."""
        return partial(LengthBatches, data.lengths, self.batch_size, self.batch_tokens, self.seed)

    def eval_dataloader(self, split: str) -> DataLoader[Batch]:
        """Return the batches of a split in a fixed order."""
        data = self.dataset(split)
        batch_size = min(self.batch_size, max(1, len(data) // process_rank()[1]))  # a batch for every process
        return self.loader(data, eval_sampler(LengthBatches(data.lengths, batch_size, self.batch_tokens)))

    def loader(self, data: Dataset[Batch], sampler: EpochSampler, **options: object) -> DataLoader[Batch]:
        """Return a loader whose sampler yields the rows of whole batches."""
        return super().loader(data, sampler, batch_size=None)

    def _encode(self, name: str, tokenizer: Tokenizer) -> tuple[Tokens, Tokens]:
        """Tokenize a split, dropping long training pairs or truncating the texts of the other splits."""
        table, limit = self.splits[name], tokenizer.max_length
        tokenizer = tokenizer.limited(None) if name == "train" else tokenizer.limited(limit, truncation=True)
        source, target = (
            tokenizer.encode(column, partial(table.location, side=side), ended=True) for side, column in enumerate(table.texts)
        )
        if name == "train" and limit is not None:
            short = ParallelDataset((source, target)).lengths <= limit
            if not short.all():
                self.splits[name] = table.where(short)
                source, target = (side.take(np.flatnonzero(short)) for side in (source, target))
        return source, target


Sides = tuple[str, str]
"""File extensions of source and target without the dot, such as ("en", "de")."""


@passes_options_to(ParallelData)
def parallel(source: str, target: str, path: str | Path | None = None, **options: Any) -> ParallelData:
    """Pairs of texts from two parallel files, line i of one with line i of the other, or from a folder of such files.

    `parallel(source=talks.en, target=talks.de)` reads two files, and holds out 5 % of the pairs for validation.
    `parallel(path=FOLDER, source=en, target=de)` reads train.en and train.de, and optionally val.* (or dev.*, valid.*,
    validation.*) and test.*. Files are UTF-8 and may be compressed (.gz, .xz).
    """
    if path is not None:
        return ParallelData(partial(read_folder, "parallel", path, (source, target)), **options)
    return ParallelData(lambda: {"train": read_pairs(source, target)}, **options)


def read_folder(
    preset: str,
    path: str | Path,
    sides: Sides,
    names: Mapping[str, Sequence[str]] = {},
    trained: Sequence[str] = ("train",),
) -> dict[str, Table]:
    """Read a folder of files NAME.SIDE, such as train.en and train.de, plain or compressed (.gz, .xz); see `split_files`."""
    endings = ([f".{side}{pack}" for pack in ("", *OPENERS)] for side in sides)
    sources, targets = (split_files(preset, path, ending, names, trained) for ending in endings)
    if lone := sorted(sources.keys() ^ targets.keys()):
        file = (sources | targets)[lone[0]]
        raise InputError(f"{preset}: {file} has no counterpart; use both .{sides[0]} and .{sides[1]}", code="missing")
    tables = {split: read_pairs(source, targets[split]) for split, source in sources.items()}
    return tables if "train" in tables else {"train": tables.pop("val"), **tables}
