import pytest
from zoo_datasets import generated as grammar
from zoo_datasets.generated import agreement as preset

from zoo.data.module import ready


def agreement(*args, **options):
    return ready(preset(*args, **options))


NUMBER = {word: number for forms in grammar.NOUNS for number, word in zip(("singular", "plural"), forms, strict=True)}


def nouns(sentence):
    """Return the head noun, and the nouns between it and the verb."""
    head, *between = [word for word in sentence.split(" , ")[-1].split() if word in NUMBER]
    return head, between


def rows(table):
    return list(zip(table.texts[0], table.labels, strict=True))


@pytest.fixture(scope="module")
def data():
    return agreement()


def test_every_noun_shows_its_number():
    assert len(NUMBER) == 2 * len(grammar.NOUNS) >= 120
    other = {*grammar.ARTICLES, *grammar.ADJECTIVES, *grammar.PREPOSITIONS, *grammar.VERBS, "that", ","}
    assert not other & set(NUMBER)


def test_the_head_noun_decides(data):
    assert data.info.sizes == {"train": 9600, "val": 1200, "test": 1200}
    for table in data.splits.values():
        assert all(NUMBER[nouns(text)[0]] == label for text, label in rows(table))
        assert sum(label == "plural" for label in table.labels) == len(table) / 2


def test_every_word_is_in_the_training_split_and_every_noun_is_a_head_in_both_numbers(data):
    train = data.splits["train"].texts[0]
    assert {nouns(text)[0] for text in train} == set(NUMBER)
    known = {word for text in train for word in text.split()}
    assert data.info.vocab_size == len(known) + 2
    for name in ("val", "test"):
        assert {word for text in data.splits[name].texts[0] for word in text.split()} <= known


@pytest.mark.parametrize("attractors", range(5))
def test_attractors_change_the_test_split_only(data, attractors):
    other = agreement(attractors=attractors)
    for name in ("train", "val"):
        assert rows(other.splits[name]) == rows(data.splits[name])
    known = {text for name in ("train", "val") for text in data.splits[name].texts[0]}
    test = other.splits["test"]
    assert len(set(test.texts[0]) - known) == len(test) == 1200
    for text, label in rows(test):
        head, between = nouns(text)
        assert NUMBER[head] == label
        assert len(between) == attractors
        assert all(NUMBER[noun] != label for noun in between)
