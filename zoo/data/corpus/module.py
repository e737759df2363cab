"""The data module of running text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from zoo.data.corpus.alphabet import learn
from zoo.data.corpus.blocks import Batch, Blocks, in_order, shuffled, streams
from zoo.data.corpus.encoding import extents
from zoo.data.corpus.info import CorpusInfo
from zoo.data.corpus.source import Source, digest, divided
from zoo.data.corpus.tokenfile import Numbers, tokens_of
from zoo.data.loader import PassSampler, loader
from zoo.data.splits import Array
from zoo.data.text.tokenizer import Tokenizer
from zoo.data.whole import whole
from zoo.errors import InputError

BLOCK = 128
STREAMS = 16
"""Streams that are read side by side in validation: a number of its own, so that results do not depend on the batch size."""


class CorpusData(LightningDataModule):
    """Feed batches (tokens [B, L], targets [B, L], lengths [B, 2]) of running text, int64.

    Targets are the tokens one further on; 0 is padding and not counted. Lengths are the characters and bytes that the targets
    of a row stand for. In validation and testing every token but the very first of a split is a target exactly once.

    Without `stream`, an epoch reads every block of the training text once, in random order and on a grid shifted at random.
    With `stream` a split is read as several streams side by side: row b of a batch goes on where row b of the batch before
    ended, which a network with a memory needs. Nothing is shuffled then.

    The training loader has a state (`ResumableLoader`): a stopped run goes on with the very batch that would have come.

    Args:
        splits: `train`, and if there are any `val` and `test`. Of a text without splits the last 10 per cent are validation
            and test text, one half each; without `val` alone it is the last 5 per cent of `train`.
        tokenizer: `char`, or `bpe` (pairs of bytes, merged by frequency): it learns from the training text only. Or the
            `Tokenizer` of a trained model: then nothing is learnt from this text.
        vocab: Tokens at most; rarer characters are unknown.
        lowercase: Whether capitals are made small.
        max_length: Tokens of a block; None is 128, or what a trained model reads.
        batch_size: Blocks, or streams, per batch.
        num_workers: Worker processes; 0 makes batches in the training process, which is best for text.
        seed: Decides the order of training; the splits do not depend on it.
        stream: Whether batches go on one after the other.
        use_all: Whether all of a text without splits is validation and test text: what measuring on new data means.

    Attributes:
        info: What a model must know of the data.
        tokenizer: What turned the text into tokens.
        splits: The token numbers of every split.
        has_split: That there always are validation rows of its own.

    Raises:
        InputError: A text or an option is wrong; the message says which.

    Example:
        >>> from zoo.data.corpus.source import Text
        >>> data = CorpusData({"train": Text("to be or not to be, " * 40)}, max_length=16, batch_size=4)
        >>> data.info.sizes, data.info.vocab_size
        ({'train': 720, 'val': 40, 'test': 40}, 10)
        >>> [part.shape for part in next(iter(data.train_dataloader()))]
        [torch.Size([4, 16]), torch.Size([4, 16]), torch.Size([4, 2])]
    """

    info: CorpusInfo
    tokenizer: Tokenizer
    has_split = True

    def __init__(
        self,
        splits: Mapping[str, Source],
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
        super().__init__()
        self.batch_size = whole("batch_size", batch_size, 1)
        self.num_workers = whole("num_workers", num_workers, 0)
        self.seed = whole("seed", seed, 0)
        self.stream = stream
        self.length = _block(max_length, tokenizer)
        sources = divided(splits, use_all)
        digests = {name: digest(source) for name, source in sources.items()}
        if not isinstance(tokenizer, Tokenizer):
            learnt = learn(tokenizer, sources["train"].pieces(), whole("vocab", vocab, 1), lowercase)
            tokenizer = learnt.limited(self.length)
        self.tokenizer = tokenizer
        self.splits: dict[str, Numbers] = {name: tokens_of(part, digests[name], tokenizer) for name, part in sources.items()}
        for name, tokens in self.splits.items():
            _check_size(f"{sources[name].name}, {name} split", len(tokens), self.length)
        self._extents = extents(tokenizer)
        self.info = CorpusInfo(
            vocab_size=tokenizer.vocab_size,
            max_length=tokenizer.max_length or self.length,
            stream=stream,
            sizes={name: len(tokens) for name, tokens in self.splits.items()},
            sha256=hashlib.sha256("".join(f"{name} {sha}\n" for name, sha in digests.items()).encode()).hexdigest(),
        )
        self._source = sources["train"].name

    @property
    def has_test(self) -> bool:
        """Whether there is a test split."""
        return "test" in self.splits

    @property
    def files(self) -> dict[str, str]:
        """The text of every file to store beside a model, by name."""
        return {self.info.tokenizer: self.tokenizer.to_json()}

    def train_dataloader(self) -> DataLoader[Batch]:
        """Return training batches: shuffled blocks in an order that changes with the epoch, or streams."""
        steps = len(self.splits["train"]) - 1
        order: Callable[[int], Array] = partial(shuffled, steps, self.length, self.seed)
        rows = self.batch_size
        if self.stream:
            places, rows = streams(steps, self.length, rows, whole=True)
            order = partial(_always, places)
        return loader(self._blocks("train"), rows, self.num_workers, self.seed, sampler=PassSampler(order))

    def val_dataloader(self) -> DataLoader[Batch]:
        """Return validation batches in order."""
        return self._measured("val")

    def test_dataloader(self) -> DataLoader[Batch]:
        """Return test batches in order.

        Raises:
            InputError: There is no test split.
        """
        if not self.has_test:
            raise InputError(f"{self._source} has no test split: add one beside the training text, or validate instead")
        return self._measured("test")

    def predict_dataloader(self) -> DataLoader[Batch]:
        """Return the test batches."""
        return self.test_dataloader()

    def _measured(self, name: str) -> DataLoader[Batch]:
        """Return batches that hold every token of a split."""
        steps, rows = len(self.splits[name]) - 1, self.batch_size
        places = in_order(steps, self.length)
        if self.stream:
            places, rows = streams(steps, self.length, STREAMS, whole=False)
        return loader(self._blocks(name), rows, self.num_workers, self.seed, sampler=places.tolist())

    def _blocks(self, name: str) -> Blocks:
        return Blocks(self.splits[name], self.length, self._extents)


def _always(places: Array, epoch: int) -> Array:
    return places


def _block(max_length: int | None, tokenizer: str | Tokenizer) -> int:
    """Return the tokens of a block: no more than a trained model reads."""
    most = tokenizer.max_length if isinstance(tokenizer, Tokenizer) else None
    if max_length is None:
        return most or BLOCK
    length = whole("max_length", max_length, 1)
    return length if most is None else min(length, most)


def _check_size(place: str, count: int, length: int) -> None:
    if count == 0:
        raise InputError(f"{place}: there is no text in it; a corpus needs some")
    if count <= length:
        few = f"too few for one block of max_length={length} and the token after it"
        advice = f"use max_length={count - 1} or less, or more text" if count > 1 else "use more text"
        raise InputError(f"{place}: {count} tokens, {few}; {advice}")
