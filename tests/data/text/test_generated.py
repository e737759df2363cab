"""Generated texts: agreement of subject and verb, entailment of formulas; and the glosses of WordNet."""

import inspect
import sys
from collections import Counter, defaultdict
from itertools import pairwise, product

import pytest
from zoo_datasets import generated as grammar
from zoo_datasets import glosses as wordnet
from zoo_datasets.generated import CLASSES, agreement, entailment
from zoo_datasets.glosses import Gloss, glosses, words

from tests.errors import raises
from zoo.data import ready

NUMBER = {word: number for forms in grammar.NOUNS for number, word in zip(("singular", "plural"), forms, strict=True)}


def nouns(sentence):
    """Return the head noun, and the nouns between it and the verb."""
    head, *between = [word for word in sentence.split(" , ")[-1].split() if word in NUMBER]
    return head, between


def rows(table):
    return list(zip(table.texts[0], table.labels, strict=True))


@pytest.fixture(scope="module")
def data(built):
    return built("agreement")


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


@pytest.fixture(scope="module")
def few():
    return ready(agreement(rows=3000))


@pytest.mark.parametrize("attractors", range(5))
def test_attractors_change_the_test_split_only(few, attractors):
    other = ready(agreement(attractors=attractors, rows=3000))
    for name in ("train", "val"):
        assert rows(other.splits[name]) == rows(few.splits[name])
    known = {text for name in ("train", "val") for text in few.splits[name].texts[0]}
    test = other.splits["test"]
    assert len(set(test.texts[0]) - known) == len(test) == 300
    for text, label in rows(test):
        head, between = nouns(text)
        assert NUMBER[head] == label
        assert len(between) == attractors
        assert all(NUMBER[noun] != label for noun in between)


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
def implications(built):
    return built("entailment")


@pytest.mark.parametrize("variables", [4, 5, 6])
def test_labels_are_those_of_the_truth_tables(variables):
    implications = ready(entailment(variables=variables, rows=900))
    for table in implications.splits.values():
        for premise, hypothesis, label in pairs_of(table):
            one, other = worlds(premise, variables), worlds(hypothesis, variables)
            assert 0 < len(one) < 2**variables
            assert 0 < len(other) < 2**variables
            assert relation(one, other) == label
    used = {
        word for table in implications.splits.values() for column in table.texts for text in column for word in text.split()
    }
    assert used == {*"abcdef"[:variables], "and", "or", "not", "(", ")"}


@pytest.mark.parametrize("side", [0, 1])
def test_one_formula_alone_is_uninformative(implications, side):
    for table in implications.splits.values():
        labels = defaultdict(list)
        for text, label in zip(table.texts[side], table.labels, strict=True):
            labels[text].append(label)
        assert all(sorted(found) == sorted(CLASSES) for found in labels.values())


def test_no_formula_is_in_two_splits(implications):
    seen = [{text for column in table.texts for text in column} for table in implications.splits.values()]
    assert sum(map(len, seen)) == len(set.union(*seen))
    every = [row[:2] for table in implications.splits.values() for row in pairs_of(table)]
    assert len(set(every)) == len(every)


EVERY = wordnet.read_glosses()
BY_DEFINITION = {}
for gloss in EVERY:
    BY_DEFINITION.setdefault(gloss.definition, []).append(gloss)


def test_all_glosses_are_read_without_timm_being_imported(monkeypatch):
    assert len(EVERY) == len({gloss.key for gloss in EVERY}) == 21844
    assert EVERY[0] == Gloss(
        "n00004475",
        "organism, being",
        "a living thing that has (or can develop) the ability to act or function independently",
        "other",
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    wordnet.read_glosses()
    assert "timm" not in sys.modules


def test_topics_are_ranges_of_offsets():
    counts = Counter(gloss.topic for gloss in EVERY)
    assert counts == {
        "animal": 3955, "artifact": 7858, "body": 88, "food": 1851, "object": 238,
        "other": 603, "person": 2844, "plant": 4330, "substance": 77,
    }  # fmt: skip
    documented = inspect.getdoc(glosses)
    by_key = {gloss.key: gloss for gloss in EVERY}
    for topic, ends in wordnet.TOPICS.items():
        assert f"{topic} {counts[topic]}" in " ".join(documented.split())
        for end in ends:
            assert by_key[f"n{end:08}"].topic == topic
            assert by_key[f"n{end:08}"].lemmas.split(", ")[0].split()[0] in inspect.getsource(wordnet).replace(
                "Townes", "Charles Townes"
            )
    ranges = sorted(wordnet.TOPICS.values())
    assert all(last < first for (_, last), (first, _) in pairwise(ranges))


def test_splits_are_stratified_and_share_no_definition_or_lemmas():
    splits = wordnet.cut(EVERY)
    assert {name: len(split) for name, split in splits.items()} == {"train": 17471, "val": 1094, "test": 3279}
    assert sorted(gloss.key for split in splits.values() for gloss in split) == [gloss.key for gloss in EVERY]
    for text in (lambda gloss: words(gloss.definition), lambda gloss: words(gloss.lemmas)):
        seen = [{text(gloss) for gloss in split} for split in splits.values()]
        assert sum(map(len, seen)) == len(set.union(*seen))
    shares = Counter(gloss.topic for gloss in EVERY)
    for name, share in {"train": 0.8, **wordnet.SHARES}.items():
        for topic, count in Counter(gloss.topic for gloss in splits[name]).items():
            assert abs(count - share * shares[topic]) <= 0.01 * shares[topic] + 2


@pytest.fixture(scope="module")
def pairs(built):
    return built("glosses(task=pairs)")


@pytest.fixture(scope="module")
def ranking():
    return ready(glosses("ranking", tokenizer="word"))


def test_a_pair_is_right_if_the_lemmas_are_those_of_the_definition(pairs):
    assert pairs.info.sizes == {"train": 20000, "val": 2000, "test": 4000}
    for table in pairs.splits.values():
        for lemmas, definition, label in zip(*table.texts, table.labels, strict=True):
            assert (label == "right") == any(gloss.lemmas == lemmas for gloss in BY_DEFINITION[definition])


def test_wrong_lemmas_are_of_the_topic_and_of_no_other_split(pairs):
    topics = {}
    for gloss in EVERY:
        topics.setdefault(gloss.lemmas, set()).add(gloss.topic)
    for table in pairs.splits.values():
        for lemmas, definition in zip(*table.texts, strict=True):
            assert topics[lemmas] & {gloss.topic for gloss in BY_DEFINITION[definition]}
    for column in range(2):
        seen = [{words(text) for text in table.texts[column]} for table in pairs.splits.values()]
        assert sum(map(len, seen)) == len(set.union(*seen))


def test_ranking_has_one_right_answer_among_the_candidates_of_a_question(ranking):
    data = ranking
    assert data.info.sizes == {"train": 20000, "val": 1992, "test": 4000}
    assert data.info.classes == ("irrelevant", "relevant")
    by_key = {gloss.key: gloss for gloss in EVERY}
    for name, table in data.splits.items():
        groups = {}
        for definition, lemmas, label, group in zip(*table.texts, table.labels, table.groups, strict=True):
            assert definition == by_key[group].definition
            assert (label == "relevant") == (lemmas == by_key[group].lemmas)
            groups.setdefault(group, []).append((lemmas, label))
        sizes = Counter(len(rows) for rows in groups.values())
        assert sizes == {"train": {4: 5000}, "val": {8: 248, 4: 2}, "test": {8: 500}}[name]
        assert all(len({lemmas for lemmas, _ in rows}) == len(rows) for rows in groups.values())
        right = Counter([label for _, label in rows].index("relevant") for rows in groups.values())
        assert max(right.values()) < 1.5 * len(groups) / max(sizes)
    keys = [set(table.groups) for table in data.splits.values()]
    assert sum(map(len, keys)) == len(set.union(*keys))


@pytest.mark.parametrize("limit", [5, 9, 100])
def test_limited_topics_have_the_same_labels_in_every_split(limit):
    splits = ready(glosses(limit=limit)).splits
    assert {len(table) for table in splits.values()} == {limit}
    assert len({frozenset(table.labels) for table in splits.values()}) == 1
    assert len(set(splits["train"].labels)) == 9 or limit < 9
    assert all(len(set(table.texts[0])) > 0.9 * limit for table in splits.values())


def test_changed_file_raises(monkeypatch):
    monkeypatch.setitem(wordnet.FILE_SHA256, "imagenet_synset_to_lemma.txt", "0" * 64)
    with raises("mismatch", "1b8babda1874", "1.0.31"):
        ready(glosses())


# --- tasks that write ---


def test_seq2seq_glosses():
    data = ready(glosses(task="seq2seq", limit=60))
    assert (data.task, data.info.inputs, data.info.sizes) == ("seq2seq", "source_target", {"train": 60, "val": 60, "test": 60})
    known = {gloss.definition: gloss.lemmas for split in wordnet.cut(wordnet.read_glosses()).values() for gloss in split}
    for pairs in data.splits.values():
        assert all(target in known[source].split(", ") for source, target in zip(pairs.texts[0], pairs.texts[1], strict=True))
