"""The rows of the papers' tables: what their sweeps say, and what was measured.

A sweep in configs/papers/ has an axis ``row`` and an axis ``seed``. Comments before ``axes:`` are about all of its rows, or
about those that match the patterns behind the keyword, as in ``# note [*_cnn_*, *_lstm_*]: ...``; comments above a row are
about it alone.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from zoo_experiments.sweep import merged, nested

from zoo.registry import Spec

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs" / "papers"
RESULTS = ROOT / "benchmarks" / "results" / "papers"
SAID = re.compile(r" *# (published|claim|significant|also|note|beam|curve|setting)(?: \[(.*?)\])?: (.*)")
METRICS = {
    "accuracy": "accuracy",
    "MAP": "map",
    "BLEU": "bleu",
    "exact match": "exact_match",
    "bits per character": "bits_per_character",
}
"""What papers print first, and the names that we store it under."""


@dataclass(frozen=True)
class Row:
    """A row of a table: its options, its comments, and its runs, one for each seed.

    Attributes:
        paper: Folder of its paper.
        name: Its label in the sweep.
        config: Its options.
        published: What the paper printed, and where; empty if it is not in the paper.
        notes: What differs from the paper.
        runs: What was measured, a dict for each seed; none if it was not run.
        extra: Other comments by keyword.
        sweep: The name of its file, without its ending.
    """

    paper: str
    name: str
    config: dict[str, Any]
    published: str = ""
    notes: tuple[str, ...] = ()
    runs: tuple[dict[str, Any], ...] = ()
    extra: dict[str, str] = field(default_factory=dict)
    sweep: str = ""

    @property
    def data(self) -> str:
        """The data, as the configuration names them."""
        return str(self.config["data"])

    @property
    def setting(self) -> str:
        """How its rows differ from others on the same data; empty for the first of a data set."""
        return self.extra.get("setting", "")

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
        """What was printed first: the name of a figure of `METRICS`, and the number."""
        found = re.match(rf"({'|'.join(METRICS)}) ([\d.]+)", self.published)
        return (found[1], float(found[2])) if found else None


def comments(text: str, names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return what the comments of a sweep say of each row: keyword and text."""
    said: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    waiting: list[tuple[str, str]] = []
    for line in text.splitlines():
        if match := SAID.fullmatch(line):
            key, patterns, what = match.groups()
            about = [name for name in names if any(fnmatchcase(name, one.strip()) for one in (patterns or "*").split(","))]
            if not about:
                raise ValueError(f"no row is named so: {line}")
            if line.startswith("#"):
                for name in about:
                    said[name].append((key, what))
            else:
                waiting.append((key, what))
        elif waiting:
            said[line.strip().partition(":")[0]] += waiting
            waiting = []
    return said


def read(sweep: Path, results: Path | None = None) -> list[Row]:
    """Read the rows of a sweep, and what was measured with just their options."""
    text, paper = sweep.read_text(encoding="utf-8"), sweep.parent.name
    values = yaml.safe_load(text)
    labels = values["axes"]["row"]
    rows = []
    for name, said in comments(text, list(labels)).items():
        options = merged(nested(values["base"]), nested(labels[name]))
        path = (results or RESULTS) / paper / f"{name}.json"
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"config": options, "rows": []}
        runs = tuple(stored["rows"]) if stored["config"] == options else ()
        extra = {key: what for key, what in said if key not in ("note", "published")}
        notes = tuple(what for key, what in said if key == "note")
        rows.append(Row(paper, name, options, dict(said).get("published", ""), notes, runs, extra, sweep.stem))
    return rows


def read_all(configs: Path | None = None, results: Path | None = None) -> list[Row]:
    """Read every row, measured or not, by paper and name."""
    rows = [row for path in (configs or CONFIGS).glob("*/*.yaml") for row in read(path, results)]
    return sorted(rows, key=lambda row: (row.paper, row.name))
