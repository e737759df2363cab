"""What a model, a checkpoint and a prediction need to know about the images a network was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.data.fields import check_fields


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """State the info of a labelled image data set; plain values only, so that a checkpoint can carry them as JSON.

    Attributes:
        task: The kind of task.
        in_channels: Colour channels of an image, 1 (grey) or 3 (RGB).
        image_size: Side of the square image in pixels.
        classes: The label names; label i is called `classes[i]`.
        mean: Mean of every channel over the training split, on the 0..1 scale.
        std: Standard deviation of every channel over the training split, on the 0..1 scale.
        sizes: Images per split.
        sha256: Digest of the content that was used.

    Example:
        >>> info = ImageInfo(in_channels=1, image_size=8, classes=("cat", "dog"), mean=(0.5,), std=(0.2,),
        ...                    sizes={"train": 9, "val": 1}, sha256="ab")
        >>> info.num_classes
        2
        >>> ImageInfo.from_dict(info.to_dict()) == info
        True
    """

    task: str = "image_classification"
    in_channels: int
    image_size: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sizes: dict[str, int]
    sha256: str

    @property
    def inputs(self) -> str:
        """What a network reads."""
        return "image"

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return len(self.classes)

    @property
    def outputs(self) -> int:
        """Numbers that a network answers with for each image."""
        return self.num_classes

    @property
    def keywords(self) -> dict[str, int]:
        """What the factory of a backbone is offered: in_channels, image_size and num_classes."""
        return {"in_channels": self.in_channels, "image_size": self.image_size, "num_classes": self.num_classes}

    def example(self, batch: int) -> Tensor:
        """Return zeros of the shape of a batch, [batch, in_channels, image_size, image_size]."""
        return torch.zeros(batch, self.in_channels, self.image_size, self.image_size)

    def to_dict(self) -> dict[str, Any]:
        """Return the info as JSON-safe values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ImageInfo:
        """Rebuild the info that `to_dict` wrote.

        Raises:
            InputError: A field is missing or unknown.
        """
        check_fields(cls, values)
        plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return cls(**plain)
