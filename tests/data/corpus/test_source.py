import gzip
import lzma
from itertools import pairwise
from pathlib import Path

import pytest

from tests.errors import raises
from zoo.data.corpus import Text, TextFile, source
from zoo.data.corpus.source import add_splits, source_digest

LINES = "".join(f"ligne {i} : été, naïve, 東京 😀\n" for i in range(40)) + "mot " * 30 + "x" * 99


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(source, "PIECE", 37)


def write(path: Path, content: bytes) -> TextFile:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content))
    return TextFile.of(path)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.xz"])
def test_compressed_files_are_decompressed(tmp_path, name):
    file = write(tmp_path / name, LINES.encode())
    pieces = list(file.pieces())
    assert "".join(pieces) == LINES
    assert len(pieces) > 20, "read as a whole"
    assert file.size == len(LINES.encode())
    assert source_digest(file) == source_digest(Text(LINES))


@pytest.mark.parametrize("percent", [(90, 95, 100), (33, 66, 67, 100)])
def test_cut_parts_concatenate_to_the_text(tmp_path, percent):
    for whole in (Text(LINES), write(tmp_path / "a.txt", LINES.encode()), write(tmp_path / "a.txt.gz", LINES.encode())):
        parts = whole.cut(percent)
        assert "".join("".join(part.pieces()) for part in parts) == LINES
        done = 0
        for part, share in zip(parts, percent, strict=True):
            done += part.size
            assert 0 <= done - whole.size * share // 100 < 4, "a cut may move to the end of a character, no further"
        again = parts[0].cut((50, 100))
        assert "".join("".join(part.pieces()) for part in again) == "".join(parts[0].pieces())


def test_pieces_end_where_words_end():
    pieces = list(Text(LINES).pieces())
    for before, after in pairwise(pieces):
        assert before.endswith("\n") or after.startswith(" ") or after == "x" * len(after)
    assert any(piece.endswith("\n") for piece in pieces)
    assert any(piece.startswith(" mot") for piece in pieces)


def test_byte_order_mark_is_removed(tmp_path):
    assert "".join(write(tmp_path / "a.txt", b"\xef\xbb\xbfone\n").pieces()) == "one\n"
    inside = ("x" * 37 + "\ufeff") * 3
    assert "".join(write(tmp_path / "a.txt", inside.encode()).pieces()) == inside


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize(("before", "line"), [(b"", 1), (b"fine\n" * 50, 51), (b"fine\n" * 50 + b"line", 51)])
def test_invalid_utf8_names_the_line(tmp_path, name, before, line):
    file = write(tmp_path / name, before + b"caf\xe9 au lait\n" + b"more\n" * 50)
    with raises("data", f"{name}:{line}: byte 0xe9"):
        list(file.pieces())


def test_invalid_utf8_in_a_part_names_the_line_of_the_file(tmp_path):
    file = write(tmp_path / "a.txt", b"fine\n" * 96 + b"\xff\n" + b"fine\n" * 3)
    train, *_, test = file.cut((90, 95, 100))
    assert "".join(train.pieces()).startswith("fine")
    with raises("data", "a.txt:97: byte 0xff"):
        list(test.pieces())


def test_truncated_character_at_the_end_raises(tmp_path):
    file = write(tmp_path / "a.txt", b"fine\n\xc3")
    with raises("data", "a.txt:2: byte 0xc3"):
        list(file.pieces())


def test_unreadable_files_raise(tmp_path):
    broken = tmp_path / "a.txt.gz"
    broken.write_bytes(gzip.compress(LINES.encode())[:-20])
    for path in (broken, tmp_path / "missing.txt", tmp_path):
        with raises("data", path):
            TextFile.of(path)


@pytest.mark.parametrize("empty", [b"", b"\xef\xbb\xbf"])
def test_empty_text_has_no_pieces(tmp_path, empty):
    for nothing in (Text(""), write(tmp_path / "nothing", empty)):
        assert list(nothing.pieces()) == []


def test_missing_splits_are_cut_from_the_end():
    whole = Text("".join(map(chr, range(1000, 2000))))
    cut = {name: part.size for name, part in add_splits({"train": whole}, use_all=False)[0].items()}
    assert cut == {"train": 900, "val": 50, "test": 50}
    assert add_splits({"train": whole}, use_all=True)[0] == {"train": whole, "val": whole, "test": whole}
    kept, _ = add_splits({"train": whole, "test": Text("the end")}, use_all=True)
    assert {name: part.size for name, part in kept.items()} == {"train": 950, "val": 50, "test": 7}
    assert add_splits({"train": whole, "val": whole}, use_all=False)[0].keys() == {"train", "val"}
