"""Running text that comes with Python: its own help topics."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.data.corpus.module import CorpusData
from zoo.data.corpus.source import Text
from zoo.data.options import options_of

HELD = 5
"""Per cent of all characters that validation and test text may have, each."""


@options_of(CorpusData)
def pydoc(**options: Any) -> CorpusData:
    """Python's help topics, half a million characters on the language; needs no network.

    Whole topics are in one split: as many as fit into 5 per cent of the characters are for validation, and as many for testing.
    The text is that of the running Python: other versions have others (see `sha256` in the info), and numbers measured with
    two versions must not be compared.

    Args:
        options: See `CorpusData`.

    Example:
        >>> data = pydoc()
        >>> data.setup()
        >>> sorted(data.info.sizes)
        ['test', 'train', 'val']
    """
    from pydoc_data.topics import topics

    splits = divide(dict(topics))
    texts = {name: "\n\n\n".join(topics[topic].strip("\n") for topic in chosen) for name, chosen in splits.items()}
    return CorpusData({name: Text(text + "\n", "pydoc") for name, text in texts.items()}, **options)


def divide(topics: dict[str, str]) -> dict[str, list[str]]:
    """Choose the topics of every split: always the same, in the order of their names."""
    names = sorted(topics)
    room = sum(map(len, topics.values())) * HELD // 100
    left = {"val": room, "test": room}
    splits: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for place in np.random.RandomState(0).permutation(len(names)).tolist():
        name = names[place]
        split = next((split for split, free in left.items() if len(topics[name]) <= free), "train")
        splits[split].append(name)
        if split in left:
            left[split] -= len(topics[name])
    return {split: sorted(chosen) for split, chosen in splits.items()}
