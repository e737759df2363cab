"""Real files in ../shared/data, if present: the documented numbers of rows and labels."""

from collections import Counter

import pytest
from zoo_datasets.published import imdb, mpqa, mr, qnli, snli, sst, subj, trec, wikiqa
from zoo_datasets.text_sets import read_copy

TABLES = [
    (mr.record, "mr", {"train": 10662}, {"0": 5331, "1": 5331}),
    (subj.record, "subj", {"train": 10000}, {"0": 5000, "1": 5000}),
    (mpqa.record, "mpqa", {"train": 10603}, {"0": 7292, "1": 3311}),
    (
        trec.record.variant(False),
        "trec",
        {"train": 5452, "test": 500},
        {"ENTY": 1250, "HUM": 1223, "DESC": 1162, "NUM": 896, "LOC": 835, "ABBR": 86},
    ),
    (sst.record.variant("phrases"), "sst", {"train": 67349, "val": 872, "test": 1821}, {"0": 29780, "1": 37569}),
    (sst.record.variant("sentences"), "sst", {"train": 6920, "val": 872, "test": 1821}, {"0": 3310, "1": 3610}),
    (sst.record.variant("fine"), "sst", {"train": 8544, "val": 1101, "test": 2210}, None),
    (imdb.record, "imdb", {"train": 20000, "val": 5000, "test": 25000}, {"0": 10000, "1": 10000}),
    (snli.record, "snli_devtest", {"train": 9842, "test": 9824}, {"0": 3329, "1": 3235, "2": 3278}),
    (qnli.record, "qnli_devtest", {"train": 5463}, {"entailment": 2702, "not_entailment": 2761}),
    (wikiqa.record, "wikiqa", {"train": 8672, "val": 1130, "test": 2351}, {"1": 1040, "0": 7632}),
]


@pytest.mark.parametrize(("record", "folder", "sizes", "labels"), TABLES, ids=lambda value: getattr(value, "repository", None))
def test_rows_and_labels(shared, record, folder, sizes, labels):
    if not (shared / folder).is_dir():
        pytest.skip(f"no ../shared/data/{folder}")
    tables = read_copy(record, shared / folder)
    assert {split: len(table) for split, table in tables.items()} == sizes
    assert labels is None or Counter(tables["train"].labels) == labels
