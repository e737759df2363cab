"""Presets against a small hub, reached by the real libraries in a process of its own: they read the address on import."""

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zoo.data.text.pairs_info import QNLI
from zoo.data.text.presets_info import TREC

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
SHA = {"nyu-mll/glue": QNLI.revision, "SetFit/TREC-QC": TREC.revision}


class Hub(BaseHTTPRequestHandler):
    asked: list[str]

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.answer()

    def do_HEAD(self):
        self.answer()

    def answer(self):
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        type(self).asked.append("/".join(path))
        if path == ["stop"]:
            self.stop()
        elif path[:2] == ["api", "datasets"] and "/".join(path[2:4]) in FILES:
            self.describe("/".join(path[2:4]), path[4:])
        elif path[0] == "datasets" and path[3:4] == ["resolve"]:
            self.send(FILES.get("/".join(path[1:3]), {}).get("/".join(path[5:])), path[4])
        else:
            self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def describe(self, repository, rest):
        files = FILES[repository]
        if rest[0] == "revision":
            names = [{"rfilename": name} for name in files]
            return self.reply(200, json.dumps({"id": repository, "sha": rest[1], "siblings": names}).encode())
        under = "".join(f"{part}/" for part in rest[2:])
        inside = [name.removeprefix(under) for name in files if name.startswith(under)]
        found = {name.split("/")[0] for name in inside if "/" in name}
        entries = [{"type": "directory", "path": under + name, "oid": "d" * 40} for name in sorted(found)]
        entries += [
            {"type": "file", "path": under + name, "size": len(files[under + name]), "oid": digest(files[under + name])}
            for name in inside
            if "/" not in name
        ]
        return self.reply(200, json.dumps(entries).encode())

    def send(self, content, revision):
        if content is None:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision})
        return self.reply(200, content, {"ETag": f'"{digest(content)}"', "X-Repo-Commit": revision})

    def reply(self, code, body, headers=None):
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def digest(content):
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def hub():
    class Mine(Hub):
        def stop(self):
            server.shutdown()
            server.server_close()
            self.reply(200, b"")

    Mine.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Mine.asked
    server.shutdown()
    thread.join()
    server.server_close()


SCRIPT = """
import json, os, time, urllib.request
from dataclasses import replace
from zoo.data.text import presets
from zoo.errors import InputError

def tried(name):
    try:
        data = getattr(presets, name)()
        pair = isinstance(next(iter(data.test_dataloader()))[0], (list, tuple))
        return [data.facts.sizes, data.facts.classes, pair]
    except InputError as error:
        return str(error)

presets.TREC = replace(presets.TREC, rows={"train": 60, "test": 12})
qnli = presets.QNLI
presets.QNLI = replace(qnli, rows={"train": 60, "validation": 15})
found = {name: tried(name) for name in ("trec", "qnli", "mr")}
presets.QNLI = replace(qnli, rows={"train": 61, "validation": 15})
found["changed"] = tried("qnli")
urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/stop").close()
time.sleep = lambda seconds: None  # the library waits longer and longer before it tries again
found["unreachable"] = tried("subj")
print(json.dumps(found))
"""


def test_sets_come_from_a_hub_at_their_revision(hub, tmp_path):
    address, asked = hub
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy") and not key.startswith("HF_")}
    root = str(Path(__file__).parents[3])
    environment = {**kept, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["trec"] == [{"train": 54, "val": 6, "test": 12}, list(TREC.names.values()), False]
    assert found["qnli"] == [{"train": 36, "val": 4, "test": 10}, ["entailment", "not_entailment"], True]
    for repository, revision in SHA.items():
        mine = [path for path in asked if repository in path]
        assert mine
        assert all(revision in path for path in mine)
    assert found["changed"].startswith(
        "qnli: the Hub's copy has changed: nyu-mll/glue has 60 rows in train, not 61; use qnli(path"
    )
    for name, line in (("mr", found["mr"]), ("subj", found["unreachable"])):
        assert line.startswith(f"{name}: could not get ")
        assert line.endswith(f"use {name}(path=...) for a local copy, beside the other options")
        assert "\n" not in line
