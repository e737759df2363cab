"""Published sets of texts, from local copies and from the Hub."""

import gzip
import re
from dataclasses import replace

import datasets
import pytest
from zoo_datasets import published
from zoo_datasets.published import sva
from zoo_datasets.text_sets import answerable, fetch_text_set, read_copy

from tests.errors import raises
from zoo import registry
from zoo.data.module import ready
from zoo.data.table import Table


def variants(record):
    return [record] if record.variants is None else [record.variant(value) for value in record.variants[1]]


ALL = [record for preset in published.TEXT_SETS for record in variants(preset.record)]
MR, QNLI, SNLI = published.mr.record, published.qnli.record, published.snli.record
SST = {level: published.sst.record.variant(level) for level in published.sst.record.variants[1]}
NAMES = ("mr", "subj", "mpqa", "cr", "trec", "sst", "imdb", "snli", "mnli", "scitail", "qqp", "qnli", "wikiqa")


def labels_of(record):
    return list(record.names or {"0": "", "1": ""})


def write(file, record, layout, rows=4, label=None):
    """Write a table in one of a record's layouts, with an extra column if the columns have names."""
    names = [*layout.all, "extra"] if layout.width is None else list(range(layout.width))
    known = labels_of(record)
    lines = ["\t".join(map(str, names))] if layout.width is None else []
    for i in range(rows):
        values = {name: f'word " {name} {i} .' for name in names} | {layout.label: label or known[i % len(known)]}
        values |= {} if layout.group is None else {layout.group: str(i // 2)}
        lines.append("\t".join(values[name] for name in names))
    content = "\n".join(lines).encode() + b"\n"
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def stem(record, split, general):
    return record.files.get(split, (general,))[-1]


@pytest.mark.parametrize("record", ALL, ids=lambda record: f"{record.name}-{record.hub.label}")
def test_every_layout_is_read(tmp_path, record):
    for number, layout in enumerate(record.columns):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder / f"{stem(record, 'train', 'train')}.tsv.gz", record, layout, 6)
        write(folder / f"{stem(record, 'test', 'test')}.tsv", record, layout, 4)
        found = read_copy(record, folder)
        assert {split: len(table) for split, table in found.items()} == {"train": 6, "test": 4}
        assert [column[5] for column in found["train"].texts] == [f'word " {name} 5 .' for name in layout.texts]
        assert found["test"].location(0).endswith(f".tsv:{2 if layout.width is None else 1}")
        assert set(found["train"].labels) <= set(labels_of(record))


def test_validation_rows_replace_secret_test_labels(tmp_path):
    write(tmp_path / "train.tsv", QNLI, QNLI.columns[0], 40)
    write(tmp_path / "dev.tsv", QNLI, QNLI.columns[0], 8)
    (tmp_path / "test.tsv").write_text("index\tquestion\tsentence\n0\twhy\tso\n")
    data = ready(published.qnli(tmp_path))
    assert data.info.sizes == {"train": 36, "val": 4, "test": 8}
    assert data.has_split
    write(tmp_path / "test.tsv", QNLI, QNLI.columns[0], 6, label="-1")
    assert ready(published.qnli(tmp_path)).info.sizes["test"] == 8
    write(tmp_path / "test.tsv", QNLI, QNLI.columns[0], 6)
    assert ready(published.qnli(tmp_path)).info.sizes == {"train": 40, "val": 8, "test": 6}


def test_validation_pairs_replace_missing_training_pairs(tmp_path):
    write(tmp_path / "validation.tsv", SNLI, SNLI.columns[0], 60)
    write(tmp_path / "test.tsv", SNLI, SNLI.columns[0], 9)
    assert ready(published.snli(tmp_path)).info.sizes == {"train": 54, "val": 6, "test": 9}
    (tmp_path / "test.tsv").unlink()
    data = ready(published.snli(tmp_path))
    assert data.info.sizes == {"train": 49, "val": 5, "test": 6}
    assert not data.has_split


def test_a_fold_column_makes_the_validation_split(tmp_path):
    rows = [f"{i % 2}\t{i}\t9\t{'val' if i % 5 == 0 else 'train'}\tfilm {i}" for i in range(20)]
    (tmp_path / "train.tsv").write_text("\n".join(rows))
    (tmp_path / "test.tsv").write_text("\n".join(row.replace("train", "test").replace("val", "test") for row in rows))
    data = ready(published.imdb(tmp_path))
    assert data.info.sizes == {"train": 16, "val": 4, "test": 20}
    assert all(int(text.split()[1]) % 5 == 0 for text in data.splits["val"].texts[0])
    assert data.info.max_length == 256


def test_files_of_sst_levels(tmp_path):
    for rows, (level, record) in enumerate(SST.items(), 5):
        for split in ("train", "val", "test"):
            write(tmp_path / f"{stem(record, split, split)}.tsv", record, record.columns[-1], 4 * rows)
        assert ready(published.sst(tmp_path, level=level)).info.sizes["train"] == 4 * rows
    with raises("invalid", "level='words'", "phrases, sentences, fine"):
        ready(published.sst(tmp_path, level="words"))


def test_ranking_removes_questions_without_a_right_answer(tmp_path):
    rows = [f"Q{i // 4}\twhat {i // 4}\tD\tT\tS\tanswer {i}\t{int(i % 4 == 1 and i // 4 != 2)}" for i in range(40)]
    for name in ("train", "dev", "test"):
        head = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
        (tmp_path / f"WikiQA-{name}.tsv").write_text(head + "\n".join(rows))
    data = ready(published.wikiqa(tmp_path))
    assert data.info.sizes == {"train": 36, "val": 36, "test": 36}
    assert "Q2" not in data.splits["test"].groups


def test_invalid_copies_raise(tmp_path):
    with raises("missing", "mr: ", "nowhere"):
        ready(published.mr(tmp_path / "nowhere"))
    (tmp_path / "notes.txt").write_text("x")
    with raises("missing", "snli: ", "snli_1.0_train.tsv", "notes.txt"):
        ready(published.snli(tmp_path))
    (tmp_path / "train.tsv").write_text("a\tb\tc\nd\te\tf\n")
    with raises("data", "train.tsv: mr ", "text, label, or sentence, label, or 1, 0"):
        ready(published.mr(tmp_path))
    (tmp_path / "train.tsv").write_text("0\tfine\n1\tgood\n7\tbad\n")
    with raises("data", "train.tsv:3: ", "'7'", "'0', '1'"):
        ready(published.mr(tmp_path))
    (tmp_path / "train.jsonl").write_text("{")
    with raises("conflict", "mr: ", "train.tsv and train.jsonl"):
        ready(published.mr(tmp_path))
    with raises("data", "train.jsonl:1: not JSON"):
        ready(published.mr(tmp_path / "train.jsonl"))
    (tmp_path / "train.tsv.gz").write_bytes(b"no gzip")
    with raises("data", "train.tsv.gz: "):
        ready(published.mr(tmp_path / "train.tsv.gz"))


@pytest.fixture
def agreement_files(tmp_path):
    for name, rows in (("val", 100), ("test.2", 7)):
        lines = [f"{('VBZ', 'VBP', 'VBZ')[i % 3]}\tthe NN {name} {i}" for i in range(rows)]
        (tmp_path / f"numpred.{name}.tsv").write_text("\n".join(lines))
    return tmp_path


def test_agreement_is_split_by_line_number(agreement_files):
    data = ready(sva(agreement_files))
    assert data.info.sizes == {"train": 80, "val": 10, "test": 10}
    assert data.info.classes == ("singular", "plural")
    numbers = {split: {int(text.split()[-1]) % 10 for text in table.texts[0]} for split, table in data.splits.items()}
    assert numbers == {"train": set(range(2, 10)), "val": {1}, "test": {0}}
    assert {"NN", "val"} <= data.tokenizer.backend.get_vocab().keys()


def test_agreement_by_attractors_keeps_the_training_rows(agreement_files):
    data = ready(sva(agreement_files, attractors=2))
    assert data.info.sizes == {"train": 80, "val": 10, "test": 7}
    assert list(data.splits["train"].texts[0]) == list(ready(sva(agreement_files)).splits["train"].texts[0])
    for wrong, code in ((3, "missing"), (6, "invalid"), (-1, "invalid")):
        with raises(code, wrong):
            ready(sva(agreement_files, attractors=wrong))
    with raises("missing", "sva(path=FOLDER)"):
        ready(sva())


ENTRIES = [entry for entry in registry.entries("datasets") if entry.ours]


def hub_labels(record):
    """Return the labels on the Hub, as numbers if possible, and the marker of a missing label."""
    names = record.names or {"0": "irrelevant", "1": "relevant"}
    numbers = [int(label) for label in names if label.isdigit()]
    return (numbers, -1) if numbers else (list(names), "-")


def parts_of(record, rows=24):
    """Return the splits of a set, each with a last row without a label."""
    labels, missing = hub_labels(record)
    columns = {str(name): [f"text {name} {i}" for i in range(rows + 1)] for name in record.hub.all}
    columns[str(record.hub.label)] = [labels[i % len(labels)] for i in range(rows)] + [missing]
    part = datasets.Dataset.from_dict({**columns, "idx": list(range(rows + 1))})
    return datasets.DatasetDict({name: part for parts in record.splits.values() for name in parts})


def patch_hub(monkeypatch, record, parts):
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **options: asked.append((args, options)) or parts)
    return replace(record, variants=None, rows={name: len(part) for name, part in parts.items()}), asked


@pytest.mark.parametrize("record", ALL, ids=lambda record: f"{record.name}-{record.hub.label}")
def test_sets_are_loaded_as_their_records_say(monkeypatch, record):
    record, asked = patch_hub(monkeypatch, record, parts_of(record))
    tables = fetch_text_set(record)
    repository, revision = record.repository.split("@")
    assert asked == [((repository, record.config), {"revision": revision})]
    assert set(tables) == set(record.splits)
    for split, table in tables.items():
        assert len(table) == 24 * len(record.splits[split])
        assert set(table.labels) <= set(map(str, hub_labels(record)[0]))
        assert [column[3] for column in table.texts] == [f"text {name} 3" for name in record.hub.texts]
        assert (table.groups is None) == (record.hub.group is None)


@pytest.mark.parametrize("record", ALL, ids=lambda record: f"{record.name}-{record.hub.label}")
def test_records_are_complete(record):
    assert len(record.repository.partition("@")[2]) == 40 or (record.name, record.repository) == ("mpqa", "jxm/mpqa@main")
    assert record.columns
    assert re.search(r"\(.*\d{4}\)", registry.summary(next(e for e in ENTRIES if e.name == record.name)))
    assert "train" in record.splits


def test_questions_without_a_right_answer_are_removed():
    columns = {"first": list("qqrr"), "second": list("abcd"), "label": list("0100"), "group": list("1122")}
    table = Table(columns)
    assert answerable(table).texts[1] == ["a", "b"]
    with raises("data", "label 1"):
        answerable(table.take([2, 3]))
