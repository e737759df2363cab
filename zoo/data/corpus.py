"""The data module of running text: shuffled blocks, or parallel streams."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from zoo.atomic import home, new_file
from zoo.data.files import read_text
from zoo.data.info import CorpusInfo
from zoo.data.loader import Array, BatchDataset, EpochSampler, always, eval_sampler, generator, process_rank
from zoo.data.module import DataModule
from zoo.data.options import DataError
from zoo.data.table import split_files
from zoo.data.tokenizer import (
    LOSSLESS,
    Tokenizer,
    encoder,
    read_tokenizer,
    token_dtype,
    token_sizes,
    train_corpus_tokenizer,
)
from zoo.data.tokens import PAD
from zoo.errors import InputError
from zoo.registry import check_option, passes_options_to

PIECE = 2**20  # characters
LARGE = 2**23  # characters of a text whose tokens are cached
CACHE_VERSION = b"1"  # a change of the encoding must change it, so that cached files are not reused
PERCENT = (90, 95, 100)  # ends of the training, validation and test parts of a text without splits


@dataclass(frozen=True)
class Text:
    """Running text, and its name in messages.

    Example:
        >>> [part.content for part in Text("to be or not").cut((50, 100))]
        ['to be ', 'or not']
    """

    content: str
    name: str = "the text"

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read a UTF-8 file, plain or compressed."""
        return cls(read_text(path), str(path))

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces that end at a line break, or before a space if there is none: no word is split."""
        rest = ""
        for start in range(0, len(self.content), PIECE):
            rest += self.content[start : start + PIECE]
            end = rest.rfind("\n") + 1 or rest.rfind(" ")
            end = end if end > 0 else len(rest)
            yield rest[:end]
            rest = rest[end:]
        if rest:
            yield rest

    def cut(self, percent: Sequence[int]) -> list[Self]:
        """Cut the text into parts that end at these percentages of its UTF-8 bytes, rounded up to whole characters."""
        data, parts, start = self.content.encode(), [], 0
        for share in percent:
            end = len(data) * share // 100
            while end < len(data) and data[end] & 0xC0 == 0x80:
                end += 1
            parts.append(type(self)(data[start:end].decode(), self.name))
            start = end
        return parts

    def digest(self) -> str:
        """Return the SHA-256 of the text as UTF-8."""
        return hashlib.sha256(self.content.encode()).hexdigest()


def encode_text(text: Text, tokenizer: Tokenizer) -> Array:
    """Return the token ids of a text; those of a large text are a mapped file in the user's cache."""
    dtype, encode = token_dtype(tokenizer), encoder(tokenizer)
    if len(text.content) <= LARGE:
        return np.concatenate([np.empty(0, dtype), *map(encode, text.pieces())])
    name = hashlib.sha256(b"\0".join([CACHE_VERSION, text.digest().encode(), tokenizer.to_json().encode("utf-8")])).hexdigest()
    path = home() / "tokens" / f"{name}.{dtype[1:]}"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as file:
                for piece in text.pieces():
                    file.write(encode(piece).tobytes())
        return np.asarray(np.memmap(path, dtype, mode="r"))
    except OSError as error:
        message = f"{path.parent}: cannot cache tokens ({error.strerror}); free space, or set ZOO_HOME to another folder"
        raise InputError(message, code="failed") from error


def add_splits(splits: Mapping[str, Text], use_all: bool) -> tuple[dict[str, Text], str]:
    """Cut missing splits from the training text, see `CorpusData`; return the splits and a comment on how they were made."""
    complete = dict(splits)
    if set(complete) == {"train"} and use_all:
        return dict.fromkeys(("train", "val", "test"), complete["train"]), "all of one text"
    if set(complete) == {"train"}:
        parts = complete["train"].cut(PERCENT)
        return dict(zip(("train", "val", "test"), parts, strict=True)), "cut 90/5/5 from one text"
    if "val" in complete:
        return complete, ""
    complete["train"], complete["val"] = complete["train"].cut(PERCENT[1:])
    return complete, "val is the last 5 % of train"


MAX_LENGTH = 128  # default tokens per block
STREAMS = 16
"""Parallel streams in validation, independent of the batch size so that results are, too."""


Batch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Blocks(BatchDataset[Batch]):
    """Make batches of blocks of `length` tokens of a corpus [N]; the key of a block is the position of its first token.

    `sizes` are the characters and bytes of every token, [V, 2].
    """

    tokens: Array
    length: int
    sizes: Array

    def __len__(self) -> int:
        return len(self.tokens) - 1

    def __getitems__(self, starts: list[int]) -> Batch:
        """Return tokens and targets [B, length], 0 after the end, and the characters and bytes of the targets [B, 2]."""
        positions = np.asarray(starts)[:, None] + np.arange(self.length + 1)
        rows = self.tokens[np.minimum(positions, len(self))].astype(np.int64)
        rows[positions > len(self)] = PAD
        targets = rows[:, 1:]
        tokens = np.where(targets == PAD, PAD, rows[:, :-1])
        sizes = self.sizes[targets].sum(axis=1)
        return torch.from_numpy(tokens), torch.from_numpy(targets.copy()), torch.from_numpy(sizes)


def shuffled_blocks(steps: int, length: int, seed: int, epoch: int) -> Array:
    """Return the starts of the blocks of an epoch in random order, on a randomly shifted grid; their number is constant."""
    random = generator(seed, epoch)
    count = max(1, (steps - length + 1) // length)
    shift = int(torch.randint(min(length, steps - count * length + 1), (), generator=random))
    return (torch.randperm(count, generator=random) * length + shift).numpy()


def streams(steps: int, length: int, rows: int, *, drop_last: bool) -> tuple[Array, int]:
    """Cut a corpus into at most `rows` streams of equal length, to be read in parallel.

    With `drop_last` an incomplete last segment is dropped; else the last stream is shorter. Returns the starts of the first
    segment of every stream, of the second, and so on, [segments * streams], and the number of streams.
    """
    rows = min(rows, steps // length)
    segments = steps // rows // length if drop_last else -(-steps // (rows * length))
    rows = rows if drop_last else -(-steps // (segments * length))
    starts = np.arange(segments)[:, None] + np.arange(rows) * segments
    return starts.ravel() * length, rows


class CorpusData(DataModule[CorpusInfo]):
    """Feed batches (tokens [B, L], targets [B, L], sizes [B, 2]) of running text, int64.

    Targets are the next tokens; 0 is padding and not counted. Sizes are the characters and bytes of the targets of a row. In
    validation and testing every token except the first of a split is a target exactly once.

    Without `stream`, an epoch reads every block of the training text once, in random order and on a randomly shifted grid. With
    `stream` a split is read as parallel streams: row b of a batch continues row b of the previous batch, as networks with
    memory require. Streams are not shuffled.

    Args:
        splits: `train`, and optionally `val` and `test`; or a function that opens them. The last 10 % of a text without splits
            are validation and test text, one half each; if only `val` is missing, it is the last 5 % of `train`.
        tokenizer: `char`, or `bpe` (byte pairs merged by frequency), trained on the training text only. Or the `Tokenizer` of a
            trained model, or the path of its ``tokenizer.json``.
        vocab: Maximum vocabulary size; rarer characters are unknown.
        lowercase: Whether to lowercase the text.
        max_length: Tokens per block; None for 128, or for the sequence length of a trained model.
        batch_size, num_workers, seed: See `DataModule`; a row is a block, or a stream.
        stream: Whether each batch continues the previous one.
        use_all: Whether all of a text without splits is validation and test text, as for measuring on new data.

    Example:
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
        splits: Mapping[str, Text] | Callable[[], Mapping[str, Text]],
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
        self.length = _block_length(max_length, tokenizer)
        if isinstance(tokenizer, str) and tokenizer.endswith(".json"):
            tokenizer = read_tokenizer(tokenizer).limited(self.length)
        if not isinstance(tokenizer, Tokenizer) and tokenizer not in LOSSLESS:
            raise InputError(f"tokenizer={tokenizer!r}: use {', '.join(LOSSLESS)}, or the tokenizer.json of a model")
        self.vocab = check_option("vocab", int, vocab, "[1, inf)")
        self._given, self._read = tokenizer, splits
        self.splits: dict[str, Array] = {}

    def load(self) -> CorpusInfo:
        """Open the texts, and encode those that are not cached."""
        sources, self.split_comment = add_splits(self._read() if callable(self._read) else self._read, self.use_all)
        self.source = sources["train"].name
        tokenizer = self._given
        if not isinstance(tokenizer, Tokenizer):
            tokenizer = train_corpus_tokenizer(tokenizer, sources["train"].pieces(), self.vocab, self.lowercase)
            tokenizer = tokenizer.limited(self.length)
        splits = {name: encode_text(text, tokenizer) for name, text in sources.items()}
        for name, tokens in splits.items():
            if len(tokens) <= self.length:
                count = f"{len(tokens)} tokens, but max_length={self.length} needs one more"
                raise DataError(f"{sources[name].name}, {name} split: {count}; use more text, or a smaller max_length")
        self.tokenizer, self.splits, self._sizes = tokenizer, splits, token_sizes(tokenizer)
        return CorpusInfo(
            vocab_size=tokenizer.vocab_size,
            max_length=tokenizer.max_length or self.length,
            stream=self.stream,
            sizes={name: len(tokens) for name, tokens in splits.items()},
            sha256=hashlib.sha256("".join(f"{name} {text.digest()}\n" for name, text in sources.items()).encode()).hexdigest(),
        )

    def dataset(self, split: str) -> Blocks:
        """Return the blocks of a split."""
        return Blocks(self.splits[split], self.length, self._sizes)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return training batches: shuffled blocks in an order that changes with the epoch, or streams."""
        steps = len(self.splits["train"]) - 1
        _, world = process_rank()
        if not self.stream:
            sampler = EpochSampler(partial(shuffled_blocks, steps, self.length, self.seed), even=True)
            if len(sampler):
                return self.loader(self.dataset("train"), sampler)
        else:
            starts, rows = streams(steps, self.length, self.batch_size * world, drop_last=True)
            if rows >= world:
                return self._stream_loader("train", starts.reshape(-1, rows)[:, : rows - rows % world])
        raise InputError(f"{self.source}: too few blocks of max_length={self.length} for {world} processes; use fewer")

    def eval_dataloader(self, split: str) -> DataLoader[Any]:
        """Return batches with every token of a split."""
        steps = len(self.splits[split]) - 1
        if not self.stream:
            return self.loader(self.dataset(split), eval_sampler(range(0, steps, self.length)))
        starts, rows = streams(steps, self.length, STREAMS, drop_last=False)
        return self._stream_loader(split, starts.reshape(-1, rows))

    def _stream_loader(self, split: str, starts: Array) -> DataLoader[Any]:
        """Return a loader of this process's share of the streams, whose starts are [segments, streams]."""
        rank, world = process_rank()
        local = starts[:, rank::world]
        sampler = EpochSampler(partial(always, local.ravel()), even=split == "train", rank=0, world=1)
        return self.loader(self.dataset(split), sampler, batch_size=max(1, local.shape[1]))


def _block_length(max_length: int | None, tokenizer: str | Tokenizer) -> int:
    """Return the tokens per block, at most the sequence length of a trained model."""
    most = tokenizer.max_length if isinstance(tokenizer, Tokenizer) else None
    if max_length is None:
        return most or MAX_LENGTH
    length: int = check_option("max_length", int, max_length, "[1, inf)")
    return length if most is None else min(length, most)


ENDINGS = (".txt", ".txt.gz", ".txt.xz", "", ".gz", ".xz")


@passes_options_to(CorpusData)
def corpus(path: str | Path, **options: Any) -> CorpusData:
    """Running text from a file, or from a folder with train.txt, and optionally val.txt and test.txt.

    Files may be compressed (.gz, .xz). The first 90 % of a single file are for training, the next 5 % for validation and the
    last 5 % for testing. The tokens of a large file are cached in the user's cache.
    """
    return CorpusData(partial(read_corpus, "corpus", path), **options)


def read_corpus(preset: str, path: str | Path, file: str = "train") -> dict[str, Text]:
    """Return the splits of a folder, or a file as the training split; `file` is another name of the training file."""
    files = split_files(preset, path, ENDINGS, {"train": (file,)})
    return {split: Text.of(file) for split, file in files.items()}
