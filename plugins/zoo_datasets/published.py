"""The published sets of texts and of pairs of texts.

Every preset reads the local copy `path`, or downloads the set from the Hugging Face Hub; see `text_set` and `parallel_set`. All
other options are those of `TextData` and `ParallelData`.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.options import find_file, resolve_path
from zoo.data.table import Table, read_table
from zoo.data.text import TextData
from zoo.errors import InputError
from zoo.registry import check_option, passes_options_to
from zoo_datasets.text_sets import BARE, HIDDEN, OFFICIAL, SENTENCE, TEXT, TRAIN_TEST, Layout, parallel_set, text_set

POLARITY = {"0": "negative", "1": "positive", "neg": "negative", "pos": "positive"}
FIVE = {"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"}
ENTAILMENT = {"0": "entailment", "1": "neutral", "2": "contradiction"}
WHOLE = {"train": ("train", "test")}

COARSE = {"ABBR": "abbreviation", "DESC": "description", "ENTY": "entity", "HUM": "human", "LOC": "location", "NUM": "number"}
_PARTS = {
    "ABBR": "abb exp",
    "DESC": "def desc manner reason",
    "ENTY": "animal body color cremat currency dismed event food instru lang letter other plant product religion sport "
    "substance symbol techmeth termeq veh word",
    "HUM": "desc gr ind title",
    "LOC": "city country mount other state",
    "NUM": "code count date dist money ord other perc period speed temp volsize weight",
}
FINE = {f"{kind}:{part}": f"{COARSE[kind]} {part}" for kind, parts in _PARTS.items() for part in parts.split()}

_PREMISE = Layout(("premise", "hypothesis"), "label")
_GOLD = Layout(("sentence1", "sentence2"), "gold_label")
_DUPLICATES = Layout(("question1", "question2"), "label")
_ANSWERS = Layout(("question", "sentence"), "label")
_GLUE = "nyu-mll/glue@bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"

mr = text_set(
    "mr",
    "cornell-movie-review-data/rotten_tomatoes@aa13bc287fa6fcab6daf52f0dfb9994269ffea28",
    {"train": ("train", "validation", "test")},
    names=POLARITY,
)
"""MR: 10,662 sentences of movie reviews, negative or positive (Pang and Lee 2005); no split, hence folds."""

subj = text_set(
    "subj", "SetFit/subj@f3c1162e678417f664d76b21864fdb87b0615fcf", WHOLE, names={"0": "objective", "1": "subjective"}
)
"""SUBJ: 10,000 sentences, subjective or objective (Pang and Lee 2004); no split, hence folds."""

# No full commit hash is known, hence the branch. The third split, `dev`, is not used: the other two are the original.
mpqa = text_set("mpqa", "jxm/mpqa@main", WHOLE, rows={"train": 8603, "test": 2000}, hub=SENTENCE, names=POLARITY)
"""MPQA: 10,603 short phrases of news, negative or positive (Wiebe et al. 2005); no split, hence folds.

Phrases repeat, 98 of them with both labels, so perfect accuracy is impossible. No commit of the Hub's copy is known: its main
branch is read, and only the numbers of rows are checked.
"""

cr = text_set("cr", "SetFit/CR@01e427e689e9d3a9097f85eab7a91ce937cf5f98", WHOLE, names=POLARITY)
"""CR: 3,770 sentences of customers' reviews, negative or positive (Hu and Liu 2004); no split, hence folds."""

trec = text_set(
    "trec",
    "SetFit/TREC-QC@0a34640b3cac3affef6f0abdfb81e3d0ecffcf92",
    TRAIN_TEST,
    variants=(
        "fine",
        {
            False: {
                "hub": Layout(("text",), "label_coarse_original"),
                "columns": (Layout(("text",), "label_coarse_original"), TEXT, Layout((2,), 0)),
                "names": COARSE,
            },
            True: {
                "hub": Layout(("text",), "label_original"),
                "columns": (Layout(("text",), "label_original"), TEXT, Layout((2,), 1)),
                "names": FINE,
            },
        },
    ),
)
"""TREC: 5,452 + 500 questions by the type of answer, 6 classes, or 50 with `fine` (Li and Roth 2002).

Ten test questions also occur among the training questions, as published. Validation rows are held out of training.
"""

sst = text_set(
    "sst",
    "stanfordnlp/sst2@8d51e7e4887a4caaa95b3fbebbf53c0490b58bbb",
    OFFICIAL,
    names=POLARITY,
    variants=(
        "level",
        {
            "phrases": {
                "splits": HIDDEN,
                "hub": SENTENCE,
                "files": {
                    "train": ("binary_phrase_train",),
                    "val": ("binary_phrasestyle_dev",),
                    "test": ("binary_phrasestyle_test",),
                },
            },
            "sentences": {
                "repository": "SetFit/sst2@00ea8ccb7a54b4e3780a3e51aa3f80361ff849c0",
                "files": {"train": ("binary_sent_train",), "val": ("binary_sent_dev",), "test": ("binary_sent_test",)},
            },
            "fine": {
                "repository": "SetFit/sst5@e51bdcd8cd3a30da231967c1a249ba59361279a3",
                "names": FIVE,
                "files": {"train": ("fine_sent_train",), "val": ("fine_sent_dev",), "test": ("fine_sent_test",)},
            },
        },
    ),
)
"""SST: movie reviews by sentiment (Socher et al. 2013), 67,349 training phrases or 6,920 sentences of 2 classes.

`level` is `phrases`, `sentences`, or `fine` (8,544 sentences of 5 classes). In a folder of several sets it selects the files
binary_phrase_train, binary_sent_train or fine_sent_train, and those for validation and test. On the Hub, the test labels of
the phrases are secret: the 872 validation sentences are for testing, and the validation rows are phrases held out of training,
which overlap with others.
"""

imdb = text_set(
    "imdb",
    "stanfordnlp/imdb@e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
    TRAIN_TEST,
    columns=(TEXT, SENTENCE, Layout((4,), 0, 3), BARE),
    names=POLARITY,
    defaults={"max_length": 256},
)
"""IMDb: 25,000 + 25,000 movie reviews, negative or positive (Maas et al. 2011), truncated to 256 tokens.

In a local table with the columns label, id, rating, fold and text, fold `val` is for validation; else rows are held out.
"""

snli = text_set(
    "snli",
    "stanfordnlp/snli@cdb5c3d5eed6ead6e5a341c8e56e669bb666725b",
    OFFICIAL,
    hub=_PREMISE,
    columns=(_PREMISE, _GOLD),
    names=ENTAILMENT,
    files={"train": ("snli_1.0_train",), "val": ("snli_1.0_dev",), "test": ("snli_1.0_test",)},
)
"""SNLI: 549,367 pairs of sentences, entailment, neutral or contradiction (Bowman et al. 2015).

Pairs without a gold label are removed. A local folder without training pairs trains on the 9,842 validation pairs, a part of
which is held out; such results are not comparable to those of SNLI.
"""

mnli = text_set(
    "mnli",
    "nyu-mll/multi_nli@da70db2af9d09693783c3320c4249840212ee221",
    {"train": ("train",), "test": ("validation_matched",)},
    hub=_PREMISE,
    columns=(_PREMISE, _GOLD),
    names=ENTAILMENT,
    files={"train": ("multinli_1.0_train",), "test": ("dev_matched", "multinli_1.0_dev_matched")},
)
"""MNLI: 392,702 pairs, entailment, neutral or contradiction (Williams et al. 2018), tested on the matched genres.

The test labels are secret: the 9,815 matched development pairs are for testing, and validation pairs are held out of training.
"""

# The repository's `tsv_format` lacks 499 of these training pairs, because quotation marks were parsed as quoting.
scitail = text_set(
    "scitail",
    "allenai/scitail@0cc4353235b289165dfde1c7c5d1be983f99ce44",
    OFFICIAL,
    config="snli_format",
    hub=_GOLD,
    columns=(_PREMISE, _GOLD, Layout((0, 1), 2)),
    names={"neutral": "neutral", "entails": "entailment"},
    files={"train": ("scitail_1.0_train",), "val": ("scitail_1.0_dev",), "test": ("scitail_1.0_test",)},
)
"""SciTail: 23,596 + 1,304 + 2,126 pairs of science sentences, entailment or neutral (Khot et al. 2018)."""

qqp = text_set(
    "qqp",
    _GLUE,
    HIDDEN,
    config="qqp",
    hub=_DUPLICATES,
    columns=(Layout(_DUPLICATES.texts, "is_duplicate"), _DUPLICATES),
    names={"0": "different", "1": "duplicate"},
)
"""QQP: 404,276 pairs of Quora questions, duplicate or different, in GLUE's split (Iyer et al. 2017; Wang et al. 2018).

The test labels are secret: the 40,430 validation pairs are for testing, and validation pairs are held out of training.
"""

qnli = text_set(
    "qnli", _GLUE, HIDDEN, config="qnli", hub=_ANSWERS, columns=(_ANSWERS,), names={"0": "entailment", "1": "not_entailment"}
)
"""QNLI: 104,743 questions and sentences; does the sentence answer (entailment) or not (Wang et al. 2018).

The test labels are secret: the 5,463 validation pairs are for testing, and validation pairs are held out of training. A local
copy with these pairs only is cut into folds.
"""

wikiqa = text_set(
    "wikiqa",
    "microsoft/wiki_qa@3f104672b5de699878fe7907afc486f0de325eb5",
    OFFICIAL,
    hub=Layout(("question", "answer"), "label", "question_id"),
    columns=(
        Layout(("question", "answer"), "label", "question_id"),
        Layout(("Question", "Sentence"), "Label", "QuestionID"),
        Layout((2, 3), 1, 0),
    ),
    files={"train": ("WikiQA-train",), "val": ("WikiQA-dev",), "test": ("WikiQA-test",)},
)
"""WikiQA: rank the sentences of a page by whether they answer a question (Yang et al. 2015).

Questions without a right answer are removed, as usual: 873 to train on, 126 to validate, 243 to test.
"""

multi30k = parallel_set(
    name="multi30k",
    repository="bentrevett/multi30k",
    rows={"de-en": {"train": 29000, "validation": 1014, "test": 1000}},
    stems={"test": ("test_2016_flickr",)},
)
"""Multi30k: 29,000 + 1,014 + 1,000 captions of pictures, English and German (Elliott et al. 2016), raw text.

A folder has train.en, val.en, test_2016_flickr.en and those of the other side; other languages work, too.
"""

iwslt15 = parallel_set(
    name="iwslt15", sides=("en", "vi"), stems={"val": ("tst2012",), "test": ("tst2013",)}, untrained=True, entities=True
)
"""IWSLT 2015: talks in English and Vietnamese, tokenized by Luong and Manning (2015): 133 thousand + 1,553 + 1,268 pairs.

HTML entities in the files (&quot; &apos; &#91;) are replaced, also for metrics. A folder without training pairs trains on
tst2012, 5 % of which are held out; such results are not comparable to those of IWSLT. A folder is required: no stable copy on
the Hub is known.
"""

wmt14 = parallel_set(
    name="wmt14",
    stems={"val": ("newstest2013",), "test": ("newstest2014",)},
    repository="wmt/wmt14",
    nested=True,
    rows={"de-en": {"train": 4508785, "validation": 3000, "test": 3003}},
    defaults={"vocab": 32000},
)
"""WMT 2014: 4.5 million pairs of English and German, or of another language of that year, tested on newstest2014."""

wmt16 = parallel_set(
    name="wmt16",
    stems={"val": ("newstest2015",), "test": ("newstest2016",)},
    repository="wmt/wmt16",
    nested=True,
    rows={"de-en": {"train": 4548885, "validation": 2169, "test": 2999}},
    defaults={"vocab": 32000},
)
"""WMT 2016: 4.5 million pairs of English and German, or of another language of that year, tested on newstest2016."""

shakespeare_style = parallel_set(name="shakespeare_style", sides=("modern", "original"))
"""Shakespeare's plays in modern English and as he wrote them (Xu et al. 2012; split of Jhamtani et al. 2017), tokenized.

18,395 + 1,218 + 1,462 pairs. A folder is required: no copy on the Hub is known.
"""

TEXT_SETS = (mr, subj, mpqa, cr, trec, sst, imdb, snli, mnli, scitail, qqp, qnli, wikiqa)


NUMBERS = {"VBZ": "singular", "VBP": "plural"}
TENTHS = {"test": (0,), "val": (1,), "train": tuple(range(2, 10))}  # the line numbers, modulo 10, of each split


@passes_options_to(TextData, tokenizer="space", lowercase=False)
def sva(path: str | Path | None = None, attractors: int = 0, **options: Any) -> TextData:
    """Subject-verb agreement of Linzen et al.: the words before a verb, and whether it is singular or plural.

    The corpus has 1.4 million rows. Its published random sample for validation, `numpred.val`, is cut by line number modulo 10
    into test (0), validation (1) and 12,616 training rows, so results differ from those of the papers, which trained on
    142,000. Rare words are replaced by their parts of speech in capitals, so case is kept.

    Args:
        path: The folder with `numpred.val` and `numpred.test.1` to `numpred.test.5` (.tsv, .tsv.gz). The Hub has no copy.
        attractors: Test on `numpred.test.K` instead: sentences with K nouns of the other number before the verb, 1..5.
        options: See `TextData`.
    """
    if path is None:
        message = "sva: not on the Hugging Face Hub; use sva(path=FOLDER) with the folder of numpred.val.tsv"
        raise InputError(message, code="missing")
    check_option("attractors", int, attractors, "[0, 5]")
    return TextData(partial(_sva_splits, path, attractors), "text_classification", names=NUMBERS, **options)


def _sva_splits(path: str | Path, attractors: int) -> dict[str, Table]:
    folder = resolve_path(path, "sva")
    sample = _numpred(folder, "numpred.val")
    tenth = np.arange(len(sample)) % 10
    splits = {name: sample.where(np.isin(tenth, tenths)) for name, tenths in TENTHS.items()}
    return splits | ({"test": _numpred(folder, f"numpred.test.{attractors}")} if attractors else {})


def _numpred(folder: Path, name: str) -> Table:
    file = find_file("sva", folder, [f"{name}.tsv", f"{name}.tsv.gz"])
    if file is None:
        raise InputError(f"sva: {folder} has no {name}.tsv or {name}.tsv.gz", code="missing")
    return read_table(file, text=1, label=0, header=False)
