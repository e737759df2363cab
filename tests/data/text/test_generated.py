"""Generated texts: agreement of subject and verb, and entailment of formulas."""

from collections import defaultdict
from itertools import product

import pytest
from zoo_datasets import generated as grammar
from zoo_datasets.generated import CLASSES
from zoo_datasets.generated import agreement as preset
from zoo_datasets.generated import entailment as entailment_preset

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


def entailment(*args, **options):
    return ready(entailment_preset(*args, **options))


def worlds(formula, variables):
    """Return the assignments that make a formula true, by evaluating its text as Python."""
    code, names = compile(formula, "formula", "eval"), "abcdef"[:variables]
    every = product((False, True), repeat=variables)
    return {world for world in every if eval(code, {}, dict(zip(names, world, strict=True)))}


def pairs_of(table):
    return list(zip(*table.texts, table.labels, strict=True))


def relation(premise, hypothesis):
    if premise <= hypothesis:
        return "entailment"
    return "neutral" if premise & hypothesis else "contradiction"


@pytest.fixture(scope="module")
def pairs():
    return entailment()


@pytest.mark.parametrize("variables", [4, 5, 6])
def test_labels_are_those_of_the_truth_tables(variables):
    pairs = entailment(variables=variables, rows=900)
    for table in pairs.splits.values():
        for premise, hypothesis, label in pairs_of(table):
            one, other = worlds(premise, variables), worlds(hypothesis, variables)
            assert 0 < len(one) < 2**variables
            assert 0 < len(other) < 2**variables
            assert relation(one, other) == label
    used = {word for table in pairs.splits.values() for column in table.texts for text in column for word in text.split()}
    assert used == {*"abcdef"[:variables], "and", "or", "not", "(", ")"}


@pytest.mark.parametrize("side", [0, 1])
def test_one_formula_alone_is_uninformative(pairs, side):
    for table in pairs.splits.values():
        labels = defaultdict(list)
        for text, label in zip(table.texts[side], table.labels, strict=True):
            labels[text].append(label)
        assert all(sorted(found) == sorted(CLASSES) for found in labels.values())


def test_no_formula_is_in_two_splits(pairs):
    seen = [{text for column in table.texts for text in column} for table in pairs.splits.values()]
    assert sum(map(len, seen)) == len(set.union(*seen))
    every = [row[:2] for table in pairs.splits.values() for row in pairs_of(table)]
    assert len(set(every)) == len(every)
