import random
import re

import pytest
import torch
from zoo_datasets.generated import mlu

from tests.errors import raises
from zoo.data.module import ready
from zoo.data.parallel import ParallelData
from zoo.data.text import Table, Tokenizer

BEGIN, END = 2, 3


def Pairs(sources, targets, name="the data", files=None):
    return Table({"first": sources, "second": targets}, name, files=files)


def pairs(count=120, seed=0, **options):
    draws = random.Random(seed)
    rows = [[draws.choice("abcdefg") for _ in range(draws.randint(1, 12))] for _ in range(count)]
    targets = [" ".join([*map(str.upper, reversed(row))] * draws.randint(1, 2)) for row in rows]
    return Pairs([" ".join(row) for row in rows], targets, **{"name": "p", "files": ("p.a", "p.b"), **options})


def data(splits=None, **options):
    return ready(ParallelData(splits or {"train": pairs()}, **{"tokenizer": "space", "batch_size": 8, **options}))


def batches(made, name):
    return list(getattr(made, f"{name}_dataloader")())


def numbers(made, name):
    return [batch[2].tolist() for batch in batches(made, name)]


def test_batch_contents():
    made = data({"train": pairs(), "test": pairs(20, seed=1)})
    for name in ("train", "val", "test"):
        for (source, shifted), targets, rows, *_ in batches(made, name):
            assert {tensor.dtype for tensor in (source, shifted, targets, rows)} == {torch.int64}
            assert shifted.shape == targets.shape
            assert (source[:, -1] != 0).any()
            assert (targets[:, -1] != 0).any()
            for row, read, before, after in zip(rows.tolist(), source, shifted, targets, strict=True):
                expected = [
                    made.tokenizer.backend.encode(text).ids
                    for text in (made.splits[name].texts[0][row], made.splits[name].texts[1][row])
                ]
                assert read[read != 0].tolist() == [*expected[0], END]
                assert after[after != 0].tolist() == [*expected[1], END]
                assert before[before != 0].tolist() == [BEGIN, *expected[1]]
                for tokens in (read, before, after):
                    assert (tokens[int((tokens != 0).sum()) :] == 0).all(), "padding before a token"


@pytest.mark.parametrize("tokenizer", ["bpe", "char", "space"])
def test_targets_decode_to_the_references(tokenizer):
    made = data(tokenizer=tokenizer, vocab=300)
    for (_, shifted), targets, _, references in batches(made, "val"):
        for tokens in (targets, shifted):
            assert [made.tokenizer.decode(row).strip() for row in tokens.tolist()] == references


def test_long_training_pairs_are_dropped_and_others_truncated():
    splits = {name: pairs(seed=seed) for seed, name in enumerate(("train", "val", "test"))}
    whole = data(splits)
    longest = max(len(text.split()) + 1 for part in splits.values() for side in (part.texts[0], part.texts[1]) for text in side)
    assert whole.info.max_length == whole.tokenizer.max_length == longest
    made = data(splits, max_length=7)
    short = [
        i for i in range(120) if all(len(side[i].split()) < 7 for side in (splits["train"].texts[0], splits["train"].texts[1]))
    ]
    assert 0 < made.info.sizes["train"] == len(short) < 120
    assert made.splits["train"].texts == splits["train"].take(short).texts
    assert made.splits["train"].location(0, side=1) == f"p.b:{short[0] + 1}"
    assert made.info.sizes["val"] == made.info.sizes["test"] == 120
    assert made.info.max_length == 7
    for (source, shifted), targets, rows, references in batches(made, "val"):
        assert max(source.shape[1], shifted.shape[1], targets.shape[1]) <= 7
        for row, tokens in zip(rows.tolist(), targets.tolist(), strict=True):
            written = splits["val"].texts[1][row].split()
            assert made.tokenizer.decode(tokens).split() == written[:6]
            assert tokens[min(len(written), 6)] == END, "a cut text ends too"
        assert references == [splits["val"].texts[1][row] for row in rows.tolist()]
    assert made.info.sha256 == whole.info.sha256, "it is the same content"
    assert made.files == whole.files
    assert data(splits, max_length=500).info.max_length == 500


def test_one_vocabulary_from_both_sides_of_the_training_pairs():
    splits = {name: Pairs([f"both {name}"] * 3, [f"both t{name}"] * 3) for name in ("train", "val", "test")}
    made = data(splits)
    assert made.tokenizer.tokens == ["[PAD]", "[UNK]", "[BOS]", "[EOS]", "both", "train", "ttrain"]
    assert made.tokenizer.has_end
    (source, _), targets, *_ = batches(made, "test")[0]
    assert source[0].tolist() == targets[0].tolist() == [4, 1, END]
    held = data({"train": Pairs([f"w{i}" for i in range(40)], [f"v{i}" for i in range(40)])})
    assert {*held.tokenizer.tokens[4:]} == {*held.splits["train"].texts[0], *held.splits["train"].texts[1]}


def test_trained_model_keeps_its_tokenizer_and_limit():
    trained = data(max_length=9)
    stored = Tokenizer.from_json(trained.files["tokenizer.json"], trained.info)
    other = {"train": pairs(60, seed=3), "test": pairs(60, seed=4)}
    again = data(other, tokenizer=stored)
    assert again.files == trained.files
    assert (again.info.vocab_size, again.info.max_length) == (trained.info.vocab_size, 9)
    for (source, shifted), targets, *_ in batches(again, "test"):
        assert max(source.shape[1], shifted.shape[1], targets.shape[1]) <= 9
    assert data(other, tokenizer=stored, max_length=99).info.max_length == 9
    long = Pairs(["a " * 20] * 4, ["A"] * 4)
    assert data({"train": long, "test": long}, tokenizer=stored).info.sizes == {"train": 0, "val": 1, "test": 4}


BLANK = Pairs(["a", "b", " \n"], ["x", "y", "z"], files=("s.en", "s.de"))


@pytest.mark.parametrize(
    ("splits", "options", "code", "value"),
    [
        ({"test": pairs()}, {}, "data", "['test']"),
        ({"train": pairs()}, {"max_length": 1}, "invalid", "max_length=1"),
        ({"train": Pairs(["a b c"] * 9, ["d"] * 9, "q")}, {"max_length": 3}, "invalid", "max_length=3"),
        ({"train": pairs()}, {"vocab": 4}, "invalid", "vocab=4: the tokenizer 'space' needs at least 5"),
        ({"train": pairs(), "test": BLANK}, {"tokenizer": "word"}, "data", "s.en:3: "),
    ],
)
def test_invalid_data_raises(splits, options, code, value):
    with raises(code, value):
        data(splits, **options)


LINE = re.compile(r"([xy])=(-?\d+),([xy])=(-?\d+),([xy])([-+*])([xy])")
COUNTS = {"train": 4000, "val": 300, "test": 500}


@pytest.fixture(scope="module")
def made():
    return ready(mlu(**COUNTS))


def parts(source):
    first, one, second, other, left, sign, right = LINE.fullmatch(source).groups()
    return {first: int(one), second: int(other)}, first, left, sign, right


def rows(data):
    return [row for split in data.splits.values() for row in zip(split.texts[0], split.texts[1], strict=True)]


def test_every_value_is_right(made):
    assert made.info.sizes == COUNTS
    for source, target in rows(made):
        values, _, left, sign, right = parts(source)
        assert len(values) == 2
        assert all(-1000 <= value < 1000 for value in values.values())
        a, b = values[left], values[right]
        assert target == str({"+": a + b, "-": a - b, "*": a * b}[sign])


def test_no_triple_occurs_twice(made):
    found = [(values["x"], values["y"], sign) for values, _, _, sign, _ in map(parts, (source for source, _ in rows(made)))]
    assert len(set(found)) == len(found) == sum(COUNTS.values())


def test_pairs_depend_on_counts_only(made):
    before = random.getstate()
    other = ready(mlu(**{**COUNTS, "train": 1000}, seed=7, batch_size=4))
    assert random.getstate() == before
    for name in ("val", "test"):
        assert other.splits[name].texts == made.splits[name].texts
    assert other.splits["train"].texts[0] == made.splits["train"].texts[0][:1000]
    assert made.splits["test"].texts[0][:2] == ["x=463,y=-738,x*x", "y=-433,x=-221,x+x"]
