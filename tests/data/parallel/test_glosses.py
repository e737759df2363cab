import pytest
from zoo_datasets import glosses, wordnet

from zoo.data.module import ready
from zoo.errors import InputError


def gloss_lemmas(**options):
    return ready(glosses.gloss_lemmas(**options))


@pytest.fixture(scope="module")
def made():
    return gloss_lemmas()


def test_a_definition_has_the_first_of_its_nouns(made):
    found = wordnet.cut(wordnet.read())
    assert made.info.sizes == {"train": 17471, "val": 1094, "test": 3279}
    for name, split in made.splits.items():
        expected = [(gloss.definition, gloss.lemmas.split(", ")[0]) for gloss in found[name]]
        assert list(zip(split.texts[0], split.texts[1], strict=True)) == expected


def test_no_definition_is_in_two_splits(made):
    parts = [{wordnet.words(text) for text in split.texts[0]} for split in made.splits.values()]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_a_limit_takes_some_of_every_split(made):
    few = gloss_lemmas(limit=50)
    assert few.info.sizes == dict.fromkeys(("train", "val", "test"), 50)
    for name, split in few.splits.items():
        whole = set(zip(made.splits[name].texts[0], made.splits[name].texts[1], strict=True))
        assert set(zip(split.texts[0], split.texts[1], strict=True)) <= whole
    with pytest.raises(InputError, match="limit=0"):
        gloss_lemmas(limit=0)
