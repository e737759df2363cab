"""One split of pairs of texts as a torch data set that makes whole batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from zoo.data.parallel.encoding import Encoded
from zoo.data.text.tokens import BEGIN, END, PAD

Batch = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class ParallelDataset(Dataset[Batch]):
    """Make batches of a split, each side padded to its own longest text.

    Attributes:
        tokens: Sources and targets, every one with the token that ends it.
        references: The targets as they came, for batches whose generated texts are compared with them; None for none.

    Example:
        >>> from zoo.data.text.tokens import Tokens
        >>> data = ParallelDataset((Tokens([[7, 8, 3], [9, 3]]), Tokens([[5, 3], [6, 4, 3]])))
        >>> (source, shifted), targets, rows = data[[0, 1]]
        >>> shifted
        tensor([[2, 5, 0],
                [2, 6, 4]])
        >>> targets
        tensor([[5, 3, 0],
                [6, 4, 3]])
    """

    tokens: Encoded
    references: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.tokens[0])

    def __getitem__(self, rows: list[int]) -> Batch:
        """Make the batch of these rows.

        Returns:
            The source int64 [B, S] and, behind [BOS], the target without its last token [B, T]; the target [B, T], so that
            place t holds what follows the shifted tokens up to t; and the numbers of the rows [B]; behind these a list of
            their references, if the split has any.
        """
        source, targets = (side.padded(rows) for side in self.tokens)
        shifted = torch.cat([targets.new_full((len(rows), 1), BEGIN), targets[:, :-1]], dim=1)
        shifted[shifted == END] = PAD  # a shorter target is over where a longer one goes on
        batch = (source, shifted), targets, torch.tensor(rows, dtype=torch.int64)
        return batch if self.references is None else (*batch, [self.references[row] for row in rows])
