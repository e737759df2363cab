"""Definitions of nouns out of WordNet 3.0, read from the installed timm package."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import numpy as np

from zoo.data.loader import Array
from zoo.data.splits import stratified
from zoo.errors import InputError

SHA256 = {
    "imagenet_synset_to_definition.txt": "191e227d48fc8c7b7e2d2a3cac41fc8b2eb517d9d2819d0edbc91c5767250eed",
    "imagenet_synset_to_lemma.txt": "1b8babda187421a4bde0c9c5a197c36f6bdda962f7ca11ffb2813806cbb2178f",
}
RELEASES = "1.0.16 to 1.0.31"  # releases of timm of which the oldest and the newest were seen to ship these very files
OTHER = "other"
# WordNet keeps the nouns of one field in one range of offsets. First and last of those that timm lists.
TOPICS = {
    "animal": (1314388, 2665250),  # pest ... hogchoker; the next is aba, a fabric
    "artifact": (2665985, 4615644),  # aba ... zoot suit; the next is shading
    "body": (5218119, 5604434),  # cadaver ... abdominal wall; around it: center of curvature, lemon (the flavor)
    "food": (7556406, 7938594),  # comfort food ... mold (a dish); around it: three-day event, people
    "object": (9186592, 9481120),  # abyssal zone ... xenolith; around it: Swiss canton, Circe
    "person": (9493983, 11346873),  # Circe ... Townes; the next is dust storm
    "plant": (11530008, 13240362),  # microflora ... tree of knowledge; around it: wave (weather), orangery
    "substance": (14582716, 15102894),  # micronutrient ... knothole, the last of all; before it: wall (a situation)
}
CLASSES = tuple(sorted((*TOPICS, OTHER)))
SHARES = {"test": 0.15, "val": 0.05}


@dataclass(frozen=True)
class Gloss:
    """One noun."""

    key: str
    lemmas: str
    definition: str
    topic: str

    @property
    def names(self) -> set[str]:
        """The lemmas, one by one, without capitals."""
        return set(self.lemmas.lower().split(", "))

    def alike(self, other: Self) -> bool:
        """Whether the lemmas of one may name the other: both have a lemma in common, or the definition."""
        return bool(self.names & other.names) or words(self.definition) == words(other.definition)


def read() -> list[Gloss]:
    """Read all glosses in the order of their offsets."""
    definitions, lemmas = (_lines(name) for name in SHA256)
    return [Gloss(key, lemmas[key], definition, topic(key)) for key, definition in definitions.items()]


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text, capitals and punctuation aside."""
    return tuple(re.findall(r"\w+", text.lower()))


def topic(key: str) -> str:
    """Return the field of a noun, by its offset."""
    return next((name for name, (first, last) in TOPICS.items() if first <= int(key[1:]) <= last), OTHER)


def cut(glosses: Sequence[Gloss]) -> dict[str, list[Gloss]]:
    """Cut glosses into training, validation and test: stratified by topic, 80, 5 and 15 per cent, for ever the same."""
    kin = _kin(glosses)
    chiefs = np.flatnonzero(kin == np.arange(len(kin)))
    topics = np.array([CLASSES.index(gloss.topic) for gloss in glosses])
    test = stratified(topics[chiefs], round(SHARES["test"] * len(chiefs)))
    rest = chiefs[~test]
    val = stratified(topics[rest], round(SHARES["val"] * len(chiefs)))
    places = {"train": rest[~val], "val": rest[val], "test": chiefs[test]}
    return {name: [glosses[i] for i in np.flatnonzero(np.isin(kin, chosen)).tolist()] for name, chosen in places.items()}


def sample(glosses: Sequence[Gloss], count: int | None) -> list[int]:
    """Choose the places of at most `count` glosses, stratified by topic."""
    if count is None or count >= len(glosses):
        return list(range(len(glosses)))
    topics = np.array([CLASSES.index(gloss.topic) for gloss in glosses])
    return [int(index) for index in np.flatnonzero(stratified(topics, count))]


def _lines(name: str) -> dict[str, str]:
    package = find_spec("timm")  # timm itself takes seconds to import
    folder = Path(package.origin).parent if package is not None and package.origin else Path()
    try:
        content = (folder / "data" / "_info" / name).read_bytes()
    except OSError as error:
        raise InputError(
            f"glosses: the installed timm has no {name}; install a timm from {RELEASES}", code="mismatch"
        ) from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != SHA256[name]:
        raise InputError(
            f"glosses: the installed timm ships another {name} (SHA-256 {sha256[:12]}); "
            f"timm {RELEASES} ship {SHA256[name][:12]}: install one of them",
            code="mismatch",
        )
    return dict(line.split("\t") for line in content.decode("utf-8").splitlines())


def _kin(glosses: Iterable[Gloss]) -> Array:
    """Return for every gloss the place of the first one that it hangs together with by equal definitions or lemmas, [N]."""
    chief: list[int] = []
    first: dict[tuple[int, tuple[str, ...]], int] = {}

    def top(place: int) -> int:
        while chief[place] != place:
            place = chief[place]
        return place

    for place, gloss in enumerate(glosses):
        chief.append(place)
        for column, text in enumerate((gloss.definition, gloss.lemmas)):
            other, own = top(first.setdefault((column, words(text)), place)), top(place)
            chief[max(own, other)] = min(own, other)
    return np.array([top(place) for place in range(len(chief))])
