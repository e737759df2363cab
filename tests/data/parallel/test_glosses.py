import pytest

from zoo.data.parallel.glosses import gloss_lemmas
from zoo.data.text import wordnet
from zoo.errors import InputError


@pytest.fixture(scope="module")
def made():
    return gloss_lemmas()


def test_a_definition_has_the_first_of_its_nouns(made):
    glosses = wordnet.cut(wordnet.read())
    assert made.info.sizes == {"train": 17471, "val": 1094, "test": 3279}
    for name, split in made.splits.items():
        expected = [(gloss.definition, gloss.lemmas.split(", ")[0]) for gloss in glosses[name]]
        assert list(zip(split.sources, split.targets, strict=True)) == expected


def test_no_definition_is_in_two_splits(made):
    parts = [{wordnet.words(text) for text in split.sources} for split in made.splits.values()]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_a_limit_takes_some_of_every_split(made):
    few = gloss_lemmas(limit=50)
    assert few.info.sizes == dict.fromkeys(("train", "val", "test"), 50)
    for name, split in few.splits.items():
        whole = set(zip(made.splits[name].sources, made.splits[name].targets, strict=True))
        assert set(zip(split.sources, split.targets, strict=True)) <= whole
    with pytest.raises(InputError, match="limit=0"):
        gloss_lemmas(limit=0)
