import json

import numpy as np
import pytest

from tests.errors import raises
from zoo.data import tokenizer_file
from zoo.data.info import TextInfo
from zoo.data.splits import check_splits, split_tables
from zoo.data.text import Table
from zoo.data.tokenizer import LONGEST, TOKENIZERS, Tokenizer, train_tokenizer
from zoo.data.tokens import Tokens

TEXTS = ["The cat doesn't sit.", "the DOG sits!!", "a dog's cat -- naïve\u0085café", "the end"] * 3


def made_of(kind="word", texts=TEXTS, vocab=400, lowercase=True, min_count=1, max_length=100, truncation=False):
    return train_tokenizer(kind, texts, vocab, lowercase, min_count).limited(max_length, truncation=truncation)


def spell(made, text):
    return [made.tokens[number] for number in made.encode([text])[0]]


def test_word_tokens():
    assert spell(made_of(), "The cat doesn't sit!!") == ["the", "cat", "does", "n't", "sit", "!", "!"]
    assert spell(made_of(), "dog's") == ["dog", "'s"]
    assert spell(made_of(lowercase=False), "The the") == ["The", "the"]


def test_bpe_encodes_every_text():
    made = made_of("bpe", vocab=300)
    assert 1 not in made.encode(["日本 \x00 é"])[0]
    assert made.backend.decode(made.encode(["a new dog"])[0].tolist()) == " a new dog"
    assert len(made.encode(["the"])[0]) == 1


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_first_two_tokens_are_padding_and_unknown(kind):
    made = made_of(kind, lowercase=False)
    assert made.tokens[:2] == ["[PAD]", "[UNK]"]
    assert len(made.tokens) == len(set(made.tokens)) == made.vocab_size
    for text in ("[PAD]", "a [PAD] b [UNK]", "[pad]"):
        assert 0 not in made.encode([text])[0]


@pytest.mark.parametrize("kind", ["word", "space", "char"])
def test_tokens_outside_the_vocabulary_are_unknown(kind):
    assert set(made_of(kind).encode(["ξξ"])[0]) == {1}


def test_vocabulary_is_sorted_by_frequency_then_alphabetically():
    made = made_of("space", ["b a c", "c d", "c a b"])
    assert made.tokens[2:] == ["c", "a", "b", "d"]
    assert made_of("space", ["b a c", "c d", "c a b"], vocab=4).tokens[2:] == ["c", "a"]
    assert made_of("space", ["b a c", "c d", "c a b"], min_count=2).tokens[2:] == ["c", "a", "b"]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_saved_tokenizer_encodes_the_same(kind):
    made = made_of(kind)
    info = TextInfo(classes=("no", "yes"), vocab_size=made.vocab_size, max_length=100, sizes={}, sha256="")
    again = Tokenizer.from_json(made.to_json(), info)
    assert (again.tokens, again.max_length, again.truncation) == (made.tokens, 100, False)
    for one, other in zip(made.encode([*TEXTS, "new [PAD]"]), again.encode([*TEXTS, "new [PAD]"]), strict=True):
        assert np.array_equal(one, other)
    with raises("invalid", "tokenizer.json: "):
        Tokenizer.from_json(made_of(kind, ["other text"], vocab=290).to_json(), info)
    with raises("corrupt", "tokenizer.json: "):
        Tokenizer.from_json("{}", info)


@pytest.mark.parametrize(("text", "named"), [("a" * (LONGEST + 1), "4,194,305 characters"), ("a \ud800", "invalid UTF-8")])
def test_texts_that_the_library_cannot_read(text, named):
    """A word of ten million letters is beyond the limit of its regular expressions."""
    with raises("data", "f.txt:8", named):
        made_of("word").encode(["the", text], ["f.txt:7", "f.txt:8"].__getitem__)
    with raises("data", "text 1", named):
        made_of("word", ["the dog", text])


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_the_file_has_a_form_of_the_zoo(kind, lowercase, running):
    """What the library writes for a tokenizer is what its file contains, and the file is read as it is."""
    tokenizer = train_tokenizer(kind, TEXTS, 300, lowercase, 1, running=running)
    assert json.loads(tokenizer.to_json()) == json.loads(tokenizer.backend.to_str())
    assert tokenizer_file.read(tokenizer.to_json(), "it").to_str() == tokenizer.backend.to_str()


def test_long_texts_are_truncated_or_raise():
    assert spell(made_of("space", max_length=2, truncation=True), "the dog the") == ["the", "dog"]
    with raises("data", "f.txt:8: 3 tokens", "at most 2", "max_length"):
        made_of("space", max_length=2).encode(["the", "the dog the"], ["f.txt:7", "f.txt:8"].__getitem__)
    assert len(made_of("space", max_length=2).encode(["the dog"])[0]) == 2


def test_locations_beyond_the_first_chunk(monkeypatch):
    monkeypatch.setattr("zoo.data.tokenizer.CHUNK", 2)
    with raises("data", "row 4: "):
        made_of().encode(["a", "b", "c", "d", " \n"], "row {}".format)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"kind": "words"}, ("tokenizer='words'", "word, space, char, bpe")),
        ({"vocab": 2}, ("vocab=2", "3 tokens")),
        ({"kind": "bpe", "vocab": 257}, ("vocab=257", "258 tokens")),
    ],
)
def test_invalid_options_raise(options, values):
    with raises("invalid", *values):
        made_of(**options)


def test_padding_does_not_change_tokens():
    sequences = [[3, 4], [5], [6, 7, 8, 9], [2, 2, 2]]
    tokens = Tokens(np.concatenate(sequences).astype(np.int32), [*map(len, sequences)])
    for rows in ([0], [1, 0], [2, 1, 3], [3, 3, 0, 1, 2]):
        batch = tokens.padded(rows)
        assert batch.shape[1] == max(len(sequences[row]) for row in rows)
        assert [line[line != 0].tolist() for line in batch] == [sequences[row] for row in rows]
        assert all((line[len(sequences[row]) :] == 0).all() for line, row in zip(batch, rows, strict=True))
    assert [part.tolist() for part in tokens.take(np.array([3, 1]))] == [[2, 2, 2], [5]]


# --- texts that are written ---


def writer(kind="char", texts=TEXTS, vocab=400, lowercase=False, max_length=100):
    return train_tokenizer(kind, texts, vocab, lowercase, 1, ends=True).limited(max_length)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_begin_and_end_are_tokens_2_and_3(kind):
    made = writer(kind)
    assert made.tokens[:4] == ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]
    assert made.has_end
    assert not made_of(kind).has_end
    assert len(made.tokens) == len(set(made.tokens)) == made.vocab_size
    for text in ("[BOS] a [EOS]", "[BOS]", "a [PAD]"):  # whole words of `space`, which keeps them
        assert kind == "space" or not {0, 2, 3} & set(made.encode([text])[0].tolist())


def test_literal_special_tokens_are_not_learned():
    texts = ["a [EOS] b", "[BOS] [EOS][PAD] c [UNK]", "d"]
    for ends, names in ((True, ["[BOS]", "[EOS]"]), (False, [])):
        made = train_tokenizer("space", texts, 50, False, 1, ends=ends)
        assert made.tokens == ["[PAD]", "[UNK]", *names, "a", "b", "c", "d"]


@pytest.mark.parametrize("kind", ["char", "bpe"])
@pytest.mark.parametrize(
    "text", ["The cat doesn't sit.", "a  dog's\tcat -- naïve\u0085café\n the end", "the ", "\n", "naïve [EOS] [UNK]"]
)
def test_decode_inverts_encode(kind, text):
    made = writer(kind, [*TEXTS, "\t[]\nEOSUNK"])
    numbers = made.encode([text])[0].tolist()
    assert made.decode(numbers) == text
    assert made.decode([2, *numbers, 3]) == text
    running = train_tokenizer(kind, [*TEXTS, "\t[]\nEOSUNK"], 400, False, 1, running=True)
    assert running.decode(running.encode([text])[0]) == text


def test_decode_stops_at_the_end_token():
    made = writer()
    numbers = made.encode(["the cat"])[0].tolist()
    for behind in ([3], [3, 0, 0], [3, *numbers], [3, 3], [0, 0]):
        assert made.decode([*numbers, *behind]) == "the cat"
        assert made.decode(np.array([2, *numbers, *behind])) == "the cat"
    assert made.decode([3, *numbers]) == made.decode([]) == made.decode([2, 3]) == ""
    assert made.decode([numbers[0], 1, numbers[1]]) == "th"


def test_running_text_has_no_leading_space():
    """Pieces of a text can be encoded separately and concatenated."""
    made = train_tokenizer("bpe", TEXTS, 300, False, 1, running=True)
    parts = ["The cat", " doesn't", "\n", "sit", "é"]
    assert [made.decode(numbers) for numbers in made.encode(parts)] == parts
    assert made.decode(np.concatenate(list(made.encode(parts)))) == "".join(parts)
    answer = writer("bpe", vocab=300)
    assert answer.tokens[answer.encode(["the"])[0][0]].startswith("Ġ")
    assert not made.tokens[made.encode(["the"])[0][0]].startswith("Ġ")


def table(sizes=(50, 23, 11)):
    labels = [name for name, size in zip("abc", sizes, strict=True) for _ in range(size)]
    return Table({"text": [f"{i}" for i in range(len(labels))], "label": labels})


def asked(count=23):
    rows = [(f"q{q}", f"q{q} a{a}") for q in range(count) for a in range(1 + q % 4)]
    first, second = (list(column) for column in zip(*rows, strict=True))
    return Table({"first": first, "second": second, "label": ["0"] * len(rows), "group": first})


def cut(rows, **options):
    return split_tables({"train": rows}, **{"val": 0.1, "folds": 5, "fold": 0, **options})


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("folds", [2, 5, 11])
def test_folds_partition_the_rows(grouped, folds):
    rows = asked() if grouped else table()
    tests = [cut(rows, folds=folds, fold=fold)["test"].texts[-1] for fold in range(folds)]
    assert sorted(text for test in tests for text in test) == sorted(rows.texts[-1])


def test_folds_are_stratified():
    tests = [cut(table(), fold=fold)["test"] for fold in range(5)]
    counts = np.array([[test.labels.count(label) for label in "abc"] for test in tests])
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(counts.sum(1)) <= 1
    val = cut(table(), val=0.3)["val"]
    assert [val.labels.count(label) for label in "abc"] == pytest.approx([12, 5.5, 2.6], abs=1)


def test_questions_are_not_cut():
    for fold in range(5):
        parts = cut(asked(), fold=fold)
        seen = [set(part.texts[0]) for part in parts.values()]
        assert len(set.union(*seen)) == sum(map(len, seen)) == 23
        assert len(seen[2]) in (4, 5)


def test_only_row_of_a_class_stays_in_training():
    rows = Table({"text": [str(i) for i in range(20)], "label": ["rare"] + [f"{i % 6}" for i in range(19)]})
    for val in (0.1, 0.5, 0.9):
        assert "rare" in split_tables({"train": rows, "test": rows}, val, 10, 0)["train"].labels


def test_only_row_of_a_class_is_in_no_test_fold():
    labels = ["once"] + ["twice"] * 2 + [f"{i % 3}" for i in range(18)]
    rows = Table({"text": [str(i) for i in range(21)], "label": labels})
    tested = []
    for fold in range(5):
        found = cut(rows, folds=5, fold=fold)
        assert "once" in found["train"].labels
        tested += found["test"].texts[0]
    assert sorted(tested, key=int) == [str(i) for i in range(1, 21)]


def test_more_folds_than_rows_raise():
    rows = Table({"text": list("abcde"), "label": list("11112")}, "f.csv")
    with raises("data", "f.csv: folds=5", "4 rows", "folds=4"):
        cut(rows)


def test_columns_of_different_lengths_raise():
    with raises("data", "f: column 'label' has 1 values, but the first has 2"):
        Table({"text": ["a", "b"], "label": ["x"]}, "f")
    for columns, count in (({"text": ["a"], "first": ["b"], "second": ["c"]}, 3), ({"texts": ["a"]}, 0)):
        with raises("data", f"train split: {count} columns of text; expected 'text', or 'first' and 'second'"):
            check_splits({"train": Table(columns)})


def test_taken_rows_keep_their_locations():
    lined = Table({"text": list("abc"), "label": list("xyz"), "group": list("ghi")}, "f.tsv", [2, 4, 5])
    taken = lined.take([2, 1]).take([1])
    assert (taken.location(0), taken.texts[0], taken.labels, taken.groups) == ("f.tsv:4", ["b"], ["y"], ["h"])
    plain = Table({"text": list("abc"), "label": list("xyz")})
    assert plain.location(2) == plain.take([2, 1]).take([0]).location(0) == "the data, row 3"
