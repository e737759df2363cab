"""Definitions of nouns of WordNet 3.0, read from the installed timm package."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import check_integer
from zoo.data.splits import stratified
from zoo.errors import InputError

FILE_SHA256 = {
    "imagenet_synset_to_definition.txt": "191e227d48fc8c7b7e2d2a3cac41fc8b2eb517d9d2819d0edbc91c5767250eed",
    "imagenet_synset_to_lemma.txt": "1b8babda187421a4bde0c9c5a197c36f6bdda962f7ca11ffb2813806cbb2178f",
}
RELEASES = "1.0.16 to 1.0.31"  # of timm; the oldest and the newest are known to contain these files
OTHER = "other"
# In WordNet the nouns of a field have consecutive offsets. First and last noun of each field in timm:
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
        """The lemmas in lower case."""
        return set(self.lemmas.lower().split(", "))

    def alike(self, other: Self) -> bool:
        """Whether two glosses have a common lemma or the same definition."""
        return bool(self.names & other.names) or words(self.definition) == words(other.definition)


def read_glosses() -> list[Gloss]:
    """Read all glosses in the order of their offsets."""
    definitions, lemmas = (_lines(name) for name in FILE_SHA256)
    return [Gloss(key, lemmas[key], definition, topic(key)) for key, definition in definitions.items()]


def read_splits(limit: int | None) -> dict[str, list[Gloss]]:
    """Read the glosses of every split after checking the option `limit`."""
    check_integer("limit", 1 if limit is None else limit, 1)
    return cut(read_glosses())


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, without punctuation."""
    return tuple(re.findall(r"\w+", text.lower()))


def topic(key: str) -> str:
    """Return the field of a noun."""
    return next((name for name, (first, last) in TOPICS.items() if first <= int(key[1:]) <= last), OTHER)


def cut(glosses: Sequence[Gloss]) -> dict[str, list[Gloss]]:
    """Cut glosses into fixed training, validation and test splits: 80, 5 and 15 %, stratified by topic."""
    roots = _related_roots(glosses)
    unique = np.flatnonzero(roots == np.arange(len(roots)))
    topics = np.array([CLASSES.index(gloss.topic) for gloss in glosses])
    test = stratified(topics[unique], round(SHARES["test"] * len(unique)))
    rest = unique[~test]
    val = stratified(topics[rest], round(SHARES["val"] * len(unique)))
    parts = {"train": rest[~val], "val": rest[val], "test": unique[test]}
    return {name: [glosses[i] for i in np.flatnonzero(np.isin(roots, chosen)).tolist()] for name, chosen in parts.items()}


def sample(glosses: Sequence[Gloss], count: int | None) -> list[int]:
    """Choose the indices of at most `count` glosses, stratified by topic."""
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
        raise InputError(f"glosses: the installed timm has no {name}; install timm {RELEASES}", code="mismatch") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != FILE_SHA256[name]:
        digests = f"SHA-256 {sha256[:12]}, expected {FILE_SHA256[name][:12]}"
        message = f"glosses: the installed timm has another {name} ({digests}); install timm {RELEASES}"
        raise InputError(message, code="mismatch")
    return dict(line.split("\t") for line in content.decode("utf-8").splitlines())


def _related_roots(glosses: Sequence[Gloss]) -> Array:
    """Return for every gloss the index of the first one it is connected to by equal definitions or lemmas, [N]."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first: dict[tuple[int, tuple[str, ...]], int] = {}
    texts = [(words(gloss.definition), words(gloss.lemmas)) for gloss in glosses]
    edges = np.array([(first.setdefault(key, i), i) for i, pair in enumerate(texts) for key in enumerate(pair)])
    _, components = connected_components(coo_array((np.ones(len(edges)), edges.T), shape=(len(glosses),) * 2), directed=False)
    _, roots = np.unique(components, return_index=True)
    return np.asarray(roots[components])
