import errno
import os

import numpy as np
import pytest

from tests.errors import raises
from zoo.data import corpus
from zoo.data.corpus import Text, encode_text
from zoo.data.tokenizer import train_corpus_tokenizer

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
