"""Modules of running text, and the preset corpora."""

import gzip
import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from zoo_datasets import corpora as presets
from zoo_datasets import glosses as wordnet
from zoo_datasets.corpora import divide, pydoc
from zoo_datasets.glosses import gloss_corpus

from tests.errors import raises
from zoo.data import ready
from zoo.data.corpus import Blocks, CorpusData, Text, corpus, shuffled_blocks, streams
from zoo.data.text import Tokenizer
from zoo.data.tokenizer import encoder

draw = random.Random(0)
WORDS = " ".join(draw.choice(("rain", "sun", "été", "snow\n", "wind,")) for _ in range(900))
BUILT = {"max_length": 16, "batch_size": 4}


def data(text=WORDS, **options):
    return ready(CorpusData({"train": Text(text)}, **{**BUILT, **options}))


def counted(loader):
    return torch.cat([targets[targets != 0] for _, targets, _ in loader])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokenizer", ["char", "bpe"])
@pytest.mark.parametrize("batch_size", [1, 4, 1000])
def test_evaluation_counts_every_token_except_the_first_once(stream, tokenizer, batch_size):
    made = data(stream=stream, tokenizer=tokenizer, vocab=300, batch_size=batch_size)
    for name, loader in (("val", made.val_dataloader()), ("test", made.test_dataloader())):
        text = made.splits[name][:]
        found = counted(loader)
        assert len(found) == made.info.sizes[name] - 1
        assert sorted(found.tolist()) == sorted(text[1:].tolist())
        sizes = sum(sizes for _, _, parts in loader for sizes in parts)
        content = made.tokenizer.decode(text[1:])
        assert sizes.tolist() == [len(content), len(content.encode())]
    if not stream:
        assert found.tolist() == text[1:].tolist()


def test_stream_batches_continue_the_previous_batch():
    made = data(stream=True, batch_size=3)
    assert made.info.inputs == "token_stream"
    for loader, name in ((made.train_dataloader(), "train"), (made.val_dataloader(), "val")):
        batches = list(loader)
        assert len({len(tokens) for tokens, _, _ in batches}) == 1
        rows = torch.cat([tokens for tokens, _, _ in batches], dim=1).flatten().tolist()
        text = made.splits[name][:].tolist()
        assert [token for token in rows if token] == text[: sum(token != 0 for token in rows)]
        for (_, before, _), (after, _, _) in pairwise(batches):
            goes_on = after[:, 0] != 0
            assert before[:, -1][goes_on].equal(after[:, 0][goes_on])
    first, second = (list(made.train_dataloader()) for _ in range(2))
    assert all(a[0].equal(b[0]) for a, b in zip(first, second, strict=True)), "streams are never shuffled"
    assert len(first) > 50
    assert len(first[0][0]) == 3


def test_results_on_streams_do_not_depend_on_the_batch_size():
    one, other = ([tokens.tolist() for tokens, _, _ in data(stream=True, batch_size=b).val_dataloader()] for b in (1, 9))
    assert one == other
    tiny = data("ab" * 200, max_length=9, stream=True)
    assert next(iter(tiny.val_dataloader()))[0].shape == (2, 9)
    assert next(iter(data("ab" * 200, stream=True, batch_size=999).train_dataloader()))[0].shape == (22, 16)


def test_trained_model_keeps_its_tokenizer():
    trained = data()
    new = ready(
        CorpusData({"train": Text("ein anderer Text, été " * 30)}, tokenizer=trained.tokenizer, use_all=True, max_length=999)
    )
    assert new.tokenizer is trained.tokenizer
    assert new.files == trained.files
    assert (new.length, new.info.max_length, new.info.vocab_size) == (16, 16, trained.info.vocab_size)
    assert new.info.sizes == {"train": 660, "val": 660, "test": 660}
    assert (new.splits["val"] == 1).any(), "characters that the model does not know"
    stored = Tokenizer.from_json(trained.files["tokenizer.json"], trained.info)
    assert (encoder(stored)(WORDS) == encoder(trained.tokenizer)(WORDS)).all()


def test_the_tokenizer_learns_from_training_text_only():
    made = ready(CorpusData({"train": Text("abc " * 99), "val": Text("abx " * 30)}, **BUILT))
    assert not made.has_test
    assert "x" not in made.tokenizer.tokens
    assert counted(made.val_dataloader()).eq(1).any()
    with raises("missing", "test split"):
        made.test_dataloader()


@pytest.mark.parametrize(
    ("options", "code", "values"),
    [
        ({"tokenizer": "word"}, "invalid", ("tokenizer='word'",)),
        ({"max_length": 0}, "invalid", ("max_length=0",)),
        ({"max_length": 500}, "data", ("val split: 2", "max_length=500")),
        ({"text": "ab"}, "data", ("the text, train split: 1 tokens",)),
    ],
)
def test_invalid_input_raises(options, code, values):
    with raises(code, *values):
        data(**options)


EXTENTS = np.array([[0, 0], [1, 1], *([[1, 2]] * 998)])


def blocks(count, length):
    return Blocks(np.arange(1, count + 1, dtype=np.uint16), length, EXTENTS)


def test_targets_are_the_next_tokens():
    tokens, targets, sizes = blocks(20, 4).__getitems__([0, 11])
    assert tokens.tolist() == [[1, 2, 3, 4], [12, 13, 14, 15]]
    assert targets.tolist() == [[2, 3, 4, 5], [13, 14, 15, 16]]
    assert sizes.tolist() == [[4, 8], [4, 8]]
    assert {part.dtype.itemsize for part in (tokens, targets, sizes)} == {8}


def test_tokens_and_targets_are_padded_after_the_end():
    tokens, targets, sizes = blocks(6, 4).__getitems__([4, 5, 900])
    assert tokens.tolist() == [[5, 0, 0, 0], [0] * 4, [0] * 4]
    assert targets.tolist() == [[6, 0, 0, 0], [0] * 4, [0] * 4]
    assert sizes.tolist() == [[1, 2], [0, 0], [0, 0]]


@pytest.mark.parametrize("steps", [5, 6, 9, 10, 11, 14, 103])
def test_an_epoch_reads_every_block_once(steps):
    orders = [shuffled_blocks(steps, 5, seed=1, epoch=epoch) for epoch in range(40)]
    assert len({len(order) for order in orders}) == 1, "epochs of different length"
    for order in orders:
        starts = np.sort(order)
        assert (np.diff(starts) == 5).all()
        assert starts[0] in range(5)
        assert starts[-1] + 5 <= steps
        assert steps - 5 * len(starts) <= 8
    assert len({int(order.min()) for order in orders}) == min(5, steps - 4), "not all shifts are tried"


@pytest.mark.parametrize("steps", [5, 6, 79, 80, 81, 164, 1000])
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_streams_are_contiguous(steps, rows):
    for whole in (True, False):
        places, count = streams(steps, 5, rows, drop_last=whole)
        table = places.reshape(-1, count)
        assert 1 <= count <= rows
        assert (np.diff(table, axis=0) == 5).all()
        assert (table[0, 1:] == table[-1, :-1] + 5).all(), "a stream begins where the one before ends"
        assert table[0, 0] == 0
        if whole:
            assert count == min(rows, steps // 5)
            assert table.max() + 5 <= steps
            assert steps - len(places) * 5 < 5 * count
        else:
            covered = (places[:, None] + np.arange(5)).ravel()
            assert sorted(covered[covered < steps]) == list(range(steps))
            assert table[0, -1] < steps, "a stream of nothing but padding"


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
