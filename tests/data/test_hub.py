"""Published sets from a local hub; the libraries read its address on import, so they run in a subprocess."""

import io
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from zoo_datasets import published

PARTS = ("train", "validation", "test")
ROWS = {"train": 12, "validation": 5, "test": 4}
PLAY = "".join(f"SPEAKER {i}:\nWhat is {i}, my lord?\n\n" for i in range(100))
CUTS = {"train": (0, 2000), "validation": (2000, 2300), "test": (2300, len(PLAY))}
QNLI = published.qnli.record.repository.split("@")
TREC = published.trec.record.repository.split("@")


def packed(**columns):
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def card(table, features, rows, folder):
    """Return the card of a repository: the columns, rows and files of every split."""
    sizes = "".join(f"  - name: {part}\n    num_bytes: 9\n    num_examples: {count}\n" for part, count in rows.items())
    paths = "".join(f"  - split: {part}\n    path: {folder}/{part}-*\n" for part in rows)
    info = f"- config_name: {table}\n  features:\n{features}  splits:\n{sizes}  download_size: 9\n  dataset_size: 9\n"
    return f"---\ndataset_info:\n{info}configs:\n- config_name: {table}\n  data_files:\n{paths}---\n".encode()


def texts(part, side):
    return [f"{part} {side} {i}, schön" for i in range(ROWS[part])]


def gaps(part, side):
    missing = {(3, "en"): None, (1, "de"): " "}
    return [missing.get((i, side), text) for i, text in enumerate(texts(part, side))]


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def captions(part, sides=("en", "de"), texts=texts):
    rows = zip(*(texts(part, side) for side in ("en", "de")), strict=True)
    return lines(dict(zip(sides, row, strict=True)) for row in rows)


def multi30k(parts=PARTS, **changed):
    return {f"{part[:3] if part == 'validation' else part}.jsonl": captions(part, **changed) for part in parts}


def wmt(table):
    """Return a repository with a configuration per pair of languages, and the texts of both in one column."""
    sides, files = table.split("-"), {}
    for part in PARTS:
        rows = zip(*(texts(part, side) for side in sides), strict=True)
        content = packed(translation=[dict(zip(sides, row, strict=True)) for row in rows])
        files[f"{table}/{part}-00000-of-00001.parquet"] = content
    languages = "".join(f"        - {side}\n" for side in sides)
    features = f"  - name: translation\n    dtype:\n      translation:\n        languages:\n{languages}"
    return {"README.md": card(table, features, ROWS, table), **files}


def plays(column="text", readme=True, rows=lambda text: [text]):
    files = {f"data/{part}-00000-of-00001.parquet": packed(**{column: rows(PLAY[slice(*CUTS[part])])}) for part in PARTS}
    about = card("default", "  - name: text\n    dtype: string\n", dict.fromkeys(PARTS, 1), "data")
    return {"README.md": about, **files} if readme else files


def questions(rows):
    numbers = range(rows)
    return packed(question=[f"why {i} ?" for i in numbers], sentence=["so ."] * rows, label=[i % 3 - 1 for i in numbers])


TREC_ROW = {"text": "what is it ?", "label": 1}
FILES = {
    "bentrevett/multi30k": multi30k(),
    "wmt/wmt14": wmt("ru-en"),
    "karpathy/tiny_shakespeare": plays(),
    "afmck/text8": plays(readme=False, rows=lambda text: [text[:50], None, text[50:]]),
    QNLI[0]: {
        "README.md": b"---\nconfigs:\n- config_name: qnli\n  data_files:\n  - split: train\n    path: qnli/train-*\n"
        b"  - split: validation\n    path: qnli/validation-*\n---\n",
        "qnli/train-00000-of-00001.parquet": questions(60),
        "qnli/validation-00000-of-00001.parquet": questions(15),
    },
    TREC[0]: {
        name: lines({**TREC_ROW, "label_coarse_original": ("HUM", "LOC", "NUM")[i % 3]} for i in range(rows))
        for name, rows in (("train.jsonl", 60), ("test.jsonl", 12))
    },
    "some/gaps": multi30k(texts=gaps),
    "some/two": multi30k(parts=("train", "test")),
    "some/french": multi30k(sides=("en", "fr")),
    "some/late": multi30k(),
}
TRIES = {
    # the preset, its options, and the changes to its record
    "multi30k": ("multi30k", {}, {}),
    "wmt14": ("wmt14", {"target": "ru"}, {}),
    "shakespeare": ("shakespeare", {}, {}),
    "text8": ("text8", {}, {}),
    "qnli": ("qnli", {}, {"rows": {"train": 60, "validation": 15}}),
    "trec": ("trec", {}, {"rows": {"train": 60, "test": 12}}),
    **{name: ("multi30k", {}, {"repository": name}) for name in FILES if name.startswith("some/") and name != "some/late"},
    "again": ("multi30k", {}, {}),
    "more": ("multi30k", {}, {"rows": {"de-en": {**ROWS, "test": 6}}}),
    "longer": ("shakespeare", {}, {"length": len(PLAY) + 1}),
    "nowhere": ("mr", {}, {}),
}
OFFLINE = {
    "multi30k offline": ("multi30k", {}, {}),
    "wmt14 offline": ("wmt14", {"target": "ru"}, {}),
    "shakespeare offline": ("shakespeare", {}, {}),
    "some/late": ("multi30k", {}, {"repository": "some/late"}),
}
SCRIPT = """
import json, os, time, urllib.request
from dataclasses import fields, replace
from zoo_datasets import corpora, published
from zoo.data import ready
from zoo.errors import InputError

time.sleep = lambda seconds: None  # skip the waits between retries
presets = {**vars(published), **vars(corpora)}
known = {name: preset.record for name, preset in presets.items() if hasattr(preset, "record")}

def tried(name, options, changes):
    record = known[name]
    if hasattr(record, "length"):
        changes, options = {"length": SIZE, **changes}, {"max_length": 32}
    elif name not in ("qnli", "trec"):
        changes, options = {"rows": {"de-en": ROWS}, **changes}, {"tokenizer": "space", **options}
    presets[name].record = replace(record, **changes)
    try:
        data = ready(presets[name](**options))
        if hasattr(record, "length"):
            return {split: data.tokenizer.decode(tokens[:]) for split, tokens in data.splits.items()}
        if name in ("qnli", "trec"):
            return [data.info.sizes, data.info.classes]
        return {split: list(zip(*pairs.texts)) for split, pairs in data.splits.items()}
    except InputError as error:
        return str(error)

found = {key: tried(*one) for key, one in TRIES.items()}
urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/stop").close()
found |= {key: tried(*one) for key, one in OFFLINE.items()}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def hub(hub_of):
    return hub_of(FILES)


@pytest.fixture(scope="module")
def found(hub, tmp_path_factory):
    names = f"ROWS, SIZE, TRIES, OFFLINE = {ROWS}, {len(PLAY)}, {TRIES}, {OFFLINE}\n"
    return hub.run(names + SCRIPT, tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(("name", "sides"), [("multi30k", ("en", "de")), ("wmt14", ("en", "ru"))])
def test_splits_and_sides_of_parallel_sets(found, name, sides):
    wanted = {part: [list(pair) for pair in zip(*(texts(part, side) for side in sides), strict=True)] for part in PARTS}
    assert found[name] == {"train": wanted["train"], "val": wanted["validation"], "test": wanted["test"]}


def test_pairs_with_an_empty_side_are_removed_but_counted(found):
    for split, whole in found["multi30k"].items():
        assert found["some/gaps"][split] == [pair for i, pair in enumerate(whole) if i not in (1, 3)]


@pytest.mark.parametrize("name", ["shakespeare", "text8"])
def test_splits_of_a_text_are_concatenated_and_cut(found, name):
    ends = [len(PLAY) * share // 100 for share in (0, 90, 95, 100)]
    assert found[name] == {split: PLAY[ends[i] : ends[i + 1]] for i, split in enumerate(("train", "val", "test"))}


def test_revisions_of_labelled_texts(found, hub):
    assert found["trec"] == [{"train": 54, "val": 6, "test": 12}, list(published.COARSE.values())]
    assert found["qnli"] == [{"train": 36, "val": 4, "test": 10}, ["entailment", "not_entailment"]]
    for repository, revision in (QNLI, TREC):
        asked = [path for path in hub.asked if repository in path]
        assert asked
        assert all(revision in path for path in asked)


def test_sets_are_downloaded_once(found, hub):
    assert found["again"] == found["multi30k"]
    for name, repository in (
        ("multi30k", "bentrevett/multi30k"),
        ("wmt14", "wmt/wmt14"),
        ("shakespeare", "karpathy/tiny_shakespeare"),
    ):
        assert found[f"{name} offline"] == found[name]
        sent = Counter(path for path in hub.sent if path.startswith(f"{repository}/"))
        assert sent == Counter(f"{repository}/{file}" for file in FILES[repository])


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("more", "4 rows in test, expected 6;"),
        ("longer", f"{len(PLAY):,} characters, expected {len(PLAY) + 1:,};"),
        ("some/two", "KeyError: 'validation'"),
        ("some/french", "'de'"),
        ("some/late", "from the Hugging Face Hub ("),
        ("nowhere", "from the Hugging Face Hub ("),
    ],
)
def test_changed_or_missing_copy_raises(found, name, what):
    preset = {**TRIES, **OFFLINE}[name][0]
    assert found[name].startswith(f"{preset}: ")
    assert what in found[name]
    assert name in found[name] or "/" not in name
    assert f"use {preset}(path=...) with a local copy" in found[name]
    assert "\n" not in found[name]
