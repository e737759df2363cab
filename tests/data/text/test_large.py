"""Large files: mapped files of the cache are equal to data in memory."""

import gzip
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.errors import raises
from zoo.data.module import ready
from zoo.data.parallel import parallel
from zoo.data.text import local
from zoo.data.text import table as columns
from zoo.data.text.files import read_blocks, read_text
from zoo.data.text.reading import read_table


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """Cache every table."""
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("zoo.data.cache.SMALL", 100)
    return tmp_path / "cache"


def rows(count=500):
    return [(f"{i % 3}", f"word{i % 7} is number {i}", f"an answer {i % 11}") for i in range(count)]


def write(path, table=None, header=("label", "first", "second")):
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *(table or rows())]))
    return path


def batches(data):
    found = []
    for name in ("train", "val", "test"):
        for inputs, *more in getattr(data, f"{name}_dataloader")():
            found += [*(inputs if isinstance(inputs, (list, tuple)) else [inputs]), *more]
    return found


def test_mapped_data_equal_data_in_memory(tmp_path, monkeypatch, request):
    path = write(tmp_path / "x.tsv")
    small = ready(local.pairs(path))
    cache = request.getfixturevalue("cached")
    monkeypatch.setattr(columns, "BATCH_ROWS", 64)
    monkeypatch.setattr("zoo.data.text.reading.BATCH_ROWS", 64)
    large = ready(local.pairs(path))
    assert len(list((cache / "tables").iterdir())) == 1
    assert len(list((cache / "tokens").iterdir())) == 12  # tokens and lengths of two columns of three splits
    assert large.info == small.info
    assert large.files == small.files
    assert all(torch.equal(a, b) for a, b in zip(batches(small), batches(large), strict=True))
    before = {file: file.stat().st_mtime_ns for file in cache.rglob("*.*")}
    again = ready(local.pairs(path))
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.*")} == before, "made once"
    assert all(torch.equal(a, b) for a, b in zip(batches(small), batches(again), strict=True))
    data = large.train_dataloader().dataset
    assert len(pickle.dumps(data.tokens[0].flat)) < 1000, "a worker maps the file"
    copy = pickle.loads(pickle.dumps(data)).tokens[0]
    assert torch.equal(copy.padded([3, 5]), data.tokens[0].padded([3, 5]))


def test_parallel_files_are_mapped(cached, tmp_path):
    for side, column in (("en", 1), ("de", 2)):
        (tmp_path / f"a.{side}").write_text("".join(row[column] + "\n" for row in rows()))
    data = ready(parallel(str(tmp_path / "a.en"), str(tmp_path / "a.de"), tokenizer="space", max_length=5))
    assert data.splits["train"].texts[0].store.mapped is not None
    val = data.val_dataloader().dataset  # pickles the references as the path of their file
    texts = [texts[:4] for texts in (val.references, pickle.loads(pickle.dumps(val)).references)]
    assert texts[0] == texts[1]
    assert len(pickle.dumps(val.references.store)) < 1000
    _, _, numbers, references = next(iter(data.val_dataloader()))
    assert references == [data.splits["val"].texts[1][row] for row in numbers.tolist()]


def test_broken_row_of_a_large_file_raises(cached, tmp_path):
    table = rows(25_000)
    table[20_000] = ("1", " ", "x")
    with raises("data", "x.tsv:20002: ", "'first'"):
        ready(local.pairs(write(tmp_path / "x.tsv", table)))
    assert not list(cached.rglob("*.arrow"))
    assert not [path for path in cached.rglob("*") if path.name.startswith(".")]


def test_compressed_file_is_streamed(cached, tmp_path):
    """The file expands to 48 MiB; reading it takes a fraction of that."""
    path, line = tmp_path / "x.tsv.gz", b"1\t" + b"no words to speak of " * 48 + b"\n"
    with gzip.open(path, "wb", 1) as stream:
        for _ in range(48):
            stream.write(line * (2**20 // len(line)))
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    table = read_table(path, text=1, label=0, header=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(table) == 48 * (2**20 // len(line))
    assert peak < 2**25


def test_too_long_line_raises(tmp_path):
    path = tmp_path / "x.tsv.gz"
    with gzip.open(path, "wb", 1) as stream:
        for _ in range(18):
            stream.write(b"x" * 2**20)
    with raises("data", "x.tsv.gz:1: ", "16 MiB"):
        read_table(path, text=1, label=0)


def test_pipes_devices_and_folders_raise(tmp_path):
    os.mkfifo(tmp_path / "pipe.tsv")
    (tmp_path / "folder.tsv").mkdir()
    with raises("data", "pipe.tsv"):
        read_table(tmp_path / "pipe.tsv", text=1, label=0)
    with raises("data", "folder.tsv"):
        read_table(tmp_path / "folder.tsv", text=1, label=0)
    with raises("data", "/dev/zero"):
        read_text(Path("/dev/zero"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_raises(tmp_path, encoding):
    path = tmp_path / "x.tsv"
    path.write_bytes("label\ttext\n1\tgood\n0\tbad\n".encode(encoding))
    with raises("data", "x.tsv: ", "UTF-16"):
        read_table(path, text="text")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_blocks_of_any_size_give_the_same_text(tmp_path, monkeypatch, size):
    monkeypatch.setattr("zoo.data.text.files.BLOCK", size)
    path, text = tmp_path / "x.txt", "\ufeffone\n\nzwei ü\r\n三\u2028x"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_text(path) == text.removeprefix("\ufeff")
    assert [line for line, _ in read_blocks(path)] == sorted({line for line, _ in read_blocks(path)})


HEADED = "sentiment\treview\n" + "".join(f"{'pos' if i % 2 else 'neg'}\ta film {i}\n" for i in range(20))


def test_forgotten_header_raises(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text(HEADED)
    with raises("data", f"{path}:1: ", "'sentiment'", "header=true", "header=false"):
        ready(local.text(path, text=1, label=0))
    assert ready(local.text(path, text="review", label="sentiment")).info.classes == ("neg", "pos")
    assert ready(local.text(path, text=1, label=0, header=True)).info.classes == ("neg", "pos")
    assert "sentiment" in ready(local.text(path, text=1, label=0, header=False)).info.classes


def test_first_rows_that_are_not_headers(tmp_path):
    path = tmp_path / "x.tsv"
    lines = HEADED.splitlines(keepends=True)[1:]
    for first in ("pos\tfine\n", "odd\ta film\n", "7\tfine\n"):
        path.write_text("".join([first, *lines]))
        assert len(read_table(path, text=1, label=0)) == 21


def test_split_note_of_a_single_table(tmp_path):
    path = write(tmp_path / "x.tsv")
    assert ready(local.pairs(path)).split_note == (
        "405 train, 45 val, 50 test rows (one table without splits: part 0 of 10 is for testing, and validation rows are "
        "10% of the training rows left)"
    )


def test_columns_take_rows_in_any_order():
    parts = [columns.TextColumn.of([f"{a}{i}" for i in range(5)]).store.batches[0] for a in "abc"]
    column = columns.TextColumn(columns.Store(parts), "text")
    order = np.random.RandomState(0).permutation(15)
    whole = [f"{a}{i}" for a in "abc" for i in range(5)]
    assert list(column.take(order)) == [whole[i] for i in order]
    assert list(column.take(order).take(np.array([3, 3, 0]))) == [whole[order[i]] for i in (3, 3, 0)]
    assert column[-1] == "c4"
