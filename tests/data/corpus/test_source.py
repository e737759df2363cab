import gzip
import lzma
from itertools import pairwise
from pathlib import Path

import pytest

from tests.errors import raises
from zoo.data import corpus
from zoo.data.corpus import Text, add_splits

LINES = "".join(f"ligne {i} : été, naïve, 東京 😀\n" for i in range(40)) + "mot " * 30 + "x" * 99


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(corpus, "PIECE", 37)


def write(path: Path, content: bytes) -> Text:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content))
    return Text.of(path)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.xz"])
def test_files_are_decompressed(tmp_path, name):
    assert write(tmp_path / name, LINES.encode()) == Text(LINES, str(tmp_path / name))


@pytest.mark.parametrize("percent", [(90, 95, 100), (33, 66, 67, 100)])
def test_cut_parts_concatenate_to_the_text(percent):
    parts, size, done = Text(LINES).cut(percent), len(LINES.encode()), 0
    assert "".join("".join(part.pieces()) for part in parts) == LINES
    for part, share in zip(parts, percent, strict=True):
        done += len(part.content.encode())
        assert 0 <= done - size * share // 100 < 4, "a cut may move to the end of a character, no further"


def test_pieces_end_where_words_end():
    pieces = list(Text(LINES).pieces())
    assert "".join(pieces) == LINES
    for before, after in pairwise(pieces):
        assert before.endswith("\n") or after.startswith(" ") or after == "x" * len(after)
    assert any(piece.startswith(" mot") for piece in pieces)
    assert list(Text("").pieces()) == []


@pytest.mark.parametrize(("before", "line"), [(b"", 1), (b"fine\n" * 50 + b"line", 51)])
def test_invalid_utf8_names_the_line(tmp_path, before, line):
    with raises("data", f"a.txt:{line}: byte 0xe9"):
        write(tmp_path / "a.txt", before + b"caf\xe9 au lait\n" + b"more\n" * 50)


def test_unreadable_files_raise(tmp_path):
    broken = tmp_path / "a.txt.gz"
    broken.write_bytes(gzip.compress(LINES.encode())[:-20])
    for path in (broken, tmp_path / "missing.txt", tmp_path):
        with raises("data", path):
            Text.of(path)


def test_missing_splits_are_cut_from_the_end():
    whole = Text("abcdefghij" * 100)
    cut = {name: len(part.content) for name, part in add_splits({"train": whole}, use_all=False)[0].items()}
    assert cut == {"train": 900, "val": 50, "test": 50}
    assert add_splits({"train": whole}, use_all=True)[0] == {"train": whole, "val": whole, "test": whole}
    kept, _ = add_splits({"train": whole, "test": Text("the end")}, use_all=True)
    assert {name: len(part.content) for name, part in kept.items()} == {"train": 950, "val": 50, "test": 7}
    assert add_splits({"train": whole, "val": whole}, use_all=False)[0].keys() == {"train", "val"}
