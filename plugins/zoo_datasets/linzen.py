"""Subject-verb agreement as Linzen et al. (2016) published it."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.sources import existing
from zoo.data.text.module import TextData, text_options
from zoo.data.text.reading import read_table
from zoo.data.text.table import Table
from zoo.errors import InputError

NUMBERS = {"VBZ": "singular", "VBP": "plural"}
TENTHS = {"test": (0,), "val": (1,), "train": tuple(range(2, 10))}  # the line numbers, modulo 10, of each split


@text_options(tokenizer="space", lowercase=False)
def sva(path: str | Path | None = None, attractors: int = 0, **options: Any) -> TextData:
    """Subject-verb agreement of Linzen et al.: the words before a verb, and whether it is singular or plural.

    The corpus has 1.4 million rows; its published random sample for validation, `numpred.val`, is cut by line number modulo
    10 into test (0), validation (1) and training rows: 12,616 to train on, so results are not those of the papers, which
    trained on 142,000. Rare words stand as their parts of speech, in capitals: case is kept.

    Args:
        path: The folder with `numpred.val` and `numpred.test.1` to `numpred.test.5` (.tsv, .tsv.gz). The Hub has no copy.
        attractors: Test on `numpred.test.K` instead: sentences with K nouns of the other number before the verb, 1..5.
        options: See `TextData`.

    Raises:
        InputError: There is no path, a file is missing or wrong, or `attractors` is not 0..5.
    """
    if path is None:
        raise InputError(
            "sva: the Hugging Face Hub has no copy; use sva(path=FOLDER) with a folder that holds numpred.val.tsv",
            code="missing",
        )
    if isinstance(attractors, bool) or attractors not in range(6):
        raise InputError(f"sva: attractors={attractors!r}; use 1 to 5, or 0 for the mixed test rows")
    return TextData(partial(_sva_splits, path, attractors), "text_classification", names=NUMBERS, **options)


def _sva_splits(path: str | Path, attractors: int) -> dict[str, Table]:
    folder = existing(path, "sva")
    sample = _numpred(folder, "numpred.val")
    tenth = np.arange(len(sample)) % 10
    splits = {name: sample.where(np.isin(tenth, tenths)) for name, tenths in TENTHS.items()}
    if attractors:
        splits["test"] = _numpred(folder, f"numpred.test.{attractors}")
    return splits


def _numpred(folder: Path, name: str) -> Table:
    for file in (folder / f"{name}.tsv.gz", folder / f"{name}.tsv"):
        if file.is_file():
            return read_table(file, text=1, label=0, header=False)
    raise InputError(
        f"sva: {folder} holds no {name}.tsv or {name}.tsv.gz; use sva(path=FOLDER) with the folder that does", code="missing"
    )
