"""Real files in ../shared/data, if present: the documented numbers of rows and labels."""

from collections import Counter

import numpy as np
import pytest
from zoo_datasets import images, published
from zoo_datasets.corpora import shakespeare
from zoo_datasets.published import imdb, mpqa, mr, qnli, snli, sst, subj, trec, wikiqa
from zoo_datasets.text_sets import read_copy

from zoo.data.module import ready

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


def test_other_sets(shared):
    pairs = ready(published.multi30k(shared / "multi30k_ende", tokenizer="space"))
    assert pairs.info.sizes == {"train": 29000, "val": 1014, "test": 1000}
    assert pairs.splits["train"].texts[1][1] == "Mehrere Männer mit Schutzhelmen bedienen ein Antriebsradsystem."
    talks = ready(published.iwslt15(shared / "iwslt15_envi_tst", vocab=500))
    assert talks.info.sizes == {"train": 1475, "val": 78, "test": 1268}
    style = ready(published.shakespeare_style(shared / "shakespeare_style", tokenizer="space"))
    assert style.info.sizes == {"train": 18395, "val": 1218, "test": 1462}
    plays = ready(shakespeare(path=shared / "tinyshakespeare"))
    assert (plays.info.sizes, plays.info.vocab_size) == ({"train": 1003854, "val": 55770, "test": 55770}, 2 + 65)


def test_images(shared):
    data = ready(images.cifar10(shared / "cifar10"))
    assert data.info.sizes == {"train": 45000, "val": 5000, "test": 10000}
    assert data.info.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=0.005)  # the published means
    data = ready(images.pneumoniamnist(shared / "pneumoniamnist"))
    assert data.info.sizes == {"train": 4708, "val": 524, "test": 624}
    assert np.bincount(data.splits["test"].labels).tolist() == [234, 390]
