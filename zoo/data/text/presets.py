"""The text sets of the papers, one function each, from the Hugging Face Hub or from local files.

Every function takes `path`: a local copy, as published or as a plain table. A folder holds train.*, and dev.* (or val.*,
validation.*) and test.* where they exist; a single file is cut into folds. Tables are TSV, CSV, JSON lines or Parquet, also
packed as .gz or .xz. Without `path` the set is fetched from the Hub, once. All other options are those of `TextData`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.data.text.copies import read_copy
from zoo.data.text.hub import answerable, fetch
from zoo.data.text.module import TextData
from zoo.data.text.options import text_options
from zoo.data.text.pairs_info import MATCHED, MISMATCHED, QNLI, QQP, SCITAIL, SNLI, WIKIQA
from zoo.data.text.presets_info import CR, IMDB, MPQA, MR, SST, SUBJ, TREC, TREC_FINE
from zoo.data.text.record import TextSet
from zoo.errors import InputError

Place = str | Path | None


@text_options
def mr(path: Place = None, **options: Any) -> TextData:
    """MR: 10,662 sentences of movie reviews, negative or positive (Pang and Lee 2005); no split, hence folds."""
    return _load(MR, path, options)


@text_options
def subj(path: Place = None, **options: Any) -> TextData:
    """SUBJ: 10,000 sentences, subjective or objective (Pang and Lee 2004); no split, hence folds."""
    return _load(SUBJ, path, options)


@text_options
def mpqa(path: Place = None, **options: Any) -> TextData:
    """MPQA: 10,603 short phrases of news, negative or positive (Wiebe et al. 2005); no split, hence folds.

    Phrases recur, 98 of them with both labels: no system can be right about all. The Hub's copy has no known commit and
    is read from its main branch; only its numbers of rows are checked.
    """
    return _load(MPQA, path, options)


@text_options
def cr(path: Place = None, **options: Any) -> TextData:
    """CR: 3,770 sentences of customers' reviews, negative or positive (Hu and Liu 2004); no split, hence folds."""
    return _load(CR, path, options)


@text_options
def trec(path: Place = None, fine: bool = False, **options: Any) -> TextData:
    """TREC: 5,452 + 500 questions by what they ask for, 6 classes, or 50 with `fine` (Li and Roth 2002).

    Ten test questions also occur among the training questions, as published. Validation rows are held out of training.
    """
    return _load(TREC_FINE if fine else TREC, path, options)


@text_options
def sst(path: Place = None, level: str = "phrases", **options: Any) -> TextData:
    """SST: movie reviews by sentiment (Socher et al. 2013), 67,349 training phrases or 6,920 sentences of 2 classes.

    Args:
        path: A local copy. In a folder of several sets, `level` picks the files binary_phrase_train, binary_sent_train or
            fine_sent_train, and theirs for validation and test.
        level: `phrases`, `sentences`, or `fine` (8,544 sentences of 5 classes). The Hub keeps the test labels of the phrases
            secret: the 872 validation sentences are tested on then, and the validation rows are phrases held out of training,
            which overlap with others.
        options: See `TextData`.
    """
    if level not in SST:
        raise InputError(f"sst: level={level!r}; use {', '.join(SST)}")
    return _load(SST[level], path, options)


@text_options(max_length=256)
def imdb(path: Place = None, **options: Any) -> TextData:
    """IMDb: 25,000 + 25,000 movie reviews, negative or positive (Maas et al. 2011), cut to 256 tokens.

    A local table of the columns label, id, rating, fold and text has its validation rows in fold `val`; else they are held out.
    """
    return _load(IMDB, path, options)


@text_options
def snli(path: Place = None, **options: Any) -> TextData:
    """SNLI: 549,367 pairs of sentences, entailment, neutral or contradiction (Bowman et al. 2015).

    Pairs without a gold label are left out. A local folder without training pairs trains on the 9,842 validation pairs, a part
    of which is held out: that is a small set of its own, as its sizes say, and its results are not those of SNLI.
    """
    return _load(SNLI, path, options)


@text_options
def mnli(path: Place = None, mismatched: bool = False, **options: Any) -> TextData:
    """MNLI: 392,702 pairs, entailment, neutral or contradiction (Williams et al. 2018), tested on the matched genres.

    The test labels are secret: the development pairs, 9,815 matched or 9,832 `mismatched`, are tested on, and validation
    pairs are held out of training.
    """
    return _load(MISMATCHED if mismatched else MATCHED, path, options)


@text_options
def scitail(path: Place = None, **options: Any) -> TextData:
    """SciTail: 23,596 + 1,304 + 2,126 pairs of science sentences, entailment or neutral (Khot et al. 2018)."""
    return _load(SCITAIL, path, options)


@text_options
def qqp(path: Place = None, **options: Any) -> TextData:
    """QQP: 404,276 pairs of Quora questions, duplicate or different, in GLUE's split.

    GLUE keeps its test labels secret: the 40,430 validation pairs are tested on, and others held out of training.
    """
    return _load(QQP, path, options)


@text_options
def qnli(path: Place = None, **options: Any) -> TextData:
    """QNLI: 104,743 questions and sentences, does the sentence answer (entailment) or not (Wang et al. 2018).

    GLUE keeps its test labels secret: the 5,463 validation pairs are tested on, and others held out of training. A local
    copy that has no more than these is cut into folds.
    """
    return _load(QNLI, path, options)


@text_options
def wikiqa(path: Place = None, **options: Any) -> TextData:
    """WikiQA: rank the sentences of a page by whether they answer a question (Yang et al. 2015).

    Questions without a right answer are left out, as usual: 873 to train on, 126 to validate, 243 to test.
    """
    return _load(WIKIQA, path, options)


def _load(record: TextSet, path: Place, options: Mapping[str, Any]) -> TextData:
    """Read a set from the Hub, or from a local copy."""
    splits = fetch(record) if path is None else read_copy(record, path)
    if record.task == "answer_ranking":
        splits = {name: answerable(table) for name, table in splits.items()}
    return TextData(splits, record.task, names=record.names, **options)
