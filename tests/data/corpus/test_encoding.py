import unicodedata

import numpy as np
import pytest
import tokenizers

from tests.errors import raises
from zoo.data.corpus import CorpusData, Text
from zoo.data.corpus.encoding import encoder, extents, learn, number_type
from zoo.data.text.tokenizer import train_tokenizer
from zoo.errors import InputError

TEXT = "Été à Tōkyō: 東京 😀!\r\n\tThe cafe\u0301s of ΟΔΥΣΣΕΥΣ,  and don't...\n\n" * 9 + "  seldom: ẞ\u0000 İ\n"


def learned(kind, vocab=400, lowercase=False):
    return learn(kind, [TEXT[:300], TEXT[300:]], vocab, lowercase)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("vocab", [3, 20, 400])
def test_counted_characters_are_those_that_the_library_finds(vocab, lowercase):
    counted = learn("char", [TEXT[:300], TEXT[300:]], vocab, lowercase)
    assert counted.to_json() == train_tokenizer("char", [TEXT], vocab, lowercase, 1).to_json()


@pytest.mark.parametrize("vocab", [258, 259, 300])
def test_pairs_of_bytes_are_those_that_the_library_finds(vocab):
    assert (
        learn("bpe", [TEXT], vocab, False).to_json() == train_tokenizer("bpe", [TEXT], vocab, False, 2, running=True).to_json()
    )


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(("kind", "vocab"), [("char", 400), ("char", 20), ("bpe", 258), ("bpe", 400)])
def test_pieces_become_what_the_reader_reads(kind, vocab, lowercase):
    made = learned(kind, vocab, lowercase)
    expected = made.backend.encode(TEXT, add_special_tokens=False).ids
    found = encoder(made)(TEXT)
    assert found.tolist() == expected
    assert found.dtype == "<u2" == number_type(made)


@pytest.mark.parametrize(("kind", "vocab"), [("char", 400), ("bpe", 258), ("bpe", 400)])
def test_tokens_stand_for_exactly_the_text(kind, vocab):
    made = learned(kind, vocab)
    normal = unicodedata.normalize("NFC", TEXT)
    assert made.decode(encoder(made)(TEXT)) == normal
    assert extents(made)[encoder(made)(TEXT)].sum(axis=0).tolist() == [len(normal), len(normal.encode())]


def test_every_byte_has_its_extent():
    made = learned("bpe", 258)
    letters = "".join(map(chr, [*range(0x80), 0x80, 0x7FF, 0x800, 0xFFFD, 0x10000, 0x10FFFF, *range(0xA0, 0x250)]))
    for letter in letters:
        numbers = encoder(made)(letter)
        normal = unicodedata.normalize("NFC", letter)
        assert extents(made)[numbers].sum(axis=0).tolist() == [len(normal), len(normal.encode())]


def test_padding_counts_nothing_and_the_unknown_one_character():
    made = learned("char", 20)
    assert extents(made)[:2].tolist() == [[0, 0], [1, 1]]
    numbers = encoder(made)("qé")
    assert numbers[0] == 1
    assert extents(made)[numbers].sum(axis=0)[0] == 2


def test_padding_written_in_a_text_is_no_padding():
    for kind in ("char", "bpe"):
        assert (encoder(learned(kind))("[PAD] [UNK]") != 0).all()


def test_large_vocabularies_have_larger_numbers():
    class Large:
        vocab_size = 2**16 + 1

    assert number_type(Large()) == "<u4"
    assert np.dtype(number_type(Large())).itemsize == 4


def test_other_tokenizers_are_refused():
    with raises("invalid", "tokenizer='word': running text is read by char or bpe"):
        CorpusData({"train": Text(TEXT)}, tokenizer="word")
    with raises("invalid", "single words and no running text"):
        encoder(train_tokenizer("word", [TEXT], 99, False, 1))
    with raises("invalid", "vocab=257:", "at least 258"):
        learn("bpe", [TEXT], 257, False)


def test_the_tokenizer_file_of_a_model(tmp_path):
    text, file = Text("to be or not to be, " * 90), tmp_path / "tokenizer.json"
    first = CorpusData({"train": text}, tokenizer="bpe", vocab=270, max_length=16)
    first.setup()
    file.write_text(first.tokenizer.to_json(), encoding="utf-8")
    again = CorpusData({"train": Text("that is the question, " * 90)}, tokenizer=str(file), max_length=16)
    again.setup()
    assert again.tokenizer.to_json() == first.tokenizer.to_json()
    assert again.info.max_length == 16
    for content, said in (("no", "cannot be read"), ('{"version": "1.0"}', "cannot be read"), (None, "cannot be read")):
        file.unlink() if content is None else file.write_text(content)
        with pytest.raises(InputError, match=said) as error:
            CorpusData({"train": text}, tokenizer=str(file))
        assert "\n" not in str(error.value)
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save(str(file))
    with raises("invalid", "a tokenizer.json of a language model"):
        CorpusData({"train": text}, tokenizer=str(file))
