import unicodedata

import pytest
import tokenizers

from tests.errors import raises
from zoo.data.corpus import CorpusData, Text
from zoo.data.tokenizer import encoder, token_dtype, token_sizes, train_corpus_tokenizer, train_tokenizer

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
        with raises("invalid", f"tokenizer={str(file)!r}"):
            CorpusData({"train": text}, tokenizer=str(file))
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save(str(file))
    with raises("invalid", f"tokenizer={str(file)!r}"):
        CorpusData({"train": text}, tokenizer=str(file))
