"""What the registry keeps of an installed plugin, and of a distribution it could not read."""

import re
from dataclasses import dataclass

OURS = "hypercomplex-zoo"
GROUPS = {noun: f"zoo.{noun}" for noun in ("algebras", "backbones", "datasets", "embeddings", "catalogues")}
_REFERENCE = re.compile(r"([\w.]+)\s*(?::\s*([\w.]+)\s*)?(?:\[.*\]\s*)?")


@dataclass(frozen=True, order=True)
class Entry:
    """One line `name = module:attribute` in the metadata of an installed distribution.

    >>> entry = Entry("dual", "zoo.algebras", "dual_numbers:dual", "dual-numbers", "1.0")
    >>> entry.target
    ('dual_numbers', 'dual')
    >>> str(entry)
    "algebra 'dual' of dual-numbers 1.0"
    """

    name: str
    group: str
    value: str
    distribution: str
    version: str

    @property
    def target(self) -> tuple[str, str]:
        """Module and dotted attribute; both are empty where the value is not `module:attribute`."""
        match = _REFERENCE.fullmatch(self.value)
        return (match[1], match[2] or "") if match else ("", "")

    @property
    def ours(self) -> bool:
        """Whether the zoo itself brings this entry."""
        return normalise(self.distribution) == OURS

    def __str__(self) -> str:
        return f"{singular(self.group)} {self.name!r} of {self.distribution} {self.version}".rstrip()


@dataclass(frozen=True, order=True)
class Fault:
    """A distribution whose metadata is wrong, where it lies, and what is wrong with it."""

    distribution: str
    path: str
    reason: str


def normalise(distribution: str) -> str:
    """Give the one spelling that names a distribution (PEP 503).

    >>> normalise("Dual-_.Numbers")
    'dual-numbers'
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


def singular(group: str) -> str:
    """Name one thing of a group, for messages.

    >>> singular("zoo.datasets")
    'data set'
    """
    return group.removeprefix("zoo.").removesuffix("s").replace("dataset", "data set")
