"""Data sets never change: digests of embedded and generated ones, and rows of the files in ../shared/data, if present."""

import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
from zoo_datasets import images, published
from zoo_datasets.corpora import shakespeare
from zoo_datasets.published import imdb, mpqa, mr, qnli, snli, sst, subj, trec, wikiqa
from zoo_datasets.text_sets import read_copy

from zoo.data import ready

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


PINNED = [
    # data, SHA-256 of the content, and of the order of rows in epochs 0 and 1 with batches of 16
    ("digits", "412c2c70d4271dac", "8a6b753a5a68f5c2", "72bd36097d340814"),
    ("glosses(limit=300)", "0de4a9fbd001a797", "ff44c8d85f9b4f63", "39f3377b8014a85a"),
    ("glosses(task=pairs)", "3f16f36c8ac1774f", "3790d78c37a891b1", "5603cec1b89009dc"),
    ("glosses(task=seq2seq)", "b8e9b54d1945c17c", "fb952acd45b7fc51", "c402f4f07349de07"),
    ("agreement", "400a4f465899dc63", "1b418441bd7a57f2", "837edaa3249e827c"),
    ("agreement(attractors=2,rows=1000)", "a54d87869117ea37", "13e26b50047789cf", "57774948c532a008"),
    ("entailment", "794746f77095df91", "80479e711ce95d22", "e62687a032ec2402"),
    ("hamilton", "7fc39509b646580a", "2ac5266163b98a55", "663f3ea1db026c9b"),
    ("rotation", "a8f90a6360f27f31", "2ac5266163b98a55", "663f3ea1db026c9b"),
    ("mlu(train=5000,val=100,test=200)", "6a6624ed9175211c", "01bbe0dbe52bc471", "1dc839af90e32ed8"),
]


def hash_keys(keys):
    sha = hashlib.sha256()

    def add(value):
        if isinstance(value, torch.Tensor):
            sha.update(str((value.dtype, tuple(value.shape))).encode())
            sha.update(value.numpy().tobytes())
        elif isinstance(value, (list, tuple)):
            for part in value:
                add(part)
        else:
            sha.update(repr(value).encode())

    add(keys)
    return sha.hexdigest()[:16]


@pytest.mark.parametrize(("spec", "content", "first", "second"), PINNED, ids=[row[0] for row in PINNED])
def test_content_and_order_are_pinned(built, spec, content, first, second):
    data = built(spec)
    sampler = data.train_dataloader().sampler
    assert data.info.sha256.startswith(content)
    assert [hash_keys(list(sampler)) for _ in range(2)] == [first, second]
