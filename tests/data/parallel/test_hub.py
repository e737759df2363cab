"""Pairs from a small hub, reached by the real libraries in a process of its own: they read the address on import."""

import io
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PARTS = ("train", "validation", "test")
ROWS = {"train": 12, "validation": 5, "test": 4}


def texts(part, side):
    return [f"{part} {side} {i}, schön" for i in range(ROWS[part])]


def captions(part, sides=("en", "de"), texts=texts):
    rows = zip(*(texts(part, side) for side in ("en", "de")), strict=True)
    return "".join(json.dumps(dict(zip(sides, row, strict=True)), ensure_ascii=False) + "\n" for row in rows).encode()


def multi30k(parts=PARTS, **changed):
    card = b"---\nlanguage:\n- en\n- de\n---\n"
    names = {part: f"{part[:3] if part == 'validation' else part}.jsonl" for part in parts}
    return {"README.md": card, **{name: captions(part, **changed) for part, name in names.items()}}


def wmt(table):
    """A repository with one table per pair of languages, whose only column holds the texts of both."""
    sides = table.split("-")
    files = {}
    for part in PARTS:
        stream = io.BytesIO()
        rows = zip(*(texts(part, side) for side in sides), strict=True)
        pq.write_table(pa.table({"translation": [dict(zip(sides, row, strict=True)) for row in rows]}), stream)
        files[f"{table}/{part}-00000-of-00001.parquet"] = stream.getvalue()
    sizes = "".join(f"  - name: {part}\n    num_bytes: 9\n    num_examples: {ROWS[part]}\n" for part in PARTS)
    paths = "".join(f"  - split: {part}\n    path: {table}/{part}-*\n" for part in PARTS)
    languages = "".join(f"        - {side}\n" for side in sides)
    feature = f"  - name: translation\n    dtype:\n      translation:\n        languages:\n{languages}"
    info = f"- config_name: {table}\n  features:\n{feature}  splits:\n{sizes}  download_size: 9\n  dataset_size: 9\n"
    card = f"---\ndataset_info:\n{info}configs:\n- config_name: {table}\n  data_files:\n{paths}---\n"
    return {"README.md": card.encode(), **files}


def gaps(part, side):
    """Texts of which the fourth of one side and the second of the other are missing."""
    return [
        None if i == 3 and side == "en" else " " if i == 1 and side == "de" else text
        for i, text in enumerate(texts(part, side))
    ]


FILES = {
    "bentrevett/multi30k": multi30k(),
    "wmt/wmt14": wmt("ru-en"),
    "wmt/wmt16": wmt("de-en"),
    "some/gaps": multi30k(texts=gaps),
    "some/two": multi30k(parts=("train", "test")),
    "some/french": multi30k(sides=("en", "fr")),
    "some/mixed": {**multi30k(), "test.jsonl": captions("test", sides=("en", "fr"))},
    "some/numbers": multi30k(texts=lambda part, side: list(range(ROWS[part]))),
    "some/broken": multi30k(),
    "some/late": multi30k(),
}
BROKEN = "some/broken/train.jsonl"

SCRIPT = """
import json, os, time, urllib.request
from dataclasses import replace
from zoo_datasets import published
from zoo.data.module import ready
from zoo.errors import InputError

time.sleep = lambda seconds: None  # the library waits longer and longer before it tries again
known = {name: getattr(published, name).record for name in ("multi30k", "wmt14", "wmt16")}

def tried(name, repository=None, rows=ROWS, **sides):
    record = replace(known[name], rows={"de-en": rows})
    getattr(published, name).record = replace(record, repository=repository or record.repository)
    try:
        splits = ready(getattr(published, name)(tokenizer="space", **sides)).splits
        return {split: list(zip(*pairs.texts)) for split, pairs in splits.items()}
    except InputError as error:
        return str(error)

found = {"multi30k": tried("multi30k"), "wmt16": tried("wmt16", source="de", target="en"), "wmt14": tried("wmt14", target="ru")}
found |= {name: tried("multi30k", name) for name in NAMES}
found |= {"again": tried("multi30k"), "more": tried("multi30k", rows={**ROWS, "test": 5}), "czech": tried("wmt16", target="cs")}
found |= {"same": tried("multi30k", target="en")}
urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/stop").close()
found |= {"offline": tried("multi30k"), "wmt offline": tried("wmt14", target="ru"), "some/late": tried("multi30k", "some/late")}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def hub(hub_of):
    return hub_of(FILES, BROKEN)


@pytest.fixture(scope="module")
def found(hub, tmp_path_factory):
    names = [name for name in FILES if name.startswith("some/") and name != "some/late"]
    return hub.run(f"ROWS = {ROWS}\nNAMES = {names}\n{SCRIPT}", tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(("name", "sides"), [("multi30k", ("en", "de")), ("wmt14", ("en", "ru")), ("wmt16", ("de", "en"))])
def test_every_split_arrives_with_its_sides(found, name, sides):
    wanted = {part: [list(pair) for pair in zip(*(texts(part, side) for side in sides), strict=True)] for part in PARTS}
    assert found[name] == {"train": wanted["train"], "val": wanted["validation"], "test": wanted["test"]}


def test_pairs_without_a_side_are_left_out_but_counted(found):
    for split, whole in found["multi30k"].items():
        assert found["some/gaps"][split] == [pair for i, pair in enumerate(whole) if i not in (1, 3)]


def test_a_set_is_fetched_once_and_then_needs_no_hub(found, hub):
    assert found["again"] == found["offline"] == found["multi30k"]
    assert found["wmt offline"] == found["wmt14"]
    for repository in ("bentrevett/multi30k", "wmt/wmt14"):
        sent = Counter(name for name in hub.sent if name.startswith(f"{repository}/"))
        assert sent == Counter(f"{repository}/{name}" for name in FILES[repository])


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("more", "bentrevett/multi30k has 4 rows in test, not 5;"),
        ("some/two", "some/two has no split validation, only train, test;"),
        ("some/french", "some/french has no column de in train, only en, fr;"),
        ("some/mixed", "some/mixed from the Hugging Face Hub (a file has the columns en, fr"),
        ("some/numbers", "some/numbers has no text in the column en, de of train;"),
        ("some/broken", "some/broken from the Hugging Face Hub ("),
        ("some/late", "some/late from the Hugging Face Hub ("),
        ("czech", "wmt/wmt16 from the Hugging Face Hub (BuilderConfig 'cs-en' not found"),
    ],
)
def test_another_set_or_none_is_one_line_that_offers_a_path(found, name, what):
    preset = "wmt16" if name == "czech" else "multi30k"
    assert found[name].startswith(f"{preset}: ")
    assert what in found[name]
    assert f"use {preset}(path=...) for a local copy" in found[name]
    assert "\n" not in found[name]


def test_a_language_is_not_translated_into_itself(found):
    assert found["same"] == "multi30k: source=en and target=en are one language; give two"
