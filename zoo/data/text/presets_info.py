"""Where the text sets of the papers lie on the Hub, in what columns, and how many rows they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TRAIN_TEST = {"train": ("train",), "test": ("test",)}
WHOLE = {"train": ("train", "test")}
OFFICIAL = {"train": ("train",), "val": ("validation",), "test": ("test",)}
HIDDEN = {"train": ("train",), "test": ("validation",)}

POLARITY = {"0": "negative", "1": "positive", "neg": "negative", "pos": "positive"}
ENTAILMENT = {"0": "entailment", "1": "neutral", "2": "contradiction"}


@dataclass(frozen=True)
class Columns:
    """The columns of a table, by the names in its header or by their numbers.

    Attributes:
        texts: One column of texts, or two.
        label: The column of labels.
        group: For ranking, the column that tells the questions apart.
    """

    texts: tuple[str, ...] | tuple[int, ...]
    label: str | int
    group: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class TextSet:
    """One data set: where the Hub keeps it, what it holds, and the forms in which it lies on disks.

    Attributes:
        name: Name of the preset.
        citation: Who made the data.
        repository: The data set repository on the Hub.
        config: Which of the repository's tables.
        revision: The commit that is read. If it is a branch (`pinned` is false), no commit could be established, and `rows`
            alone notices a change.
        splits: The Hub's splits that make up ours; several are laid end to end.
        rows: Rows of the Hub's splits, those without a label included.
        hub: The columns on the Hub.
        columns: The columns of local files: the first of these that a file has are read.
        names: Labels as they are written, and what people see. Rows of no other labels than `unlabelled` are left out.
        task: See `TextData`.
        files: What local files are called, endings aside, beyond train, dev, val, validation and test.
    """

    name: str
    citation: str
    repository: str
    config: str | None = None
    revision: str
    splits: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, int]
    hub: Columns
    columns: tuple[Columns, ...] = ()
    names: Mapping[str, str] | None
    task: str = "text_classification"
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which cannot change."""
        return len(self.revision) == 40

    @property
    def hidden(self) -> bool:
        """Whether the labels of the official test split are secret, so that the validation split is tested on."""
        return self.splits is HIDDEN


TEXT = Columns(("text",), "label")
SENTENCE = Columns(("sentence",), "label")
BARE = Columns((1,), 0)
GLUE = "nyu-mll/glue"
GLUE_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"

MR = TextSet(
    name="mr",
    citation="Pang and Lee 2005",
    repository="cornell-movie-review-data/rotten_tomatoes",
    revision="aa13bc287fa6fcab6daf52f0dfb9994269ffea28",
    splits={"train": ("train", "validation", "test")},
    rows={"train": 8530, "validation": 1066, "test": 1066},
    hub=TEXT,
    columns=(TEXT, SENTENCE, BARE),
    names=POLARITY,
)
SUBJ = TextSet(
    name="subj",
    citation="Pang and Lee 2004",
    repository="SetFit/subj",
    revision="f3c1162e678417f664d76b21864fdb87b0615fcf",
    splits=WHOLE,
    rows={"train": 8000, "test": 2000},
    hub=TEXT,
    columns=(TEXT, SENTENCE, BARE),
    names={"0": "objective", "1": "subjective"},
)
# No commit of this one is known in full, hence the branch. Its third split, `dev`, repeats rows of the other two, which
# together are the 10,603 phrases of the original.
MPQA = TextSet(
    name="mpqa",
    citation="Wiebe, Wilson and Cardie 2005",
    repository="jxm/mpqa",
    revision="main",
    splits=WHOLE,
    rows={"train": 8603, "test": 2000},
    hub=SENTENCE,
    columns=(TEXT, SENTENCE, BARE),
    names=POLARITY,
)
CR = TextSet(
    name="cr",
    citation="Hu and Liu 2004",
    repository="SetFit/CR",
    revision="01e427e689e9d3a9097f85eab7a91ce937cf5f98",
    splits=WHOLE,
    rows={"train": 3394, "test": 376},
    hub=TEXT,
    columns=(TEXT, SENTENCE, BARE),
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
_FINE = {
    "ABBR": "abb exp",
    "DESC": "def desc manner reason",
    "ENTY": "animal body color cremat currency dismed event food instru lang letter other plant product religion sport "
    "substance symbol techmeth termeq veh word",
    "HUM": "desc gr ind title",
    "LOC": "city country mount other state",
    "NUM": "code count date dist money ord other perc period speed temp volsize weight",
}
FINE = {f"{kind}:{part}": f"{COARSE[kind]} {part}" for kind, parts in _FINE.items() for part in parts.split()}

TREC = TextSet(
    name="trec",
    citation="Li and Roth 2002",
    repository="SetFit/TREC-QC",
    revision="0a34640b3cac3affef6f0abdfb81e3d0ecffcf92",
    splits=TRAIN_TEST,
    rows={"train": 5452, "test": 500},
    hub=Columns(("text",), "label_coarse_original"),
    columns=(Columns(("text",), "label_coarse_original"), TEXT, Columns((2,), 0)),
    names=COARSE,
)
TREC_FINE = TextSet(
    name="trec",
    citation=TREC.citation,
    repository=TREC.repository,
    revision=TREC.revision,
    splits=TREC.splits,
    rows=TREC.rows,
    hub=Columns(("text",), "label_original"),
    columns=(Columns(("text",), "label_original"), TEXT, Columns((2,), 1)),
    names=FINE,
)

SST_PHRASES = TextSet(
    name="sst",
    citation="Socher et al. 2013",
    repository="stanfordnlp/sst2",
    revision="8d51e7e4887a4caaa95b3fbebbf53c0490b58bbb",
    splits=HIDDEN,
    rows={"train": 67349, "validation": 872},
    hub=SENTENCE,
    columns=(SENTENCE, TEXT, BARE),
    names=POLARITY,
    files={"train": ("binary_phrase_train",), "val": ("binary_phrasestyle_dev",), "test": ("binary_phrasestyle_test",)},
)
SST_SENTENCES = TextSet(
    name="sst",
    citation=SST_PHRASES.citation,
    repository="SetFit/sst2",
    revision="00ea8ccb7a54b4e3780a3e51aa3f80361ff849c0",
    splits=OFFICIAL,
    rows={"train": 6920, "validation": 872, "test": 1821},
    hub=TEXT,
    columns=(SENTENCE, TEXT, BARE),
    names=POLARITY,
    files={"train": ("binary_sent_train",), "val": ("binary_sent_dev",), "test": ("binary_sent_test",)},
)
SST_FINE = TextSet(
    name="sst",
    citation=SST_PHRASES.citation,
    repository="SetFit/sst5",
    revision="e51bdcd8cd3a30da231967c1a249ba59361279a3",
    splits=OFFICIAL,
    rows={"train": 8544, "validation": 1101, "test": 2210},
    hub=TEXT,
    columns=(SENTENCE, TEXT, BARE),
    names={"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"},
    files={"train": ("fine_sent_train",), "val": ("fine_sent_dev",), "test": ("fine_sent_test",)},
)
SST = {"phrases": SST_PHRASES, "sentences": SST_SENTENCES, "fine": SST_FINE}

IMDB = TextSet(
    name="imdb",
    citation="Maas et al. 2011",
    repository="stanfordnlp/imdb",
    revision="e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
    splits=TRAIN_TEST,
    rows={"train": 25000, "test": 25000},
    hub=TEXT,
    columns=(TEXT, SENTENCE, Columns((4,), 0, 3), BARE),
    names=POLARITY,
)

PREMISE = Columns(("premise", "hypothesis"), "label")
GOLD = Columns(("sentence1", "sentence2"), "gold_label")
SNLI = TextSet(
    name="snli",
    citation="Bowman et al. 2015",
    repository="stanfordnlp/snli",
    revision="cdb5c3d5eed6ead6e5a341c8e56e669bb666725b",
    splits=OFFICIAL,
    rows={"train": 550152, "validation": 10000, "test": 10000},
    hub=PREMISE,
    columns=(PREMISE, GOLD),
    names=ENTAILMENT,
    task="pair_classification",
    files={"train": ("snli_1.0_train",), "val": ("snli_1.0_dev",), "test": ("snli_1.0_test",)},
)


def _mnli(genres: str) -> TextSet:
    return TextSet(
        name="mnli",
        citation="Williams, Nangia and Bowman 2018",
        repository="nyu-mll/multi_nli",
        revision="da70db2af9d09693783c3320c4249840212ee221",
        splits={"train": ("train",), "test": (f"validation_{genres}",)},
        rows={"train": 392702, "validation_matched": 9815, "validation_mismatched": 9832},
        hub=PREMISE,
        columns=(PREMISE, GOLD),
        names=ENTAILMENT,
        task="pair_classification",
        files={"train": ("multinli_1.0_train",), "test": (f"dev_{genres}", f"multinli_1.0_dev_{genres}")},
    )


MNLI = {False: _mnli("matched"), True: _mnli("mismatched")}

# Its `tsv_format` lacks 499 of the 23,596 training pairs: quotation marks were read as quoting.
SCITAIL = TextSet(
    name="scitail",
    citation="Khot, Sabharwal and Clark 2018",
    repository="allenai/scitail",
    config="snli_format",
    revision="0cc4353235b289165dfde1c7c5d1be983f99ce44",
    splits=OFFICIAL,
    rows={"train": 23596, "validation": 1304, "test": 2126},
    hub=GOLD,
    columns=(PREMISE, GOLD, Columns((0, 1), 2)),
    names={"neutral": "neutral", "entails": "entailment"},
    task="pair_classification",
    files={"train": ("scitail_1.0_train",), "val": ("scitail_1.0_dev",), "test": ("scitail_1.0_test",)},
)
QQP = TextSet(
    name="qqp",
    citation="Iyer, Dandekar and Csernai 2017; Wang et al. 2018",
    repository=GLUE,
    config="qqp",
    revision=GLUE_REVISION,
    splits=HIDDEN,
    rows={"train": 363846, "validation": 40430},
    hub=Columns(("question1", "question2"), "label"),
    columns=(Columns(("question1", "question2"), "is_duplicate"), Columns(("question1", "question2"), "label")),
    names={"0": "different", "1": "duplicate"},
    task="pair_classification",
)
QNLI = TextSet(
    name="qnli",
    citation="Wang et al. 2018; Rajpurkar et al. 2016",
    repository=GLUE,
    config="qnli",
    revision=GLUE_REVISION,
    splits=HIDDEN,
    rows={"train": 104743, "validation": 5463},
    hub=Columns(("question", "sentence"), "label"),
    columns=(Columns(("question", "sentence"), "label"),),
    names={"0": "entailment", "1": "not_entailment"},
    task="pair_classification",
)
WIKIQA = TextSet(
    name="wikiqa",
    citation="Yang, Yih and Meek 2015",
    repository="microsoft/wiki_qa",
    revision="3f104672b5de699878fe7907afc486f0de325eb5",
    splits=OFFICIAL,
    rows={"train": 20360, "validation": 2733, "test": 6165},
    hub=Columns(("question", "answer"), "label", "question_id"),
    columns=(
        Columns(("question", "answer"), "label", "question_id"),
        Columns(("Question", "Sentence"), "Label", "QuestionID"),
        Columns((2, 3), 1, 0),
    ),
    names=None,
    task="answer_ranking",
    files={"train": ("WikiQA-train",), "val": ("WikiQA-dev",), "test": ("WikiQA-test",)},
)
ALL = (MR, SUBJ, MPQA, CR, TREC, TREC_FINE, *SST.values(), IMDB, SNLI, *MNLI.values(), SCITAIL, QQP, QNLI, WIKIQA)
