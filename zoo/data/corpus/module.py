"""The data module of running text: blocks of it, their order, and the batches made of them."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from zoo.data.corpus.encoding import TOKENIZERS, Numbers, extents, learn, read_tokenizer, tokens_of
from zoo.data.corpus.source import Source, TextFile, digest, divided
from zoo.data.info import CorpusInfo
from zoo.data.loader import Array, BatchDataset, EpochSampler, always, eval_sampler, generator, process_rank
from zoo.data.module import DataModule
from zoo.data.options import DataError, existing, listing, one_file, options_of, whole
from zoo.data.text.reading import SPLITS
from zoo.data.text.tokenizer import Tokenizer
from zoo.data.text.tokens import PAD
from zoo.errors import InputError

BLOCK = 128
STREAMS = 16
"""Streams that are read side by side in validation: a number of its own, so that results do not depend on the batch size."""


Batch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Blocks(BatchDataset[Batch]):
    """Make batches of blocks of `length` tokens; a block is known by the place of its first token.

    Attributes:
        tokens: The corpus, [N].
        extents: Characters and bytes of every token, [V, 2].
    """

    tokens: Numbers
    length: int
    extents: Array

    def __len__(self) -> int:
        return len(self.tokens) - 1

    def __getitems__(self, starts: list[int]) -> Batch:
        """Return tokens [B, length], what follows each [B, length] and its characters and bytes [B, 2]; 0 beyond the end."""
        places = np.asarray(starts)[:, None] + np.arange(self.length + 1)
        rows = self.tokens[np.minimum(places, len(self))].astype(np.int64)
        rows[places > len(self)] = PAD
        targets = rows[:, 1:]
        tokens = np.where(targets == PAD, PAD, rows[:, :-1])
        sizes = self.extents[targets].sum(axis=1)
        return torch.from_numpy(tokens), torch.from_numpy(targets.copy()), torch.from_numpy(sizes)


def shuffled(steps: int, length: int, seed: int, epoch: int) -> Array:
    """Return the places of the blocks of an epoch in random order, on a grid shifted at random: as many in every epoch."""
    draws = generator(seed, epoch)
    count = max(1, (steps - length + 1) // length)
    shift = int(torch.randint(min(length, steps - count * length + 1), (), generator=draws))
    return (torch.randperm(count, generator=draws) * length + shift).numpy()


def in_order(steps: int, length: int) -> Array:
    """Return the places of the blocks that hold all tokens, the last one perhaps in part."""
    return np.arange(0, steps, length)


def streams(steps: int, length: int, rows: int, *, whole: bool) -> tuple[Array, int]:
    """Cut a corpus into at most `rows` streams of equal length, to be read side by side.

    With `whole` what does not fill the last segments is left out; else the last stream is the shorter one.

    Returns:
        The places of the first segment of every stream, of the second, and so on, [segments * streams]; how many streams.
    """
    rows = min(rows, steps // length)
    segments = steps // rows // length if whole else -(-steps // (rows * length))
    rows = rows if whole else -(-steps // (segments * length))
    places = np.arange(segments)[:, None] + np.arange(rows) * segments
    return places.ravel() * length, rows


class CorpusData(DataModule[CorpusInfo]):
    """Feed batches (tokens [B, L], targets [B, L], lengths [B, 2]) of running text, int64.

    Targets are the tokens one further on; 0 is padding and not counted. Lengths are the characters and bytes that the targets
    of a row stand for. In validation and testing every token but the very first of a split is a target exactly once.

    Without `stream`, an epoch reads every block of the training text once, in random order and on a grid shifted at random.
    With `stream` a split is read as several streams side by side: row b of a batch goes on where row b of the batch before
    ended, which a network with a memory needs. Nothing is shuffled then.

    Args:
        splits: `train`, and if there are any `val` and `test`, or a function that opens them. Of a text without splits the
            last 10 per cent are validation and test text, one half each; without `val` alone it is the last 5 per cent of
            `train`.
        tokenizer: `char`, or `bpe` (pairs of bytes, merged by frequency): it learns from the training text only. Or the
            `Tokenizer` of a trained model, or its ``tokenizer.json``: then nothing is learnt from this text.
        vocab: Tokens at most; rarer characters are unknown.
        lowercase: Whether capitals are made small.
        max_length: Tokens of a block; None is 128, or what a trained model reads.
        batch_size, num_workers, seed: See `DataModule`; a row is a block, or a stream.
        stream: Whether batches go on one after the other.
        use_all: Whether all of a text without splits is validation and test text: what measuring on new data means.

    Attributes:
        tokenizer: What turned the text into tokens, after `setup`.
        splits: The token numbers of every split, after `setup`.

    Example:
        >>> from zoo.data.corpus.source import Text
        >>> data = CorpusData({"train": Text("to be or not to be, " * 40)}, max_length=16, batch_size=4)
        >>> data.setup()
        >>> data.split_note, [part.shape for part in next(iter(data.train_dataloader()))][::2]
        ('720 train, 40 val, 40 test tokens (cut 90/5/5 from one text)', [torch.Size([4, 16]), torch.Size([4, 2])])
    """

    task = "language_model"
    unit = "tokens"
    model_options = ("tokenizer", "vocab", "lowercase")

    def __init__(
        self,
        splits: Mapping[str, Source] | Callable[[], Mapping[str, Source]],
        *,
        tokenizer: str | Tokenizer = "char",
        vocab: int = 5000,
        lowercase: bool = False,
        max_length: int | None = None,
        batch_size: int = 32,
        num_workers: int = 0,
        seed: int = 0,
        stream: bool = False,
        use_all: bool = False,
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, seed=seed)
        self.stream, self.use_all, self.lowercase = stream, use_all, lowercase
        self.length = _block(max_length, tokenizer)
        if isinstance(tokenizer, str) and tokenizer.endswith(".json"):
            tokenizer = read_tokenizer(tokenizer).limited(self.length)
        if not isinstance(tokenizer, Tokenizer) and tokenizer not in TOKENIZERS:
            allowed = f"{' or '.join(TOKENIZERS)}, or by the tokenizer.json of a model"
            raise InputError(f"tokenizer={tokenizer!r}: running text is read by {allowed}")
        self.vocab = whole("vocab", vocab, 1)
        self._asked, self._read = tokenizer, splits
        self.splits: dict[str, Numbers] = {}

    def load(self) -> CorpusInfo:
        """Open the texts, and turn them into tokens where no cache holds them."""
        given = self._read() if callable(self._read) else self._read
        sources, self.split_comment = divided(given, self.use_all)
        self.source = sources["train"].name
        digests = {name: digest(source) for name, source in sources.items()}
        tokenizer = self._asked
        if not isinstance(tokenizer, Tokenizer):
            learnt = learn(tokenizer, sources["train"].pieces(), self.vocab, self.lowercase)
            tokenizer = learnt.limited(self.length)
        splits = {name: tokens_of(part, digests[name], tokenizer) for name, part in sources.items()}
        for name, tokens in splits.items():
            location, count = f"{sources[name].name}, {name} split", len(tokens)
            if count == 0:
                raise DataError(f"{location}: there is no text in it; a corpus needs some")
            if count <= self.length:
                few = f"{count} tokens, too few for one block of max_length={self.length} and the token after it"
                advice = f"use max_length={count - 1} or less, or more text" if count > 1 else "use more text"
                raise DataError(f"{location}: {few}; {advice}")
        self.tokenizer, self.splits, self._extents = tokenizer, splits, extents(tokenizer)
        return CorpusInfo(
            vocab_size=tokenizer.vocab_size,
            max_length=tokenizer.max_length or self.length,
            stream=self.stream,
            sizes={name: len(tokens) for name, tokens in splits.items()},
            sha256=hashlib.sha256("".join(f"{name} {sha}\n" for name, sha in digests.items()).encode()).hexdigest(),
        )

    @property
    def files(self) -> dict[str, str]:
        """The text of every file to store beside a model, by name."""
        return {self.info.tokenizer: self.tokenizer.to_json()}

    def dataset(self, split: str) -> Blocks:
        """Return the blocks of a split, by the place of their first token."""
        return Blocks(self.splits[split], self.length, self._extents)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return training batches: shuffled blocks in an order that changes with the epoch, or streams."""
        steps = len(self.splits["train"]) - 1
        if not self.stream:
            sampler = EpochSampler(partial(shuffled, steps, self.length, self.seed), even=True)
            if not len(sampler):
                raise self._too_short()
            return self.loader(self.dataset("train"), sampler)
        _, world = process_rank()
        places, rows = streams(steps, self.length, self.batch_size * world, whole=True)
        if rows < world:
            raise self._too_short()
        return self._streams("train", places.reshape(-1, rows)[:, : rows - rows % world])

    def eval_dataloader(self, split: str) -> DataLoader[Any]:
        """Return batches that hold every token of a split."""
        steps = len(self.splits[split]) - 1
        if not self.stream:
            return self.loader(self.dataset(split), eval_sampler(in_order(steps, self.length).tolist()))
        places, rows = streams(steps, self.length, STREAMS, whole=False)
        return self._streams(split, places.reshape(-1, rows))

    def _streams(self, split: str, places: Array) -> DataLoader[Any]:
        """Return a loader of this process's streams: places [segments, streams]."""
        rank, world = process_rank()
        mine = places[:, rank::world]
        sampler = EpochSampler(partial(always, mine.ravel()), even=split == "train", rank=0, world=1)
        return self.loader(self.dataset(split), sampler, batch_size=max(1, mine.shape[1]))

    def _too_short(self) -> InputError:
        return InputError(f"{self.source}: too few blocks of max_length={self.length} for so many processes; use fewer")


def _block(max_length: int | None, tokenizer: str | Tokenizer) -> int:
    """Return the tokens of a block: no more than a trained model reads."""
    most = tokenizer.max_length if isinstance(tokenizer, Tokenizer) else None
    if max_length is None:
        return most or BLOCK
    length = whole("max_length", max_length, 1)
    return length if most is None else min(length, most)


ENDINGS = (".txt", ".txt.gz", ".txt.xz")


@options_of(CorpusData)
def corpus(path: str | Path, **options: Any) -> CorpusData:
    """Running text of any size, from a file or from a folder with train.txt, and if there are val.txt and test.txt.

    Args:
        path: The file or folder; files may be packed (.gz, .xz). Of a single file the first 90 per cent are for training, the
            next 5 for validation and the last 5 for testing. The tokens of a large file are kept in a file in the user's cache.
        options: See `CorpusData`.
    """
    return CorpusData(partial(read_corpus, existing(path, "corpus"), "corpus"), **options)


def read_corpus(place: Path, preset: str) -> dict[str, Source]:
    """Return the splits of a folder, or a file as the training split."""
    if place.is_file():
        return {"train": TextFile.of(place)}
    files = {split: one_file(preset, place, [f"{n}{e}" for n in names for e in ENDINGS]) for split, names in SPLITS.items()}
    if files["train"] is None:
        raise InputError(f"{preset}: {place} has no train.txt (or .txt.gz, .txt.xz); there is {listing(place)}", code="missing")
    return {split: TextFile.of(file) for split, file in files.items() if file is not None}
