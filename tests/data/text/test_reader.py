import numpy as np
import pytest

from zoo.data.text.info import TextInfo
from zoo.data.text.reader import Reader
from zoo.data.text.tokenizer import KINDS, train_tokenizer
from zoo.data.text.tokens import Tokens
from zoo.errors import InputError

TEXTS = ["The cat doesn't sit.", "the DOG sits!!", "a dog's cat -- naïve\u0085café", "the end"] * 3


def reader(kind="word", texts=TEXTS, vocab=400, lowercase=True, min_count=1, max_length=100, cut=False):
    return Reader(train_tokenizer(kind, texts, vocab, lowercase, min_count), max_length, ("no", "yes"), cut)


def spell(made, text):
    return [made.words[number] for number in made.encode([text])[0]]


def test_words_and_marks_stand_alone():
    assert spell(reader(), "The cat doesn't sit!!") == ["the", "cat", "does", "n't", "sit", "!", "!"]
    assert spell(reader(), "dog's") == ["dog", "'s"]
    assert spell(reader(lowercase=False), "The the") == ["The", "the"]


def test_space_cuts_at_white_space_only():
    assert spell(reader("space"), "the dog sits!! \t sits") == ["the", "dog", "sits!!", "[UNK]"]


def test_characters_stand_alone():
    assert spell(reader("char"), "a Dog") == ["a", " ", "d", "o", "g"]


def test_bytes_know_every_text():
    made = reader("bpe", vocab=300)
    assert 1 not in made.encode(["日本 \x00 é"])[0]
    assert made.tokenizer.decode(made.encode(["a new dog"])[0].tolist()) == " a new dog"
    assert len(made.encode(["the"])[0]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_two_tokens_are_padding_and_unknown(kind):
    made = reader(kind, lowercase=False)
    assert made.words[:2] == ["[PAD]", "[UNK]"]
    assert len(made.words) == len(set(made.words)) == made.vocab_size
    for text in ("[PAD]", "a [PAD] b [UNK]", "[pad]"):
        assert 0 not in made.encode([text])[0]


def test_the_names_of_padding_and_unknown_are_words_like_any_other():
    assert reader("space", lowercase=False).encode(["the[PAD]end"])[0].tolist() == [1]
    made = reader("bpe", lowercase=False)
    assert made.tokenizer.decode(made.encode(["the[UNK]end"])[0].tolist()) == " the[UNK]end"


@pytest.mark.parametrize("kind", ["word", "space", "char"])
def test_what_was_not_learnt_is_unknown(kind):
    assert set(reader(kind).encode(["ξξ"])[0]) == {1}


def test_frequent_words_come_first_and_ties_by_letter():
    made = reader("space", ["b a c", "c d", "c a b"])
    assert made.words[2:] == ["c", "a", "b", "d"]
    assert reader("space", ["b a c", "c d", "c a b"], vocab=4).words[2:] == ["c", "a"]
    assert reader("space", ["b a c", "c d", "c a b"], min_count=2).words[2:] == ["c", "a", "b"]


@pytest.mark.parametrize("kind", KINDS)
def test_training_gives_one_vocabulary_every_time(kind):
    # The library's hash maps are seeded anew on every call, so an order that leaked from them would show here.
    assert len({reader(kind, vocab=300).text for _ in range(5)}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_reader_reads_the_same(kind):
    made = reader(kind)
    info = TextInfo(
        task="text_classification", classes=made.classes, vocab_size=made.vocab_size, max_length=100, sizes={}, sha256=""
    )
    again = Reader.of(info, made.text)
    assert (again.words, again.max_length, again.classes, again.cut) == (made.words, 100, made.classes, False)
    for one, other in zip(made.encode([*TEXTS, "new [PAD]"]), again.encode([*TEXTS, "new [PAD]"]), strict=True):
        assert np.array_equal(one, other)
    with pytest.raises(InputError, match="another model's file"):
        Reader.of(info, reader(kind, ["other text"], vocab=290).text)
    with pytest.raises(InputError, match=r"tokenizer.json: this is not a file"):
        Reader.of(info, "{}")


def test_long_texts_are_cut_or_refused():
    assert spell(reader("space", max_length=2, cut=True), "the dog the") == ["the", "dog"]
    with pytest.raises(InputError, match=r"^f.txt:8: 3 tokens, the model reads at most 2; .*max_length"):
        reader("space", max_length=2).encode(["the", "the dog the"], ["f.txt:7", "f.txt:8"].__getitem__)
    assert len(reader("space", max_length=2).encode(["the dog"])[0]) == 2


def test_places_are_right_beyond_the_first_chunk(monkeypatch):
    monkeypatch.setattr("zoo.data.text.reader.CHUNK", 2)
    with pytest.raises(InputError, match=r"^row 4: no words"):
        reader().encode(["a", "b", "c", "d", " \n"], "row {}".format)


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
@pytest.mark.parametrize("kind", ["word", "space"])
def test_a_text_without_words_is_named(kind, text):
    with pytest.raises(InputError, match=r"^here: no words"):
        reader(kind).encode([text], lambda row: "here")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "words"}, "tokenizer='words': use word, space, char, bpe"),
        ({"vocab": 2}, "needs at least 3"),
        ({"kind": "bpe", "vocab": 257}, "needs at least 258"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(InputError, match=said):
        reader(**options)


def test_padding_of_any_grouping_gives_the_same_tokens():
    sequences = [[3, 4], [5], [6, 7, 8, 9], [2, 2, 2]]
    tokens = Tokens(sequences)
    assert tokens.lengths.tolist() == [2, 1, 4, 3]
    for rows in ([0], [1, 0], [2, 1, 3], [3, 3, 0, 1, 2]):
        batch = tokens.padded(rows)
        assert batch.shape[1] == max(len(sequences[row]) for row in rows)
        assert [line[line != 0].tolist() for line in batch] == [sequences[row] for row in rows]
        assert all((line[len(sequences[row]) :] == 0).all() for line, row in zip(batch, rows, strict=True))
    assert tokens[-1].tolist() == [2, 2, 2]
    assert [part.tolist() for part in tokens[1:3]] == [[5], [6, 7, 8, 9]]
    with pytest.raises(IndexError):
        tokens[4]
    assert len(Tokens([])) == 0


# --- texts that are written ---


def writer(kind="char", texts=TEXTS, vocab=400, lowercase=False, max_length=100):
    return Reader(train_tokenizer(kind, texts, vocab, lowercase, 1, ends=True), max_length, ())


@pytest.mark.parametrize("kind", KINDS)
def test_what_begins_and_ends_a_text_comes_third_and_fourth(kind):
    made = writer(kind)
    assert made.words[:4] == ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]
    assert made.writes
    assert not reader(kind).writes
    assert len(made.words) == len(set(made.words)) == made.vocab_size
    for text in ("[BOS] a [EOS]", "[BOS]", "a [PAD]"):  # whole words of `space`; `zoo.data.parallel.encoding` sees to those
        assert kind == "space" or not {0, 2, 3} & set(made.encode([text])[0].tolist())


def test_names_of_tokens_in_a_text_are_not_learnt():
    texts = ["a [EOS] b", "[BOS] [EOS][PAD] c [UNK]", "d"]
    for ends, names in ((True, ["[BOS]", "[EOS]"]), (False, [])):
        made = train_tokenizer("space", texts, 50, False, 1, ends=ends)
        found = sorted(made.get_vocab(), key=made.get_vocab().__getitem__)
        assert found == ["[PAD]", "[UNK]", *names, "a", "b", "c", "d"]


@pytest.mark.parametrize("kind", ["char", "bpe"])
@pytest.mark.parametrize(
    "text", ["The cat doesn't sit.", "a  dog's\tcat -- naïve\u0085café\n the end", "the ", "\n", "naïve [EOS] [UNK]"]
)
def test_what_was_read_is_written_again(kind, text):
    made = writer(kind, [*TEXTS, "\t[]\nEOSUNK"])
    numbers = made.encode([text])[0].tolist()
    assert made.decode(numbers) == text
    assert made.decode([2, *numbers, 3]) == text
    running = Reader(train_tokenizer(kind, [*TEXTS, "\t[]\nEOSUNK"], 400, False, 1, running=True), 100, ())
    assert running.decode(running.encode([text])[0]) == text


def test_a_text_ends_where_it_ends():
    made = writer()
    numbers = made.encode(["the cat"])[0].tolist()
    for behind in ([3], [3, 0, 0], [3, *numbers], [3, 3], [0, 0]):
        assert made.decode([*numbers, *behind]) == "the cat"
        assert made.decode(np.array([2, *numbers, *behind])) == "the cat"
    assert made.decode([3, *numbers]) == made.decode([]) == made.decode([2, 3]) == ""
    assert made.decode([numbers[0], 1, numbers[1]]) == "th"


def test_words_are_written_with_a_space_between():
    assert writer("space").decode(writer("space").encode(["the DOG sits!!"])[0]) == "the DOG sits!!"
    assert writer("word").decode(writer("word").encode(["the DOG sits!!"])[0]) == "the DOG sits ! !"


def test_without_an_end_the_third_and_fourth_tokens_are_words():
    made = reader("char", lowercase=False)
    assert made.decode([2, 3, 4]) == "".join(made.words[2:5])
    assert made.decode([2, 0, 3, 0]) == "".join(made.words[2:4])


def test_a_text_that_runs_on_has_no_space_before_it():
    """So texts that are cut anywhere and encoded apart can be put together again."""
    made = Reader(train_tokenizer("bpe", TEXTS, 300, False, 1, running=True), 100, ())
    parts = ["The cat", " doesn't", "\n", "sit", "é"]
    assert [made.decode(numbers) for numbers in made.encode(parts)] == parts
    assert made.decode(np.concatenate(list(made.encode(parts)))) == "".join(parts)
    answer = writer("bpe", vocab=300)
    assert answer.words[answer.encode(["the"])[0][0]].startswith("Ġ")
    assert not made.words[made.encode(["the"])[0][0]].startswith("Ġ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_reader_writes_the_same(kind):
    made = writer(kind)
    info = TextInfo(task="text_classification", classes=(), vocab_size=made.vocab_size, max_length=100, sizes={}, sha256="")
    again = Reader.of(info, made.text)
    numbers = [2, *made.encode(["the dog's end"])[0].tolist(), 3, 5]
    assert again.writes
    assert again.decode(numbers) == made.decode(numbers) != ""


@pytest.mark.parametrize(("kind", "least"), [("char", 5), ("space", 5), ("word", 5), ("bpe", 260)])
def test_room_for_what_begins_and_ends_a_text(kind, least):
    assert writer(kind, vocab=least).vocab_size == least
    with pytest.raises(InputError, match=f"vocab={least - 1}: the tokenizer '{kind}' needs at least {least} tokens"):
        writer(kind, vocab=least - 1)
