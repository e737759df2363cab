"""The pairs of texts of the papers: where the Hub keeps them, in what columns, and how many rows there are."""

from __future__ import annotations

from dataclasses import replace

from zoo.data.text.record import HIDDEN, OFFICIAL, Layout, TextSet

ENTAILMENT = {"0": "entailment", "1": "neutral", "2": "contradiction"}

_GLUE = "nyu-mll/glue"
_GLUE_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
_PREMISE = Layout(("premise", "hypothesis"), "label")
_GOLD = Layout(("sentence1", "sentence2"), "gold_label")
_QUESTIONS = ("question1", "question2")

SNLI = TextSet(
    name="snli",
    citation="Bowman et al. 2015",
    repository="stanfordnlp/snli",
    revision="cdb5c3d5eed6ead6e5a341c8e56e669bb666725b",
    splits=OFFICIAL,
    rows={"train": 550152, "validation": 10000, "test": 10000},
    hub=_PREMISE,
    columns=(_PREMISE, _GOLD),
    names=ENTAILMENT,
    task="pair_classification",
    files={"train": ("snli_1.0_train",), "val": ("snli_1.0_dev",), "test": ("snli_1.0_test",)},
)

MATCHED = TextSet(
    name="mnli",
    citation="Williams, Nangia and Bowman 2018",
    repository="nyu-mll/multi_nli",
    revision="da70db2af9d09693783c3320c4249840212ee221",
    splits={"train": ("train",), "test": ("validation_matched",)},
    rows={"train": 392702, "validation_matched": 9815, "validation_mismatched": 9832},
    hub=_PREMISE,
    columns=(_PREMISE, _GOLD),
    names=ENTAILMENT,
    task="pair_classification",
    files={"train": ("multinli_1.0_train",), "test": ("dev_matched", "multinli_1.0_dev_matched")},
)
MISMATCHED = replace(
    MATCHED,
    splits={"train": ("train",), "test": ("validation_mismatched",)},
    files={"train": ("multinli_1.0_train",), "test": ("dev_mismatched", "multinli_1.0_dev_mismatched")},
)

# The repository's `tsv_format` lacks 499 of these training pairs: somebody took quotation marks for quoting.
SCITAIL = TextSet(
    name="scitail",
    citation="Khot, Sabharwal and Clark 2018",
    repository="allenai/scitail",
    config="snli_format",
    revision="0cc4353235b289165dfde1c7c5d1be983f99ce44",
    splits=OFFICIAL,
    rows={"train": 23596, "validation": 1304, "test": 2126},
    hub=_GOLD,
    columns=(_PREMISE, _GOLD, Layout((0, 1), 2)),
    names={"neutral": "neutral", "entails": "entailment"},
    task="pair_classification",
    files={"train": ("scitail_1.0_train",), "val": ("scitail_1.0_dev",), "test": ("scitail_1.0_test",)},
)
QQP = TextSet(
    name="qqp",
    citation="Iyer, Dandekar and Csernai 2017; Wang et al. 2018",
    repository=_GLUE,
    config="qqp",
    revision=_GLUE_REVISION,
    splits=HIDDEN,
    rows={"train": 363846, "validation": 40430},
    hub=Layout(_QUESTIONS, "label"),
    columns=(Layout(_QUESTIONS, "is_duplicate"), Layout(_QUESTIONS, "label")),
    names={"0": "different", "1": "duplicate"},
    task="pair_classification",
)
QNLI = TextSet(
    name="qnli",
    citation="Rajpurkar et al. 2016; Wang et al. 2018",
    repository=_GLUE,
    config="qnli",
    revision=_GLUE_REVISION,
    splits=HIDDEN,
    rows={"train": 104743, "validation": 5463},
    hub=Layout(("question", "sentence"), "label"),
    columns=(Layout(("question", "sentence"), "label"),),
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
    hub=Layout(("question", "answer"), "label", "question_id"),
    columns=(
        Layout(("question", "answer"), "label", "question_id"),
        Layout(("Question", "Sentence"), "Label", "QuestionID"),
        Layout((2, 3), 1, 0),
    ),
    task="answer_ranking",
    files={"train": ("WikiQA-train",), "val": ("WikiQA-dev",), "test": ("WikiQA-test",)},
)

PAIRS = (SNLI, MATCHED, MISMATCHED, SCITAIL, QQP, QNLI, WIKIQA)
