"""What a model, a checkpoint and a translation need to know about the pairs of texts a network was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.data.fields import check_fields
from zoo.errors import InputError

TASK = "seq2seq"


@dataclass(frozen=True, kw_only=True)
class ParallelInfo:
    """State the info of a set of pairs of texts; plain values only, so that a checkpoint can carry them as JSON.

    Attributes:
        task: `seq2seq`.
        vocab_size: Tokens that the tokenizer of both sides knows: padding 0, unknown 1, begin 2 and end 3 included.
        max_length: Tokens of the longest source or target, the one that ends or begins it included.
        tokenizer: Name of the file beside the model that turns text into tokens.
        sizes: Pairs per split.
        sha256: Digest of the content.

    Example:
        >>> info = ParallelInfo(vocab_size=9, max_length=5, sizes={"train": 9, "val": 1}, sha256="ab")
        >>> info.inputs, info.outputs, [tuple(side.shape) for side in info.example(3)]
        ('source_target', 9, [(3, 5), (3, 5)])
        >>> ParallelInfo.from_dict(info.to_dict()) == info
        True
    """

    task: str = TASK
    vocab_size: int
    max_length: int
    tokenizer: str = "tokenizer.json"
    sizes: dict[str, int]
    sha256: str

    @property
    def inputs(self) -> str:
        """What a network reads: `parallel`, a source and what is written of its target so far."""
        return "source_target"

    @property
    def outputs(self) -> int:
        """Numbers that a network returns for every token of a target: one for each token that may come next."""
        return self.vocab_size

    @property
    def keywords(self) -> dict[str, int]:
        """What the factory of a backbone is offered: vocab_size, max_length and seq2seq (a bool)."""
        return {"vocab_size": self.vocab_size, "max_length": self.max_length, "seq2seq": True}

    def example(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return a source and a target of the form of a batch: ones, int64 [batch, min(max_length, 8)] each."""
        tokens = torch.ones(batch, min(self.max_length, 8), dtype=torch.int64)
        return tokens, tokens.clone()

    def to_dict(self) -> dict[str, Any]:
        """Return the info as JSON-safe values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ParallelInfo:
        """Rebuild the info that `to_dict` wrote.

        Raises:
            InputError: A field is missing or unknown, or the task is another.
        """
        check_fields(cls, values)
        if values["task"] != TASK:
            raise InputError(f"data info: task {values['task']!r} is not {TASK}")
        return cls(**values)
