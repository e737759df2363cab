"""Data info: the facts about a data set that networks, checkpoints and predictions need, as JSON values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from zoo.errors import InputError
from zoo.registry import build_options
from zoo.registry.limits import LARGEST

MAX_IMAGE_SIZE = 4096
"""Maximum side of an image in pixels."""


@dataclass(frozen=True, kw_only=True)
class DataInfo:
    """Sizes and content digest of a data set; subclasses add facts for networks and tasks.

    Fields hold numbers, text, booleans, None, or tuples of these.

    Attributes:
        inputs: The input kind, such as `image`, `text` or `vector`.
        network_sizes: Names of the attributes that are passed to the backbone.
        sizes: Rows per split.
        sha256: Digest of the content; empty if the data module does not compute one.
    """

    inputs: ClassVar[Any] = ""
    network_sizes: ClassVar[tuple[str, ...]] = ()
    sizes: dict[str, int]
    sha256: str = ""

    def __post_init__(self) -> None:
        """Raise `InputError` if a size is not positive, too large, or not the length of the field that it counts."""
        for name in self.network_sizes:
            value, most = vars(self).get(name), MAX_IMAGE_SIZE if name == "image_size" else LARGEST
            if type(value) is int and not 1 <= value <= most:
                raise InputError(f"{name}={value}: must be between 1 and {most}")

    def check_lengths(self, size: int, *names: str) -> None:
        """Raise `InputError` if a field has not as many values as a size, or a ``std`` is 0."""
        for name in names:
            if len(values := getattr(self, name)) != size:
                raise InputError(f"{name} has {len(values)} values, expected {size}")
            if name == "std" and min(values) <= 0:
                raise InputError(f"std={min(values)}: must be positive")

    @property
    def model_kwargs(self) -> dict[str, Any]:
        """The keywords offered to the factory of a backbone: the attributes that `network_sizes` names."""
        return {name: getattr(self, name) for name in self.network_sizes}

    @property
    def num_classes(self) -> int:
        """Number of labels, which are in the field `classes` of data with labels."""
        return len(getattr(self, "classes", ()))

    def example_inputs(self, batch: int) -> Tensor | tuple[Tensor, ...]:
        """Return the inputs of a network for a batch of `batch` rows."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """Rebuild an info from the values of `to_dict`; `InputError` if a field is missing, unknown or of the wrong type."""
        return build_options(cls, values)


@dataclass(frozen=True, kw_only=True)
class ImageInfo(DataInfo):
    """Info of labeled images, which are square and have 1 (grey) or 3 (RGB) channels.

    Attributes:
        classes: The label names; label i is called `classes[i]`.
        mean: Mean of every channel over the training split, on the 0..1 scale.
        std: Standard deviation of every channel over the training split, on the 0..1 scale.
    """

    inputs: ClassVar[str] = "image"
    network_sizes: ClassVar[tuple[str, ...]] = ("in_channels", "image_size", "num_classes")
    in_channels: int
    image_size: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check sizes and lengths."""
        super().__post_init__()
        self.check_lengths(self.in_channels, "mean", "std")

    def example_inputs(self, batch: int) -> Tensor:
        """Return zeros [batch, in_channels, image_size, image_size]."""
        return torch.zeros(batch, self.in_channels, self.image_size, self.image_size)


@dataclass(frozen=True, kw_only=True)
class VectorInfo(DataInfo):
    """Info of vectors and their targets.

    Attributes:
        in_features: Length of an input vector.
        out_features: Outputs of the network: the length of a target vector, or the number of classes.
    """

    inputs: ClassVar[str] = "vector"
    network_sizes: ClassVar[tuple[str, ...]] = ("in_features", "out_features")
    in_features: int
    out_features: int

    def example_inputs(self, batch: int) -> Tensor:
        """Return zeros [batch, in_features]."""
        return torch.zeros(batch, self.in_features)


@dataclass(frozen=True, kw_only=True)
class TableInfo(VectorInfo):
    """Info of rows of a table, and how a row becomes a vector.

    Attributes:
        columns: The column of each feature, [in_features].
        values: The category for which a feature is 1; None for a number, [in_features].
        mean, std: Mean and standard deviation of each feature over the training rows; 0 and 1 for categories.
        target: The column to predict.
        classes: The label names; empty if the target is a number.
        target_mean, target_std: Mean and standard deviation of a target that is a number.
    """

    columns: tuple[str, ...]
    values: tuple[str | None, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    target: str
    classes: tuple[str, ...] = ()
    target_mean: float = 0.0
    target_std: float = 1.0

    def __post_init__(self) -> None:
        """Check sizes and lengths."""
        super().__post_init__()
        self.check_lengths(self.in_features, "columns", "values", "mean", "std")
        if self.classes:
            self.check_lengths(self.out_features, "classes")

    def encodes(self, info: object) -> bool:
        """Return whether the rows of another table can be encoded like those of this one: they have no other classes."""
        if not isinstance(info, TableInfo):
            return False
        return not self.classes or bool(info.classes and {*info.classes} <= {*self.classes})

    def standardize(self, x: Tensor) -> Tensor:
        """Return features [..., in_features] of the table's own units as a network reads them; NaN becomes the mean."""
        mean, std = (torch.tensor(values, dtype=torch.float64) for values in (self.mean, self.std))
        return ((x.double() - mean) / std).nan_to_num(0.0, torch.inf, -torch.inf).float()


@dataclass(frozen=True, kw_only=True)
class TokenInfo(DataInfo):
    """Metadata common to tokenized data sets.

    Attributes:
        vocab_size: Vocabulary size, padding (0) and unknown (1) included.
        max_length: Maximum sequence length.
        tokenizer: Name of the tokenizer file in the model folder.
    """

    network_sizes: ClassVar[tuple[str, ...]] = ("vocab_size", "max_length")
    num_texts: ClassVar[Any] = 1
    vocab_size: int
    max_length: int
    tokenizer: str = "tokenizer.json"

    def example_inputs(self, batch: int) -> Tensor | tuple[Tensor, ...]:
        """Return the last token id, int64 [batch, min(max_length, 8)], a tensor for each text of a row."""
        texts = [torch.full((batch, min(self.max_length, 8)), self.vocab_size - 1) for _ in range(self.num_texts)]
        return texts[0] if len(texts) == 1 else tuple(texts)


@dataclass(frozen=True, kw_only=True)
class TextInfo(TokenInfo):
    """Info of labeled texts or labeled pairs of texts.

    Attributes:
        classes: The label names; label i is called `classes[i]`.
        pair: Whether a row has two texts.
        ranking: Whether rows are answers to rank per question.
        vectors: Width of the pretrained word vectors, or None.
    """

    network_sizes: ClassVar[tuple[str, ...]] = ("vocab_size", "max_length", "num_classes", "pair")
    classes: tuple[str, ...]
    pair: bool = False
    ranking: bool = False
    vectors: int | None = None

    @property
    def inputs(self) -> str:
        """`text` or `text_pair`."""
        return "text_pair" if self.pair else "text"

    @property
    def num_texts(self) -> int:
        """2 for pairs, else 1."""
        return 1 + self.pair


@dataclass(frozen=True, kw_only=True)
class CorpusInfo(TokenInfo):
    """Info of running text.

    Attributes:
        stream: Whether each batch continues the previous one, for networks with memory.
    """

    stream: bool

    @property
    def inputs(self) -> str:
        """`tokens` (blocks in any order) or `token_stream` (consecutive segments)."""
        return "token_stream" if self.stream else "tokens"


@dataclass(frozen=True, kw_only=True)
class ParallelInfo(TokenInfo):
    """Info of source and target texts; [BOS] is token 2 and [EOS] token 3."""

    inputs: ClassVar[str] = "source_target"
    network_sizes: ClassVar[tuple[str, ...]] = ("vocab_size", "max_length", "seq2seq")
    num_texts: ClassVar[int] = 2
    seq2seq: ClassVar[bool] = True
