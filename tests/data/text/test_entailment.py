from collections import defaultdict
from itertools import product

import pytest
from zoo_datasets.generated import CLASSES
from zoo_datasets.generated import entailment as preset

from zoo.data.module import ready


def entailment(*args, **options):
    return ready(preset(*args, **options))


def worlds(formula, variables):
    """Return the assignments that make a formula true, by evaluating its text as Python."""
    code, names = compile(formula, "formula", "eval"), "abcdef"[:variables]
    every = product((False, True), repeat=variables)
    return {world for world in every if eval(code, {}, dict(zip(names, world, strict=True)))}


def rows(table):
    return list(zip(*table.texts, table.labels, strict=True))


def relation(premise, hypothesis):
    if premise <= hypothesis:
        return "entailment"
    return "neutral" if premise & hypothesis else "contradiction"


@pytest.fixture(scope="module")
def data():
    return entailment()


@pytest.mark.parametrize("variables", [4, 5, 6])
def test_labels_are_those_of_the_truth_tables(variables):
    data = entailment(variables=variables, rows=900)
    for table in data.splits.values():
        for premise, hypothesis, label in rows(table):
            one, other = worlds(premise, variables), worlds(hypothesis, variables)
            assert 0 < len(one) < 2**variables
            assert 0 < len(other) < 2**variables
            assert relation(one, other) == label
    used = {word for table in data.splits.values() for column in table.texts for text in column for word in text.split()}
    assert used == {*"abcdef"[:variables], "and", "or", "not", "(", ")"}


@pytest.mark.parametrize("side", [0, 1])
def test_one_formula_alone_is_uninformative(data, side):
    for table in data.splits.values():
        labels = defaultdict(list)
        for text, label in zip(table.texts[side], table.labels, strict=True):
            labels[text].append(label)
        assert all(sorted(found) == sorted(CLASSES) for found in labels.values())


def test_no_formula_is_in_two_splits(data):
    seen = [{text for column in table.texts for text in column} for table in data.splits.values()]
    assert sum(map(len, seen)) == len(set.union(*seen))
    every = [row[:2] for table in data.splits.values() for row in rows(table)]
    assert len(set(every)) == len(every)
