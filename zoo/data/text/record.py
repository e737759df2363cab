"""What is known of a published text set: where the Hub keeps it, and the forms in which it lies on disks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

POLARITY = {"0": "negative", "1": "positive", "neg": "negative", "pos": "positive"}

TRAIN_TEST = {"train": ("train",), "test": ("test",)}
OFFICIAL = {"train": ("train",), "val": ("validation",), "test": ("test",)}
HIDDEN = {"train": ("train",), "test": ("validation",)}
"""The labels of the official test split are secret: the validation split is tested on."""


@dataclass(frozen=True)
class Layout:
    """Which columns of a table to read, by the names in its header or by their numbers.

    Attributes:
        texts: One column of texts, or two.
        label: The column of labels.
        group: The column that tells the questions of a ranking apart, or one that says to which split a row belongs.
    """

    texts: tuple[str | int, ...]
    label: str | int
    group: str | int | None = None

    @property
    def all(self) -> tuple[str | int, ...]:
        """All columns."""
        return (*self.texts, self.label, *(() if self.group is None else (self.group,)))

    @property
    def width(self) -> int | None:
        """How many columns a file without a header has; None if the columns have names."""
        return None if isinstance(self.label, str) else 1 + max(column for column in self.all if isinstance(column, int))


TEXT = Layout(("text",), "label")
SENTENCE = Layout(("sentence",), "label")
BARE = Layout((1,), 0)


@dataclass(frozen=True, kw_only=True)
class TextSet:
    """One published text set.

    Attributes:
        name: Name of the preset.
        citation: Who made the data.
        repository: The data set repository on the Hub.
        config: Which of the repository's tables.
        revision: The commit that is read; a branch where none could be established, and then `rows` alone notices a change.
        splits: The Hub's splits that make up ours; several are laid end to end.
        rows: Rows of the Hub's splits, those without a label included.
        hub: The columns on the Hub.
        columns: The columns of local files; the first of these that a file has are read.
        names: Labels as they are written, and what people see.
        task: See `TextData`.
        files: What local files are called, endings aside, where that is not train, dev, val, validation or test.
    """

    name: str
    citation: str
    repository: str
    config: str | None = None
    revision: str
    splits: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, int]
    hub: Layout = TEXT
    columns: tuple[Layout, ...] = (TEXT, SENTENCE, BARE)
    names: Mapping[str, str] | None = None
    task: str = "text_classification"
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which cannot change."""
        return len(self.revision) == 40

    @property
    def hidden(self) -> bool:
        """Whether the validation split is tested on, the labels of the official test split being secret."""
        return self.splits == HIDDEN
