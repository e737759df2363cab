"""Texts from a small hub, reached by the real libraries in a process of its own: they read the address on import."""

import io
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PARTS = ("train", "validation", "test")
PLAY = "".join(f"SPEAKER {i}:\nWhat is {i}, mÿ lord?\n\n" for i in range(100))
ENDS = {"train": (0, 2000), "validation": (2000, 2300), "test": (2300, len(PLAY))}


def card():
    """What the real repository says of itself: the column and the rows of every split, and where their files are."""
    sizes = "".join(f"  - name: {part}\n    num_bytes: 9\n    num_examples: 1\n" for part in PARTS)
    files = "".join(f"  - split: {part}\n    path: data/{part}-*\n" for part in PARTS)
    features = "  features:\n  - name: text\n    dtype: string\n"
    info = f"dataset_info:\n{features}  splits:\n{sizes}  download_size: 9\n  dataset_size: 9\n"
    return f"---\n{info}configs:\n- config_name: default\n  data_files:\n{files}---\n".encode()


def packed(column, rows):
    stream = io.BytesIO()
    pq.write_table(pa.table({column: rows}), stream)
    return stream.getvalue()


def whole(text):
    return [text]


def repository(column="text", parts=PARTS, readme=True, rows=whole):
    files = {f"data/{part}-00000-of-00001.parquet": packed(column, rows(PLAY[slice(*ENDS[part])])) for part in parts}
    return {"README.md": card(), **files} if readme else files


FILES = {
    "karpathy/tiny_shakespeare": repository(),
    "afmck/text8": repository(readme=False, rows=lambda text: [text[:50], None, text[50:]]),
    "some/two": repository(readme=False, parts=("train", "test")),
    "some/lines": repository(readme=False, column="line"),
    "some/numbers": repository(readme=False, rows=lambda text: [len(text)]),
    "some/halves": repository(rows=lambda text: [text[:50], text[50:]]),
    "some/unlike": repository(column="line"),
    "some/broken": repository(),
    "some/late": repository(),
}
BROKEN = "some/broken/data/train-00000-of-00001.parquet"

SCRIPT = """
import json, os, time, urllib.request
from dataclasses import replace
from zoo.data import ready
from zoo_datasets import corpora as presets
from zoo.errors import InputError

time.sleep = lambda seconds: None  # the library waits longer and longer before it tries again
known = {name: getattr(presets, name).record for name in ("shakespeare", "text8")}

def tried(name, repository=None, length=SIZE):
    record = replace(known[name], length=length)
    getattr(presets, name).record = replace(record, repository=repository or record.repository)
    try:
        data = ready(getattr(presets, name)(max_length=32))
        return {split: data.tokenizer.decode(tokens[:]) for split, tokens in data.splits.items()}
    except InputError as error:
        return str(error)

found = {name: tried(name) for name in known}
found |= {name: tried("shakespeare", name) for name in NAMES}
found |= {"again": tried("shakespeare"), "longer": tried("shakespeare", length=SIZE + 1)}
urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/stop").close()
found |= {"offline": tried("shakespeare"), "some/late": tried("shakespeare", "some/late")}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def hub(hub_of):
    return hub_of(FILES, BROKEN)


@pytest.fixture(scope="module")
def found(hub, tmp_path_factory):
    names = [name for name in FILES if name.startswith("some/") and name != "some/late"]
    return hub.run(f"SIZE = {len(PLAY)}\nNAMES = {names}\n{SCRIPT}", tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("name", ["shakespeare", "text8"])
def test_the_splits_of_the_hub_are_one_text_cut_anew(found, name):
    ends = [0, *(len(PLAY) * share // 100 for share in (90, 95, 100))]
    texts = (PLAY[start:end] for start, end in pairwise(ends))
    assert found[name] == dict(zip(("train", "val", "test"), texts, strict=True))


def test_a_text_is_fetched_once_and_then_needs_no_hub(found, hub):
    assert found["again"] == found["offline"] == found["shakespeare"]
    sent = Counter(name for name in hub.sent if name.startswith("karpathy/tiny_shakespeare/"))
    assert sent == Counter(f"karpathy/tiny_shakespeare/{name}" for name in FILES["karpathy/tiny_shakespeare"])


@pytest.mark.parametrize(
    ("name", "repository", "what"),
    [
        ("longer", "karpathy/tiny_shakespeare", f"has {len(PLAY):,} characters, not {len(PLAY) + 1:,};"),
        ("some/two", "some/two", "has no split validation, only train, test;"),
        ("some/lines", "some/lines", "has no column text in train, only line;"),
        ("some/numbers", "some/numbers", "has no text in the column text of train;"),
        (
            "some/halves",
            "some/halves",
            "from the Hugging Face Hub (it has other splits or numbers of rows than its own card says)",
        ),
        (
            "some/unlike",
            "some/unlike",
            "from the Hugging Face Hub (a file has the columns line; its card, or another file, says text)",
        ),
        ("some/broken", "some/broken", "from the Hugging Face Hub ("),
        ("some/late", "some/late", "from the Hugging Face Hub ("),
    ],
)
def test_another_text_or_none_is_one_line_that_offers_a_path(found, name, repository, what):
    assert found[name].startswith("shakespeare: ")
    assert f"{repository} {what}" in found[name]
    assert "use shakespeare(path=...) for a local copy" in found[name]
    assert "\n" not in found[name]
