"""Presets against a small hub, reached by the real libraries in a process of its own: they read the address on import."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
from zoo_datasets import published

GLUE_CARD = b"""---
configs:
- config_name: qnli
  data_files:
  - split: train
    path: qnli/train-*
  - split: validation
    path: qnli/validation-*
---
"""


def packed(rows, **columns):
    stream = io.BytesIO()
    pq.write_table(pa.table({name: [value(i) for i in range(rows)] for name, value in columns.items()}), stream)
    return stream.getvalue()


def pairs(rows):
    return packed(rows, question=lambda i: f"why {i} ?", sentence=lambda i: f"so {i} .", label=lambda i: i % 3 - 1)


def lines(rows):
    kinds = ("HUM", "LOC", "NUM")
    objects = [{"text": f"what is {i} ?", "label": i, "label_coarse_original": kinds[i % 3]} for i in range(rows)]
    return "".join(json.dumps(row) + "\n" for row in objects).encode()


FILES = {
    "nyu-mll/glue": {
        "README.md": GLUE_CARD,
        "qnli/train-00000-of-00001.parquet": pairs(60),
        "qnli/validation-00000-of-00001.parquet": pairs(15),
    },
    "SetFit/TREC-QC": {"train.jsonl": lines(60), "test.jsonl": lines(12), "train_5500.label": b"NUM:dist How far ?\n"},
}
SHA = {
    "nyu-mll/glue": published.qnli.record.repository.split("@")[1],
    "SetFit/TREC-QC": published.trec.record.repository.split("@")[1],
}


SCRIPT = """
import json, os, time, urllib.request
from dataclasses import replace
from zoo_datasets import published
from zoo.data.module import ready
from zoo.errors import InputError

def tried(name):
    try:
        data = ready(getattr(published, name)())
        pair = isinstance(next(iter(data.test_dataloader()))[0], (list, tuple))
        return [data.info.sizes, data.info.classes, pair]
    except InputError as error:
        return str(error)

published.trec.record = replace(published.trec.record, rows={"train": 60, "test": 12})
qnli = published.qnli.record
published.qnli.record = replace(qnli, rows={"train": 60, "validation": 15})
found = {name: tried(name) for name in ("trec", "qnli", "mr")}
published.qnli.record = replace(qnli, rows={"train": 61, "validation": 15})
found["changed"] = tried("qnli")
urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/stop").close()
time.sleep = lambda seconds: None  # the library waits longer and longer before it tries again
found["unreachable"] = tried("subj")
print(json.dumps(found))
"""


def test_sets_come_from_a_hub_at_their_revision(hub_of, tmp_path):
    hub = hub_of(FILES)
    found = hub.run(SCRIPT, tmp_path)
    assert found["trec"] == [{"train": 54, "val": 6, "test": 12}, list(published.COARSE.values()), False]
    assert found["qnli"] == [{"train": 36, "val": 4, "test": 10}, ["entailment", "not_entailment"], True]
    for repository, revision in SHA.items():
        mine = [path for path in hub.asked if repository in path]
        assert mine
        assert all(revision in path for path in mine)
    assert found["changed"].startswith(
        "qnli: the Hub's copy has changed: nyu-mll/glue has 60 rows in train, not 61; use qnli(path"
    )
    for name, line in (("mr", found["mr"]), ("subj", found["unreachable"])):
        assert line.startswith(f"{name}: could not get ")
        assert line.endswith(f"use {name}(path=...) for a local copy, beside the other options")
        assert "\n" not in line
