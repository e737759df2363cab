"""The data module of pairs of texts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from zoo.data.info import ParallelInfo
from zoo.data.loader import loader
from zoo.data.options import whole
from zoo.data.parallel.batches import LengthBatches
from zoo.data.parallel.dataset import Batch, ParallelDataset
from zoo.data.parallel.encoding import Encoded, encode_pairs, encode_whole, lengths
from zoo.data.parallel.pairs import Pairs, check_splits, digest, split
from zoo.data.text.encoding import shortened
from zoo.data.text.tokenizer import Tokenizer, train_tokenizer
from zoo.errors import InputError


class ParallelData(LightningDataModule):
    """Feed batches ((source, shifted), targets, rows) of pairs of texts, one to read and one to write.

    All are int64 and padded with 0 on the right. The source [B, S] ends with [EOS]; the targets [B, T] too, and `shifted`
    [B, T] are the targets behind [BOS], one place to the right: what is known when each of them is written. `rows` [B] are
    the numbers of the pairs in their split. Validation and test batches have a fourth part, the targets as they came: a list of
    texts that generated ones are compared with. Pairs of one batch have similar lengths, in every split.

    Args:
        splits: `train`, and if there are any `val` and `test`. Without `val`, 5 % of `train` are held out, at least one pair
            and the same whatever the seed. Without `test` there is none.
        tokenizer: `bpe`, `char`, `space` or `word`; see `train_tokenizer`. It learns from both sides of the training split
            and serves both. `word` forgets where spaces were and cannot write the text as it was. Or the `Tokenizer` of a
            trained model: then nothing is learnt from these texts.
        vocab: Tokens at most.
        lowercase: Whether capitals are made small.
        min_count: Tokens that occur less often are unknown.
        max_length: Tokens of a source or a target at most, [EOS] included. Training pairs with a longer side are left out, as
            Tensor2Tensor does; texts of the other splits are cut. None reads the longest text of all splits whole.
        batch_size: Pairs per batch.
        batch_tokens: Tokens per batch at most, in place of `batch_size`: pairs times the longest side of the batch.
        num_workers: Worker processes; 0 makes batches in the training process, which is best for texts.
        seed: Decides the order of training; the splits do not depend on it.
        use_all: Whether all pairs of a set without splits are validation and test pairs: what measuring on new data means.

    Attributes:
        info: What a model must know of the data.
        tokenizer: What turned the texts into tokens.
        splits: The pairs of every split.
        has_split: Whether the data came with pairs to validate or test on.

    Raises:
        InputError: A text or an option is wrong; the message says where.

    Example:
        >>> pairs = Pairs(["one", "two", "three", "two two"] * 5, ["eins", "zwei", "drei", "zwei zwei"] * 5)
        >>> data = ParallelData({"train": pairs}, tokenizer="space", batch_size=5)
        >>> data.info.sizes, data.info.vocab_size, data.info.max_length
        ({'train': 19, 'val': 1}, 10, 3)
        >>> (source, shifted), targets, rows, references = next(iter(data.val_dataloader()))
        >>> data.tokenizer.decode(targets[0]) == references[0]
        True
    """

    task = "seq2seq"
    info: ParallelInfo
    tokenizer: Tokenizer

    def __init__(
        self,
        splits: Mapping[str, Pairs],
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
        super().__init__()
        self.batch_size = whole("batch_size", batch_size, 1)
        self.batch_tokens = None if batch_tokens is None else whole("batch_tokens", batch_tokens, 1)
        self.num_workers = whole("num_workers", num_workers, 0)
        self.seed = whole("seed", seed, 0)
        length = None if max_length is None else whole("max_length", max_length, 2)
        check_splits(splits)
        self.has_split = len(splits) > 1
        given = splits if self.has_split or not use_all else {**splits, "val": splits["train"], "test": splits["train"]}
        self.splits = split(given)
        content = digest(self.splits)
        if isinstance(tokenizer, Tokenizer):
            self.tokenizer = shortened(tokenizer, length)
        else:
            texts = chain(self.splits["train"].sources, self.splits["train"].targets)
            vocab, min_count = whole("vocab", vocab, 1), whole("min_count", min_count, 1)
            learnt = train_tokenizer(tokenizer, texts, vocab, lowercase, min_count, ends=True)
            self.tokenizer = learnt.limited(length, truncation=length is not None)
        self._tokens = self._encoded()
        if not len(self.splits["train"]) and isinstance(tokenizer, str):
            raise InputError(f"{splits['train'].name}: max_length={length}, and every training pair is longer; raise it")
        longest = max(int(lengths(tokens).max(initial=1)) for tokens in self._tokens.values())
        if self.tokenizer.max_length is None:
            self.tokenizer = self.tokenizer.limited(longest)
        self.info = ParallelInfo(
            vocab_size=self.tokenizer.vocab_size,
            max_length=(tokenizer if isinstance(tokenizer, Tokenizer) else self.tokenizer).max_length or longest,
            sizes={name: len(pairs) for name, pairs in self.splits.items()},
            sha256=content,
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
        """Return training batches, in an order that changes with the epoch."""
        return self._loader("train", self.seed)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Return validation batches, always the same and in the same order."""
        return self._loader("val")

    def test_dataloader(self) -> DataLoader[Batch]:
        """Return test batches, always the same and in the same order.

        Raises:
            InputError: There is no test split.
        """
        if not self.has_test:
            name = self.splits["train"].name
            raise InputError(f"{name} has no test split: add one beside the training split, or validate instead")
        return self._loader("test")

    def predict_dataloader(self) -> DataLoader[Batch]:
        """Return the test batches."""
        return self.test_dataloader()

    def _encoded(self) -> dict[str, Encoded]:
        """Encode all splits; long training pairs leave theirs, texts of the others are cut."""
        cut = self.tokenizer.limited(self.tokenizer.max_length, truncation=True)
        found = {name: encode_pairs(pairs, cut) for name, pairs in self.splits.items() if name != "train"}
        self.splits["train"], train = encode_whole(self.splits["train"], self.tokenizer)
        return {"train": train, **found}

    def _loader(self, name: str, seed: int | None = None) -> DataLoader[Batch]:
        """Return batches of a split, in an order for every epoch or, without a seed, in one for ever."""
        batches = LengthBatches(lengths(self._tokens[name]), self.batch_size, self.batch_tokens, seed or 0)
        whole_batches: Any = None  # the sampler yields all rows of a batch at a time
        sampler = list(batches) if seed is None else batches
        rows = ParallelDataset(self._tokens[name], None if name == "train" else self.splits[name].targets)
        return loader(rows, whole_batches, self.num_workers, self.seed, sampler=sampler)
