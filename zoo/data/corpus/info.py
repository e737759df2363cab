"""What a model, a checkpoint and a prediction need to know about the running text a network was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.data.fields import check_fields
from zoo.errors import InputError

TASK = "language_model"


@dataclass(frozen=True, kw_only=True)
class CorpusInfo:
    """State the info of a corpus; plain values only, so that a checkpoint can carry them as JSON.

    Attributes:
        task: The kind of task.
        vocab_size: Tokens that the tokenizer knows, padding (0) and unknown (1) included.
        max_length: Tokens that a network reads at a time.
        tokenizer: Name of the file beside the model that turns text into tokens.
        stream: Whether every batch goes on where the one before ended, for networks with a memory.
        sizes: Tokens per split.
        sha256: Digest of the text that was used.

    Example:
        >>> info = CorpusInfo(vocab_size=67, max_length=128, stream=False, sizes={"train": 900, "val": 200}, sha256="ab")
        >>> info.inputs, info.outputs, info.example(3).shape
        ('tokens', 67, torch.Size([3, 8]))
        >>> CorpusInfo.from_dict(info.to_dict()) == info
        True
    """

    task: str = TASK
    vocab_size: int
    max_length: int
    tokenizer: str = "tokenizer.json"
    stream: bool
    sizes: dict[str, int]
    sha256: str

    @property
    def inputs(self) -> str:
        """What a network reads: `corpus`, blocks in any order, or `stream`, segments one after the other."""
        return "token_stream" if self.stream else "tokens"

    @property
    def outputs(self) -> int:
        """Numbers that a network answers with for each token: one for every token that might come next."""
        return self.vocab_size

    @property
    def keywords(self) -> dict[str, int]:
        """What the factory of a backbone is offered: vocab_size and max_length."""
        return {"vocab_size": self.vocab_size, "max_length": self.max_length}

    def example(self, batch: int) -> Tensor:
        """Return tokens of the form of a batch: ones, int64 [batch, min(max_length, 8)]."""
        return torch.ones(batch, min(self.max_length, 8), dtype=torch.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return the info as JSON-safe values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CorpusInfo:
        """Rebuild the info that `to_dict` wrote.

        Raises:
            InputError: A field is missing or unknown, or the task is another.
        """
        check_fields(cls, values)
        if values["task"] != TASK:
            raise InputError(f"data info: task {values['task']!r} is not {TASK}")
        return cls(**values)
