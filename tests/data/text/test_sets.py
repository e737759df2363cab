import re
from dataclasses import replace

import datasets
import pytest
from zoo_datasets.published import TEXT_SETS
from zoo_datasets.text_sets import answerable, fetch_text_set

from tests.errors import raises
from zoo import registry
from zoo.data.table import Table

ENTRIES = [entry for entry in registry.entries("datasets") if entry.ours]


def variants(record):
    return [record] if record.variants is None else [record.variant(value) for value in record.variants[1]]


ALL = [record for preset in TEXT_SETS for record in variants(preset.record)]


def labels_of(record):
    """Return the labels on the Hub, as numbers if possible, and the marker of a missing label."""
    names = record.names or {"0": "irrelevant", "1": "relevant"}
    numbers = [int(label) for label in names if label.isdigit()]
    return (numbers, -1) if numbers else (list(names), "-")


def parts_of(record, rows=24):
    """Return the splits of a set, each with a last row without a label."""
    labels, missing = labels_of(record)
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
        assert set(table.labels) <= set(map(str, labels_of(record)[0]))
        assert [column[3] for column in table.texts] == [f"text {name} 3" for name in record.hub.texts]
        assert (table.groups is None) == (record.hub.group is None)


@pytest.mark.parametrize("record", ALL, ids=lambda record: f"{record.name}-{record.hub.label}")
def test_records_are_complete(record):
    assert len(record.repository.partition("@")[2]) == 40 or (record.name, record.repository) == ("mpqa", "jxm/mpqa@main")
    assert record.columns
    assert re.search(r"\(.*\d{4}\)", registry.summary(next(e for e in ENTRIES if e.name == record.name)))
    assert "train" in record.splits


def test_questions_without_a_right_answer_are_removed():
    table = Table((["q", "q", "r", "r"], ["a", "b", "c", "d"]), ["0", "1", "0", "0"], ["1", "1", "2", "2"])
    assert answerable(table).texts[1] == ["a", "b"]
    with raises("data", "label 1"):
        answerable(table.take([2, 3]))
