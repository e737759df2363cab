import errno
import os
import pickle
import threading

import numpy as np
import pytest

from tests.errors import raises
from zoo.data import cache
from zoo.data.corpus import Text, source
from zoo.data.corpus.encoding import encode_source, train_corpus_tokenizer
from zoo.data.corpus.source import source_digest
from zoo.errors import InputError

WORDS = Text("".join(f"the {i}th été of Tōkyō\n" for i in range(200)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(source, "PIECE", 1000)
    return tmp_path / "cache" / "hypercomplex-zoo" / "tokens"


def made(text=WORDS, kind="char", lowercase=False):
    return encode_source(text, source_digest(text), train_corpus_tokenizer(kind, text.pieces(), 300, lowercase))


@pytest.fixture
def large(folder, monkeypatch):
    kept = made()
    assert isinstance(kept, np.ndarray)
    assert not folder.exists(), "small texts need no file"
    monkeypatch.setattr(cache, "SMALL", 100)
    return kept


def test_cached_file_equals_the_array(folder, large):
    found = made()
    assert isinstance(found, cache.MappedArray)
    assert len(found) == len(large)
    assert (found[:] == large).all()
    places = np.array([[3, 1], [0, len(large) - 1]])
    assert (found[places] == large[places]).all()
    assert [file.name for file in folder.iterdir()] == [found.path.name]


def test_cached_file_is_reused(folder, large, monkeypatch):
    first = made().path
    before = first.stat().st_mtime_ns
    monkeypatch.setattr(cache, "write_file", None)  # whatever writes now fails
    assert made().path == first
    assert first.stat().st_mtime_ns == before
    monkeypatch.undo()
    monkeypatch.setattr(cache, "SMALL", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parents[1]))
    others = {first, made(kind="bpe").path, made(lowercase=True).path, made(Text(WORDS.content + "x")).path}
    assert len(others) == 4


def test_pickle_of_a_mapped_array_is_its_path(folder, large):
    found = made()
    sent = pickle.dumps(found)
    assert len(sent) < 1000 < len(found)
    assert (pickle.loads(sent)[:] == large).all()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), ValueError])
def test_interrupted_write_leaves_no_file(folder, large, monkeypatch, stop):
    class Broken(Text):
        def pieces(self):
            yield WORDS.content
            raise stop

    text = Broken(WORDS.content)
    tokenizer = train_corpus_tokenizer("char", ["the "], 9, False)
    expected = InputError if isinstance(stop, OSError) else stop
    with pytest.raises(expected) as raised:
        encode_source(text, "0", tokenizer)
    assert list(folder.iterdir()) == []
    if isinstance(stop, OSError):
        assert "the disk is full" in str(raised.value)
        assert "ZOO_HOME" in str(raised.value)
        assert "\n" not in str(raised.value)
    whole = encode_source(WORDS, "0", tokenizer)
    assert len(whole) == WORDS.size


def test_unwritable_cache_folder_raises(tmp_path, large, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with raises("failed", tmp_path / "file", "ZOO_HOME"):
        made()


def test_concurrent_writes_agree(folder, large):
    found = []
    threads = [threading.Thread(target=lambda: found.append(made()[:])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all((tokens == large).all() for tokens in found)
    assert len([*folder.iterdir()]) == 1
