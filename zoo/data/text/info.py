"""What a model, a checkpoint and a prediction need to know about the texts a network was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.data.fields import check_fields
from zoo.errors import InputError

TASKS = {"text_classification": 1, "pair_classification": 2, "answer_ranking": 2}
"""The tasks on text, and how many texts one example has."""


@dataclass(frozen=True, kw_only=True)
class TextInfo:
    """State the info of a labelled set of texts or pairs; plain values only, so that a checkpoint can carry them as JSON.

    Attributes:
        task: `text_classification`, `pair_classification` or `answer_ranking`.
        classes: The label names; label i is called `classes[i]`.
        vocab_size: Tokens that the tokenizer knows, padding (0) and unknown (1) included.
        max_length: Tokens of the longest text that the model reads.
        tokenizer: Name of the file beside the model that turns text into tokens.
        vectors: Width of the pretrained vectors the word table started from, or None.
        sizes: Rows per split.
        sha256: Digest of the content that was used.

    Example:
        >>> info = TextInfo(task="pair_classification", classes=("no", "yes"), vocab_size=9, max_length=5,
        ...                   sizes={"train": 9, "val": 1}, sha256="ab")
        >>> info.inputs, info.outputs, [tuple(side.shape) for side in info.example(3)]
        ('text_pair', 2, [(3, 5), (3, 5)])
        >>> TextInfo.from_dict(info.to_dict()) == info
        True
    """

    task: str
    classes: tuple[str, ...]
    vocab_size: int
    max_length: int
    tokenizer: str = "tokenizer.json"
    vectors: int | None = None
    sizes: dict[str, int]
    sha256: str

    @property
    def inputs(self) -> str:
        """What a network reads: `text`, one text, or `pair`, two."""
        return "text_pair" if TASKS[self.task] == 2 else "text"

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return len(self.classes)

    @property
    def outputs(self) -> int:
        """Numbers that a network returns for an example."""
        return self.num_classes

    @property
    def keywords(self) -> dict[str, int]:
        """What the factory of a backbone is offered: vocab_size, max_length, num_classes and pair (a bool)."""
        sizes = {"vocab_size": self.vocab_size, "max_length": self.max_length, "num_classes": self.num_classes}
        return {**sizes, "pair": self.inputs == "text_pair"}

    def example(self, batch: int) -> Tensor | tuple[Tensor, Tensor]:
        """Return tokens of the form of a batch: ones, int64 [batch, min(max_length, 8)]; for pairs two such tensors."""
        tokens = torch.ones(batch, min(self.max_length, 8), dtype=torch.int64)
        return (tokens, tokens.clone()) if self.inputs == "text_pair" else tokens

    def to_dict(self) -> dict[str, Any]:
        """Return the info as JSON-safe values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TextInfo:
        """Rebuild the info that `to_dict` wrote.

        Raises:
            InputError: A field is missing or unknown, or the task is not one on text.
        """
        check_fields(cls, values)
        if values["task"] not in TASKS:
            raise InputError(f"data info: task {values['task']!r} is not one of {', '.join(TASKS)}")
        plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return cls(**plain)
