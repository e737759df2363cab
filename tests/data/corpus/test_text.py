"""Running text: files, pieces, splits, tokenizers and cached tokens."""

import bz2
import errno
import gzip
import lzma
import os
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from tests.errors import raises
from zoo.data import corpus
from zoo.data.corpus import CorpusData, Text, add_splits, encode_text
from zoo.data.tokenizer import encoder, token_dtype, token_sizes, train_corpus_tokenizer, train_tokenizer

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


def test_a_compressed_file_of_another_kind_is_not_taken_for_text(tmp_path):
    (tmp_path / "text8.bz2").write_bytes(bz2.compress(LINES.encode()))
    with raises("data", "text8.bz2: ", "unpack", ".gz or .xz"):
        Text.of(tmp_path / "text8.bz2")


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


WORDS = Text("".join(f"the {i}th été of Tōkyō\n" for i in range(200)))


def made(text=WORDS, kind="char", lowercase=False):
    return encode_text(text, train_corpus_tokenizer(kind, text.pieces(), 300, lowercase))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus, "PIECE", 1000)
    return tmp_path / "cache" / "hypercomplex-zoo" / "tokens"


@pytest.fixture
def small(folder, monkeypatch):
    tokens = made()
    assert not folder.exists(), "small texts need no file"
    monkeypatch.setattr(corpus, "LARGE", 100)
    return tokens


def test_tokens_of_a_large_text_are_a_mapped_file_that_is_written_once(folder, small):
    found = made()
    assert isinstance(found.base, np.memmap)
    assert (found == small).all()
    (file,) = folder.iterdir()
    before = file.stat().st_mtime_ns
    assert (made() == small).all()
    assert file.stat().st_mtime_ns == before
    made(kind="bpe"), made(lowercase=True), made(Text(WORDS.content + "x"))
    assert len([*folder.iterdir()]) == 4


def test_interrupted_write_leaves_no_file(folder, small, monkeypatch):
    class Broken(Text):
        def pieces(self):
            yield WORDS.content
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tokenizer = train_corpus_tokenizer("char", WORDS.pieces(), 300, False)
    with raises("failed", folder, "No space", "ZOO_HOME"):
        encode_text(Broken(WORDS.content), tokenizer)
    assert list(folder.iterdir()) == []
    assert (encode_text(WORDS, tokenizer) == small).all()


TEXT = "Été à Tōkyō: 東京 😀!\r\n\tThe cafe\u0301s of ΟΔΥΣΣΕΥΣ,  and don't...\n\n" * 9 + "  seldom: ẞ\u0000 İ\n"


def learned(kind, vocab=400, lowercase=False):
    return train_corpus_tokenizer(kind, [TEXT[:300], TEXT[300:]], vocab, lowercase)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("vocab", [3, 20, 400])
def test_char_vocabulary_equals_that_of_the_library(vocab, lowercase):
    counted = train_corpus_tokenizer("char", [TEXT[:300], TEXT[300:]], vocab, lowercase)
    assert counted.to_json() == train_tokenizer("char", [TEXT], vocab, lowercase, 1).to_json()


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(("kind", "vocab"), [("char", 400), ("char", 20), ("bpe", 258), ("bpe", 400)])
def test_encoder_equals_the_tokenizer(kind, vocab, lowercase):
    made = learned(kind, vocab, lowercase)
    expected = made.backend.encode(TEXT, add_special_tokens=False).ids
    found = encoder(made)(TEXT)
    assert found.tolist() == expected
    assert found.dtype == "<u2" == token_dtype(made)


@pytest.mark.parametrize(("kind", "vocab"), [("char", 400), ("bpe", 258), ("bpe", 400)])
def test_token_sizes_add_up_to_the_text(kind, vocab):
    made = learned(kind, vocab)
    normal = unicodedata.normalize("NFC", TEXT)
    assert made.decode(encoder(made)(TEXT)) == normal
    assert token_sizes(made)[encoder(made)(TEXT)].sum(axis=0).tolist() == [len(normal), len(normal.encode())]


def test_token_sizes_of_every_byte():
    made = learned("bpe", 258)
    letters = "".join(map(chr, [*range(0x80), 0x80, 0x7FF, 0x800, 0xFFFD, 0x10000, 0x10FFFF, *range(0xA0, 0x250)]))
    for letter in letters:
        numbers = encoder(made)(letter)
        normal = unicodedata.normalize("NFC", letter)
        assert token_sizes(made)[numbers].sum(axis=0).tolist() == [len(normal), len(normal.encode())]


def test_lossy_tokenizers_raise():
    with raises("invalid", "tokenizer='word'", "char, bpe"):
        CorpusData({"train": Text(TEXT)}, tokenizer="word")
    with raises("invalid", "running text"):
        encoder(train_tokenizer("word", [TEXT], 99, False, 1))
    with raises("invalid", "vocab=257:", "at least 258"):
        train_corpus_tokenizer("bpe", [TEXT], 257, False)


def test_tokenizer_file_of_a_model(tmp_path):
    text, file = Text("to be or not to be, " * 90), tmp_path / "tokenizer.json"
    first = CorpusData({"train": text}, tokenizer="bpe", vocab=270, max_length=16)
    first.setup()
    file.write_text(first.tokenizer.to_json(), encoding="utf-8")
    again = CorpusData({"train": Text("that is the question, " * 90)}, tokenizer=str(file), max_length=16)
    again.setup()
    assert again.tokenizer.to_json() == first.tokenizer.to_json()
    assert again.info.max_length == 16
    for content in ("no", '{"version": "1.0"}', None):
        file.unlink() if content is None else file.write_text(content)
        with raises("invalid" if content is None else "corrupt", f"tokenizer={str(file)!r}"):
            CorpusData({"train": text}, tokenizer=str(file))
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save(str(file))
    with raises("corrupt", f"tokenizer={str(file)!r}"):
        CorpusData({"train": text}, tokenizer=str(file))
