"""What a model, a checkpoint and a prediction need to know about the vectors a network was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.data.fields import check_fields


@dataclass(frozen=True, kw_only=True)
class VectorInfo:
    """State the info of a regression data set of vectors; plain values only, so that a checkpoint can carry them as JSON.

    Attributes:
        task: The kind of task.
        in_features: Numbers in an input.
        out_features: Numbers in a target.
        sizes: Rows per split.
        sha256: Digest of the content that was used.

    Example:
        >>> info = VectorInfo(in_features=3, out_features=2, sizes={"train": 9, "val": 1}, sha256="ab")
        >>> info.example(4).shape
        torch.Size([4, 3])
        >>> VectorInfo.from_dict(info.to_dict()) == info
        True
    """

    task: str = "regression"
    in_features: int
    out_features: int
    sizes: dict[str, int]
    sha256: str

    @property
    def inputs(self) -> str:
        """What a network reads."""
        return "vector"

    @property
    def outputs(self) -> int:
        """Number of outputs that the task needs of a network."""
        return self.out_features

    @property
    def keywords(self) -> dict[str, int]:
        """What the factory of a backbone is offered: in_features and out_features."""
        return {"in_features": self.in_features, "out_features": self.out_features}

    def example(self, batch: int) -> Tensor:
        """Return zeros of the shape of a batch, [batch, in_features]."""
        return torch.zeros(batch, self.in_features)

    def to_dict(self) -> dict[str, Any]:
        """Return the info as JSON-safe values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> VectorInfo:
        """Rebuild the info that `to_dict` wrote.

        Raises:
            InputError: A field is missing or unknown.
        """
        check_fields(cls, values)
        return cls(**values)
