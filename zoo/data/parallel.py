"""Pairs of texts, one to read and one to write: parallel files, the data module, and the batches it makes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from zoo.data.info import ParallelInfo
from zoo.data.loader import Array, EpochSampler, Order, eval_sampler, process_rank
from zoo.data.options import existing, listing, one_file, options_of, whole
from zoo.data.text.files import OPEN
from zoo.data.text.module import Splits, TokenData
from zoo.data.text.reading import SPLITS, read_pairs
from zoo.data.text.splits import check_splits, with_validation
from zoo.data.text.table import Table, digest
from zoo.data.text.tokenizer import Tokenizer
from zoo.data.text.tokens import BEGIN, END, PAD, LengthBatches, Tokens
from zoo.errors import InputError

Batch = tuple[Any, ...]

HELD = 0.05  # share of the training pairs that is held out where there are none to validate on


@dataclass(frozen=True, eq=False)
class ParallelDataset(Dataset[Batch]):
    """Make batches of a split, each side padded to its own longest text.

    Attributes:
        tokens: Sources and targets, every one with the token that ends it.
        references: The targets as they came, for batches whose generated texts are compared with them; None for none.
    """

    tokens: tuple[Tokens, Tokens]
    references: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.tokens[0])

    @property
    def lengths(self) -> Array:
        """Tokens of the longer side of every pair, int32 [N]."""
        longest: Array = np.maximum(self.tokens[0].lengths, self.tokens[1].lengths)
        return longest

    def __getitem__(self, rows: list[int]) -> Batch:
        """Return ((source, shifted), targets, rows) and, if the split has any, references; see `ParallelData`."""
        source, targets = (side.padded(rows) for side in self.tokens)
        shifted = torch.cat([targets.new_full((len(rows), 1), BEGIN), targets[:, :-1]], dim=1)
        shifted[shifted == END] = PAD  # a shorter target is over where a longer one goes on
        batch = (source, shifted), targets, torch.tensor(rows, dtype=torch.int64)
        return batch if self.references is None else (*batch, [self.references[row] for row in rows])


class ParallelData(TokenData[ParallelInfo]):
    """Feed batches ((source, shifted), targets, rows) of pairs of texts, one to read and one to generate.

    All are int64 and padded with 0 on the right. The source [B, S] ends with [EOS]; the targets [B, T] too, and `shifted`
    [B, T] are the targets behind [BOS], one place to the right: what is known when each of them is generated. `rows` [B] are
    the numbers of the pairs in their split. Validation and test batches have a fourth part, the targets as they came: a list of
    texts that generated ones are compared with. Pairs of one batch have similar lengths, in every split.

    Args:
        splits: `train`, and if there are any `val` and `test`: tables of two texts, the sources and the targets. Or a function
            that reads them. Without `val`, 5 % of `train` are held out, at least one pair and the same whatever the seed.
        tokenizer: `bpe`, `char`, `space` or `word`; see `train_tokenizer`. It learns from both sides of the training split
            and serves both. `word` forgets where spaces were and cannot generate the text as it was. Or the `Tokenizer` of a
            trained model: then nothing is learnt from these texts.
        vocab, lowercase, min_count: See `TextData`.
        max_length: Tokens of a source or a target at most, [EOS] included. Training pairs with a longer side are left out, as
            Tensor2Tensor does; texts of the other splits are cut. None reads the longest text of all splits whole.
        batch_size, num_workers, seed: See `DataModule`.
        batch_tokens: Tokens per batch at most, in place of `batch_size`: pairs times the longest side of the batch.
        use_all: Whether all pairs of a set without splits are validation and test pairs: what measuring on new data means.

    Attributes:
        tokenizer: What turned the texts into tokens.
        splits: The pairs of every split.

    Example:
        >>> from zoo.data.module import ready
        >>> table = Table((["one", "two", "three", "two two"] * 5, ["eins", "zwei", "drei", "zwei zwei"] * 5))
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
        splits: Splits,
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
        self.batch_tokens = None if batch_tokens is None else whole("batch_tokens", batch_tokens, 1)

    def load(self) -> ParallelInfo:
        """Read, split and tokenise the texts."""
        tables = self.read()
        check_splits(tables, 2)
        self.splits = with_validation(tables, HELD)
        if len(self.splits) > len(tables):
            self.split_comment = f"validation pairs are {HELD:.0%} of the training pairs, held out"
        content = digest(self.splits)
        tokenizer = self.learn()
        self._tokens = {name: self._encoded(name, tokenizer, content) for name in self.splits}
        if not len(self.splits["train"]) and not isinstance(self._given, Tokenizer):
            raise InputError(f"{self.source}: max_length={self._length}, and every training pair is longer; raise it")
        longest = max(int(self.dataset(name).lengths.max(initial=1)) for name in self.splits)
        return ParallelInfo(sha256=content, **self.limit(tokenizer, longest))

    def dataset(self, split: str) -> ParallelDataset:
        """Return the pairs of a split."""
        return ParallelDataset(self._tokens[split], None if split == "train" else self.splits[split].texts[1])

    def order(self, data: ParallelDataset) -> Order:
        """Return the training order: the rows of whole batches."""
        return partial(LengthBatches, data.lengths, self.batch_size, self.batch_tokens, self.seed)

    def eval_dataloader(self, split: str) -> DataLoader[Batch]:
        """Return the batches of a split, always the same and in the same order."""
        data = self.dataset(split)
        batch_size = min(self.batch_size, max(1, len(data) // process_rank()[1]))  # at least a batch for every process
        return self.loader(data, eval_sampler(LengthBatches(data.lengths, batch_size, self.batch_tokens)))

    def loader(self, data: Dataset[Batch], sampler: EpochSampler, **options: Any) -> DataLoader[Batch]:
        """Return a loader whose sampler yields the rows of whole batches."""
        return super().loader(data, sampler, batch_size=None)

    def _encoded(self, name: str, tokenizer: Tokenizer, content: str) -> tuple[Tokens, Tokens]:
        """Tokenise a split: long training pairs leave theirs, texts of the others are cut."""
        table, limit = self.splits[name], tokenizer.max_length
        used = tokenizer.limited(None) if name == "train" else tokenizer.limited(limit, truncation=True)
        source, target = (
            used.encode_column(column, partial(table.location, side=side), f"{content} {name} {side}", ended=True)
            for side, column in enumerate(table.texts)
        )
        if name == "train" and limit is not None:
            short = ParallelDataset((source, target)).lengths <= limit
            if not short.all():
                self.splits[name] = table.where(short)
                source, target = (side.take(np.flatnonzero(short)) for side in (source, target))
        return source, target


Sides = tuple[str, str]
"""The file endings of source and target, such as ("en", "de")."""


@options_of(ParallelData)
def parallel(source: str, target: str, path: str | Path | None = None, **options: Any) -> ParallelData:
    """Pairs of texts from two files, line i of one beside line i of the other, or from a folder of such files.

    `parallel(source=talks.en, target=talks.de)` reads two files, and holds 5 % of the pairs out for validation.
    `parallel(path=FOLDER, source=en, target=de)` reads train.en and train.de and, where they are, val.* (or dev.*, valid.*,
    validation.*) and test.*. Files are UTF-8, also packed (.gz, .xz).

    Args:
        source: The file of texts to read; with `path` the ending of such files.
        target: The file of what to generate of them; with `path` the ending of such files.
        path: A folder.
        **options: Of `ParallelData`.
    """
    if path is None:
        return ParallelData(partial(_two_files, source, target), **options)
    return ParallelData(partial(read_folder, "parallel", path, (source, target)), **options)


def _two_files(source: str, target: str) -> dict[str, Table]:
    return {"train": read_pairs(existing(source, "parallel"), existing(target, "parallel"))}


def read_folder(
    preset: str, path: str | Path, sides: Sides, stems: Mapping[str, Sequence[str]] = SPLITS, *, untrained: bool = False
) -> dict[str, Table]:
    """Read a folder of files STEM.SIDE, such as train.en and train.de, also packed (.gz, .xz)."""
    if sides[0] == sides[1]:
        raise InputError(f"{preset}: source={sides[0]} and target={sides[1]} are the same files; give two different endings")
    folder = existing(path, preset)
    if not folder.is_dir():
        raise InputError(
            f"{preset}: {folder} is no folder; give the one that holds train.{sides[0]} and train.{sides[1]}", code="missing"
        )
    tables = {}
    for split, names in stems.items():
        for name in names:
            source, target = (one_file(preset, folder, [f"{name}.{side}{end}" for end in ("", *OPEN)]) for side in sides)
            if source is not None and target is not None:
                tables[split] = read_pairs(source, target)
                break
            if there := source or target:
                missing = f"{name}.{sides[0] if source is None else sides[1]}"
                raise InputError(
                    f"{preset}: {there} has no {missing} beside it; both sides of a split are needed", code="missing"
                )
    if untrained and "train" not in tables and "val" in tables:
        tables["train"] = tables.pop("val")
    if "train" not in tables:
        raise InputError(
            f"{preset}: {path} has no train.{sides[0]} and train.{sides[1]}; there is {listing(folder)}", code="missing"
        )
    return tables
