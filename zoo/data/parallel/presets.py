"""The translations and style transfers of the papers, one function each, from the Hugging Face Hub or from local files.

Every function takes `path`: a folder of parallel files NAME.SIDE, line i of one side beside line i of the other, plain or
packed as .gz or .xz. `source` and `target` are the sides, and the endings of their files. All other options are those of
`ParallelData`. What comes from the Hub is read from the main branch, for no commit is known for certain; where the numbers of
rows are published, they are checked.
"""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

from zoo.data.options import options_of
from zoo.data.parallel.files import STEMS, read_folder, without_training
from zoo.data.parallel.hub import fetch
from zoo.data.parallel.module import ParallelData
from zoo.data.parallel.pairs import Pairs
from zoo.data.parallel.record import IWSLT15, MULTI30K, WMT14, WMT16, ParallelSet
from zoo.errors import InputError

Place = str | Path | None

FLICKR = "2016_flickr"


@options_of(ParallelData)
def multi30k(path: Place = None, source: str = "en", target: str = "de", test: str = FLICKR, **options: Any) -> ParallelData:
    """Multi30k: 29,000 + 1,014 + 1,000 captions of pictures, English and German (Elliott et al. 2016), raw text.

    Args:
        path: A folder with train.en, val.en, test_2016_flickr.en and those of the other side; other languages do as well.
        source: The language to read.
        target: The language to write.
        test: The test set: `2016_flickr`, 1,000 pairs; in a folder also `2017_flickr`, 1,000, or `2017_mscoco`, 461 (Elliott
            et al. 2017).
        options: See `ParallelData`.

    Raises:
        InputError: The Hub or the folder has no such files, or a line is wrong.
    """
    name = f"test_{test}"
    if path is None:
        if test != FLICKR:
            raise InputError(
                f"multi30k: the copy on the Hub has no {name}, only {FLICKR}; use multi30k(path=FOLDER, test={test})"
            )
        return _load(MULTI30K, path, source, target, options)
    record = replace(MULTI30K, stems={**STEMS, "test": (name, *(STEMS["test"] if test == FLICKR else ()))})
    splits = _folder(record, path, (source, target))
    if test != FLICKR and "test" not in splits:
        raise InputError(f"multi30k: {path} has no {name}.{source} and {name}.{target}; use test={FLICKR}, or another there is")
    return ParallelData(splits, **options)


@options_of(ParallelData)
def iwslt15(path: Place = None, source: str = "en", target: str = "vi", **options: Any) -> ParallelData:
    """IWSLT 2015: talks in English and Vietnamese, tokenised by Luong and Manning (2015): 133 thousand + 1,553 + 1,268 pairs.

    What stands as an HTML entity in the files (&quot; &apos; &#91;) is read, and measured, as the character it means. A folder
    without training pairs trains on tst2012, 5 % of which are held out: that is a small set of its own, as its sizes say, and
    its results are not those of IWSLT.

    Args:
        path: A folder with train.en, tst2012.en (to validate on), tst2013.en (to test on) and those of the other side. No copy
            on the Hub is known to stay as it is.
        source: The language to read.
        target: The language to write.
        options: See `ParallelData`.

    Raises:
        InputError: There is no path, the folder has no such files, or a line is wrong.
    """
    if path is None:
        raise InputError(_nowhere("iwslt15", "train.en, train.vi, tst2012.* and tst2013.*"))
    splits = {name: _unescaped(pairs) for name, pairs in read_folder("iwslt15", path, (source, target), IWSLT15).items()}
    if "train" not in splits:
        if "val" not in splits:
            raise without_training("iwslt15", path, (source, target))
        splits["train"] = splits.pop("val")
    return ParallelData(splits, **options)


@options_of(ParallelData, vocab=32000)
def wmt14(path: Place = None, source: str = "en", target: str = "de", **options: Any) -> ParallelData:
    """WMT 2014: 4.5 million pairs of English and German, or of another language of that year, tested on newstest2014.

    Args:
        path: A folder with train.en, newstest2013.en (to validate on), newstest2014.en and those of the other side.
        source: The language to read.
        target: The language to write.
        options: See `ParallelData`.
    """
    return _load(WMT14, path, source, target, options)


@options_of(ParallelData, vocab=32000)
def wmt16(path: Place = None, source: str = "en", target: str = "de", **options: Any) -> ParallelData:
    """WMT 2016: 4.5 million pairs of English and German, or of another language of that year, tested on newstest2016.

    Args:
        path: A folder with train.en, newstest2015.en (to validate on), newstest2016.en and those of the other side.
        source: The language to read.
        target: The language to write.
        options: See `ParallelData`.
    """
    return _load(WMT16, path, source, target, options)


@options_of(ParallelData)
def shakespeare_style(path: Place = None, source: str = "modern", target: str = "original", **options: Any) -> ParallelData:
    """Shakespeare's plays in modern English and as he wrote them (Xu et al. 2012; split of Jhamtani et al. 2017), tokenised.

    18,395 + 1,218 + 1,462 pairs.

    Args:
        path: A folder with train.modern, dev.modern, test.modern and those of the other side. The Hub has no known copy.
        source: The side to read.
        target: The side to write.
        options: See `ParallelData`.

    Raises:
        InputError: There is no path, the folder has no such files, or a line is wrong.
    """
    if path is None:
        raise InputError(_nowhere("shakespeare_style", "train.modern, train.original, dev.* and test.*"))
    splits = read_folder("shakespeare_style", path, (source, target))
    if "train" not in splits:
        raise without_training("shakespeare_style", path, (source, target))
    return ParallelData(splits, **options)


def _load(record: ParallelSet, path: Place, source: str, target: str, options: dict[str, Any]) -> ParallelData:
    """Read a set from the Hub, or from a local copy."""
    sides = (source, target)
    return ParallelData(fetch(record, sides) if path is None else _folder(record, path, sides), **options)


def _folder(record: ParallelSet, path: str | Path, sides: tuple[str, str]) -> dict[str, Pairs]:
    if "train" not in (splits := read_folder(record.name, path, sides, record.stems)):
        raise without_training(record.name, path, sides)
    return splits


def _unescaped(pairs: Pairs) -> Pairs:
    sources, targets = ([unescape(text) for text in column] for column in (pairs.sources, pairs.targets))
    return replace(pairs, sources=sources, targets=targets)


def _nowhere(preset: str, files: str) -> str:
    return f"{preset}: no copy on the Hugging Face Hub is known to be right; use {preset}(path=FOLDER) with a folder of {files}"
