"""One split of texts as a torch data set that makes whole batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from zoo.data.loader import Array
from zoo.data.text.tokens import Tokens

Inputs = Tensor | tuple[Tensor, Tensor]
Batch = tuple[Inputs, Tensor] | tuple[Inputs, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class TextDataset(Dataset[Batch]):
    """Make batches of a split, each padded to its own longest text.

    Attributes:
        tokens: One column of token numbers, or two.
        labels: Class numbers, int64 [N].
        groups: Question numbers, int64 [N]; for ranking only.
    """

    tokens: tuple[Tokens, ...]
    labels: Array
    groups: Array | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> Array:
        """Tokens of the longer text of every row, int64 [N]."""
        longest: Array = np.max([column.lengths for column in self.tokens], axis=0)
        return longest

    def __getitem__(self, row: int) -> Batch:
        return self.__getitems__([row])

    def __getitems__(self, rows: list[int]) -> Batch:
        """Make the batch of these rows.

        Returns:
            Tokens int64 [B, L], or a pair of such; labels int64 [B]; and question numbers int64 [B], if there are questions.
        """
        first, *second = (column.padded(rows) for column in self.tokens)
        inputs = (first, second[0]) if second else first
        labels = torch.from_numpy(self.labels[rows])
        return (inputs, labels) if self.groups is None else (inputs, labels, torch.from_numpy(self.groups[rows]))
