"""Anyone's pairs of texts, from parallel files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.data.options import options_of
from zoo.data.parallel.files import read_folder, read_pairs, without_training
from zoo.data.parallel.module import ParallelData
from zoo.data.sources import existing


@options_of(ParallelData)
def parallel(source: str, target: str, path: str | Path | None = None, **options: Any) -> ParallelData:
    """Pairs of texts from two files, line i of one beside line i of the other, or from a folder of such files.

    `parallel(source=talks.en, target=talks.de)` reads two files, and holds 5 % of the pairs out for validation.
    `parallel(path=FOLDER, source=en, target=de)` reads train.en and train.de and, where they are, val.* (or dev.*, valid.*,
    validation.*) and test.*. Files are UTF-8, also packed (.gz, .xz).

    Args:
        source: The file of texts to read; with `path` the ending of such files.
        target: The file of what to write of them; with `path` the ending of such files.
        path: A folder.
        **options: Of `ParallelData`.

    Raises:
        InputError: A file is missing or wrong; the message names file and line.
    """
    if path is None:
        return ParallelData({"train": read_pairs(existing(source, "parallel"), existing(target, "parallel"))}, **options)
    sides = (source, target)
    if "train" not in (splits := read_folder("parallel", path, sides)):
        raise without_training("parallel", path, sides)
    return ParallelData(splits, **options)
