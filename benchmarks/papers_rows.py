"""The rows of the papers' tables: what their configurations say, and what was measured."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from zoo.registry import Spec

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs" / "papers"
RESULTS = ROOT / "benchmarks" / "results" / "papers"
SAID = re.compile(r"^# (published|claim|also|note|beam|curve): (.*)$", re.MULTILINE)
FIGURES = {
    "accuracy": "accuracy",
    "MAP": "map",
    "BLEU": "bleu",
    "exact match": "exact_match",
    "bits per character": "bits_per_character",
}
"""What papers print first, and the names that we store it under."""


@dataclass(frozen=True)
class Row:
    """A row of a table: a configuration, its comments, and its runs, one for each seed.

    Attributes:
        paper: Folder of its paper.
        name: Of its file.
        config: Its options.
        published: What the paper printed, and where; empty if it is not in the paper.
        notes: What differs from the paper.
        runs: What was measured, a dict for each seed; none if it was not run.
        extra: Other comments by keyword.
    """

    paper: str
    name: str
    config: dict[str, Any]
    published: str = ""
    notes: tuple[str, ...] = ()
    runs: tuple[dict[str, Any], ...] = ()
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> str:
        """The data, as the configuration names them."""
        return str(self.config["data"])

    @property
    def net(self) -> str:
        """The network without its options and its size."""
        return Spec.parse(self.config["backbone"]).name.partition("/")[0]

    @property
    def score(self) -> str:
        """How attention over an algebra weighs its words: dot, product or hermitian; empty where there is no choice."""
        if self.net != "transformer" or self.config["algebra"] == "real":
            return ""
        advised = "hermitian" if self.config["algebra"].startswith("complex_order") else "dot"
        return str(Spec.parse(self.config["backbone"]).options.get("score", advised))

    @property
    def tables(self) -> list[str]:
        """Where it was printed: ``Table 2``, or ``Tay et al. 2019, Table 5`` if in another paper."""
        return re.findall(r"((?:[A-Z][\w .]+ \d{4}, )?Table \d+)", self.published)

    @property
    def printed(self) -> tuple[str, float] | None:
        """What was printed first: the name of a figure of `FIGURES`, and the number."""
        found = re.match(rf"({'|'.join(FIGURES)}) ([\d.]+)", self.published)
        return (found[1], float(found[2])) if found else None


def comments(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what the comments of a configuration say, by keyword, and its notes."""
    said = SAID.findall(text)
    return {key: value for key, value in said if key != "note"}, tuple(value for key, value in said if key == "note")


def read(config: Path, results: Path | None = None) -> Row:
    """Read a configuration, and what was measured with just these options."""
    text = config.read_text(encoding="utf-8")
    options = yaml.safe_load(text)
    said, notes = comments(text)
    path = (results or RESULTS) / config.parent.name / f"{config.stem}.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"config": options, "rows": []}
    runs = tuple(stored["rows"]) if stored["config"] == options else ()
    return Row(config.parent.name, config.stem, options, said.pop("published", ""), notes, runs, said)


def read_all(configs: Path | None = None, results: Path | None = None) -> list[Row]:
    """Read every row, measured or not, by paper and name."""
    return [read(path, results) for path in sorted((configs or CONFIGS).glob("*/*.yaml"))]
