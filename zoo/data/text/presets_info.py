"""The single texts of the papers: where the Hub keeps them, in what columns, and how many rows there are."""

from __future__ import annotations

from dataclasses import replace

from zoo.data.text.record import BARE, HIDDEN, OFFICIAL, POLARITY, SENTENCE, TEXT, TRAIN_TEST, Layout, TextSet

_WHOLE = {"train": ("train", "test")}

MR = TextSet(
    name="mr",
    citation="Pang and Lee 2005",
    repository="cornell-movie-review-data/rotten_tomatoes",
    revision="aa13bc287fa6fcab6daf52f0dfb9994269ffea28",
    splits={"train": ("train", "validation", "test")},
    rows={"train": 8530, "validation": 1066, "test": 1066},
    names=POLARITY,
)
SUBJ = TextSet(
    name="subj",
    citation="Pang and Lee 2004",
    repository="SetFit/subj",
    revision="f3c1162e678417f664d76b21864fdb87b0615fcf",
    splits=_WHOLE,
    rows={"train": 8000, "test": 2000},
    names={"0": "objective", "1": "subjective"},
)
# Of this one no commit is known in full, hence the branch. Its third split, `dev`, is left out: the other two already are
# the 10,603 phrases of the original.
MPQA = TextSet(
    name="mpqa",
    citation="Wiebe, Wilson and Cardie 2005",
    repository="jxm/mpqa",
    revision="main",
    splits=_WHOLE,
    rows={"train": 8603, "test": 2000},
    hub=SENTENCE,
    names=POLARITY,
)
CR = TextSet(
    name="cr",
    citation="Hu and Liu 2004",
    repository="SetFit/CR",
    revision="01e427e689e9d3a9097f85eab7a91ce937cf5f98",
    splits=_WHOLE,
    rows={"train": 3394, "test": 376},
    names=POLARITY,
)
IMDB = TextSet(
    name="imdb",
    citation="Maas et al. 2011",
    repository="stanfordnlp/imdb",
    revision="e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
    splits=TRAIN_TEST,
    rows={"train": 25000, "test": 25000},
    columns=(TEXT, SENTENCE, Layout((4,), 0, 3), BARE),
    names=POLARITY,
)

COARSE = {
    "ABBR": "abbreviation",
    "DESC": "description",
    "ENTY": "entity",
    "HUM": "human",
    "LOC": "location",
    "NUM": "number",
}
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

TREC = TextSet(
    name="trec",
    citation="Li and Roth 2002",
    repository="SetFit/TREC-QC",
    revision="0a34640b3cac3affef6f0abdfb81e3d0ecffcf92",
    splits=TRAIN_TEST,
    rows={"train": 5452, "test": 500},
    hub=Layout(("text",), "label_coarse_original"),
    columns=(Layout(("text",), "label_coarse_original"), TEXT, Layout((2,), 0)),
    names=COARSE,
)
TREC_FINE = replace(
    TREC,
    hub=Layout(("text",), "label_original"),
    columns=(Layout(("text",), "label_original"), TEXT, Layout((2,), 1)),
    names=FINE,
)

_PHRASES = TextSet(
    name="sst",
    citation="Socher et al. 2013",
    repository="stanfordnlp/sst2",
    revision="8d51e7e4887a4caaa95b3fbebbf53c0490b58bbb",
    splits=HIDDEN,
    rows={"train": 67349, "validation": 872},
    hub=SENTENCE,
    names=POLARITY,
    files={"train": ("binary_phrase_train",), "val": ("binary_phrasestyle_dev",), "test": ("binary_phrasestyle_test",)},
)
_SENTENCES = replace(
    _PHRASES,
    repository="SetFit/sst2",
    revision="00ea8ccb7a54b4e3780a3e51aa3f80361ff849c0",
    splits=OFFICIAL,
    rows={"train": 6920, "validation": 872, "test": 1821},
    hub=TEXT,
    files={"train": ("binary_sent_train",), "val": ("binary_sent_dev",), "test": ("binary_sent_test",)},
)
_FIVE = replace(
    _SENTENCES,
    repository="SetFit/sst5",
    revision="e51bdcd8cd3a30da231967c1a249ba59361279a3",
    rows={"train": 8544, "validation": 1101, "test": 2210},
    names={"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"},
    files={"train": ("fine_sent_train",), "val": ("fine_sent_dev",), "test": ("fine_sent_test",)},
)
SST = {"phrases": _PHRASES, "sentences": _SENTENCES, "fine": _FIVE}

SINGLE = (MR, SUBJ, MPQA, CR, IMDB, TREC, TREC_FINE, *SST.values())
