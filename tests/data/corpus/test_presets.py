import gzip

import pytest
from zoo_datasets import corpora as presets
from zoo_datasets import glosses as wordnet
from zoo_datasets.corpora import divide, pydoc
from zoo_datasets.glosses import gloss_corpus

from tests.errors import raises
from zoo.data import ready
from zoo.data.corpus import CorpusData, corpus

PLAY = "".join(f"SPEAKER {i}:\nWhat is {i}, my lord?\n\n" for i in range(200))


def put(path, text=PLAY):
    pack = gzip.compress if path.suffix == ".gz" else bytes
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pack(text.encode()))
    return path


def shares(made):
    return [made.info.sizes[name] for name in ("train", "val", "test")]


def text(made, split):
    return made.tokenizer.decode(made.splits[split][:])


@pytest.mark.parametrize("name", ["play.txt", "play.txt.gz", "play"])
def test_one_file_is_cut_in_order(tmp_path, name):
    made = ready(corpus(path=str(put(tmp_path / name)), max_length=32))
    assert "".join(text(made, split) for split in ("train", "val", "test")) == PLAY
    assert shares(made) == [
        len(PLAY) * 90 // 100,
        *(len(PLAY) * p // 100 - len(PLAY) * q // 100 for p, q in ((95, 90), (100, 95))),
    ]


def test_folder_with_splits(tmp_path):
    put(tmp_path / "train.txt.gz")
    put(tmp_path / "valid.txt", "What is it, my lord? " * 9)
    made = ready(corpus(path=tmp_path, max_length=32))
    assert made.info.sizes == {"train": len(PLAY), "val": 189}
    put(tmp_path / "test.txt", "What is it, my lord? " * 8)
    assert ready(corpus(path=tmp_path, max_length=32)).info.sizes == {"train": len(PLAY), "val": 189, "test": 168}


def test_invalid_paths_raise(tmp_path):
    with raises("missing", "nowhere.txt"):
        ready(corpus(path=tmp_path / "nowhere.txt"))
    put(tmp_path / "test.txt")
    with raises("missing", "corpus: ", "train.txt", "test.txt"):
        ready(corpus(path=tmp_path))
    put(tmp_path / "train.txt"), put(tmp_path / "train.txt.gz")
    with raises("conflict", "train.txt and train.txt.gz"):
        ready(corpus(path=tmp_path))


@pytest.mark.parametrize(("preset", "file"), [("shakespeare", "input.txt.gz"), ("text8", "text8"), ("enwik8", "enwik8.gz")])
def test_local_copy_is_a_file_or_its_folder(tmp_path, preset, file):
    path = put(tmp_path / "copy" / file)
    (tmp_path / "copy" / "README.md").touch()
    made = [ready(getattr(presets, preset)(path=place, max_length=32)) for place in (path, path.parent)]
    assert made[0].info == made[1].info
    assert shares(made[0])[0] == len(PLAY) * 90 // 100
    path.unlink()
    with raises("missing", f"{preset}: ", file.split(".")[0]):
        ready(getattr(presets, preset)(path=path.parent))


def test_help_topics_are_not_cut():
    topics = {f"topic {i}": "word " * (i % 7 + 1) * 20 for i in range(60)} | {"long": "word " * 2000}
    splits = divide(topics)
    assert sorted(topic for chosen in splits.values() for topic in chosen) == sorted(topics)
    assert "long" in splits["train"]
    total = sum(map(len, topics.values()))
    for name in ("val", "test"):
        assert 0.03 < sum(len(topics[topic]) for topic in splits[name]) / total <= 0.05
    assert divide(dict(reversed(topics.items()))) == splits


def test_pydoc():
    made = ready(pydoc())
    assert made.info.sizes["train"] > 10 * made.info.sizes["val"] > 10_000
    assert made.info == ready(pydoc(seed=3)).info
    assert "statement" in text(made, "train")


def test_glosses_are_one_per_line():
    made = ready(gloss_corpus(limit=400, tokenizer="bpe", vocab=258))  # which knows every byte
    parts = wordnet.cut(wordnet.read_glosses())
    for split, part in parts.items():
        lines = text(made, split).splitlines()
        assert len(lines) == 400
        assert set(lines) <= {f"{gloss.lemmas}: {gloss.definition}" for gloss in part}
        assert lines != sorted(lines)
    assert ready(gloss_corpus(limit=400, seed=9)).info.sha256 == made.info.sha256
    assert isinstance(made, CorpusData)
    with raises("invalid", "limit=0"):
        ready(gloss_corpus(limit=0))
