"""Read the rows of the papers' tables: options and comments from the sweeps, and the stored results.

A sweep in configs/papers/ has an axis ``row`` and an axis ``seed``. Comments before ``axes:`` apply to all rows, or to the rows
that match the patterns after the keyword, as in ``# note [*_cnn_*, *_lstm_*]: ...``; comments above a row apply to that row.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from zoo_experiments.sweep import grid_points

from benchmarks import machine
from benchmarks.machine import ROOT
from zoo.registry import Spec

CONFIGS = ROOT / "configs" / "papers"
RESULTS = machine.RESULTS / "papers"
COMMENT = re.compile(r" *# (published|claim|significant|also|note|beam|curve|setting|same)(?: \[(.*?)\])?: (.*)")
GENERATED = ("mlu", "digits", "hamilton", "linear_map")
"""Data sets that need no files."""
METRICS = {
    "accuracy": "accuracy",
    "MAP": "map",
    "BLEU": "bleu",
    "exact match": "exact_match",
    "bits per character": "bits_per_character",
}
"""Names of metrics in the comments ``# published:``, and in our results."""


def rooted(spec: str, root: Path | None) -> str:
    """Set the path of a data spec to the folder in ``root`` with its name, or starting with its name such as snli_devtest."""
    parsed = Spec.parse(spec)
    if root is None or parsed.name in GENERATED:
        return spec
    candidates = [root / parsed.name, root / f"tiny{parsed.name}"]
    folders = [path for path in (*candidates, *sorted(root.glob(f"{parsed.name}_*"))) if path.is_dir()]
    return str(Spec(parsed.name, {**parsed.options, "path": str(folders[0])})) if folders else spec


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        paper: Folder of the paper.
        name: Label in the sweep.
        config: Options of the run.
        published: Published result and table; empty if the row is not in the paper.
        notes: Differences from the paper.
        runs: Results, one dict per seed; empty if the row was not run.
        extra: Other comments by keyword.
        sweep: Name of the sweep's file, without its suffix.
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
        """Spec of the data."""
        return str(self.config["data"])

    @property
    def stored(self) -> str:
        """Paper and name of the row whose file has the results: usually this row."""
        return self.extra.get("same", f"{self.paper}/{self.name}")

    @property
    def setting(self) -> str:
        """Name of the setting, which separates rows on the same data; empty for the first setting."""
        return self.extra.get("setting", "")

    @property
    def net(self) -> str:
        """Name of the network, without options and size."""
        return Spec.parse(self.config["backbone"]).name.partition("/")[0]

    @property
    def score(self) -> str:
        """Attention score over an algebra: dot, product or hermitian; empty for other networks."""
        if self.net != "transformer" or self.config["algebra"] == "real":
            return ""
        default = "hermitian" if self.config["algebra"].startswith("complex_order") else "dot"
        return str(Spec.parse(self.config["backbone"]).options.get("score", default))

    @property
    def tables(self) -> list[str]:
        """Tables with the row: ``Table 2``, or ``Tay et al. 2019, Table 5`` for another paper."""
        return re.findall(r"((?:[A-Z][\w .]+ \d{4}, )?Table \d+)", self.published)

    @property
    def printed(self) -> tuple[str, float] | None:
        """First published metric (a key of `METRICS`) and its value."""
        match = re.match(rf"({'|'.join(METRICS)}) ([\d.]+)", self.published)
        return (match[1], float(match[2])) if match else None


def comments(text: str, names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Parse the comments of a sweep into keywords and texts for each row."""
    by_row: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    pending: list[tuple[str, str]] = []
    for line in text.splitlines():
        if match := COMMENT.fullmatch(line):
            key, patterns, content = match.groups()
            matching = [name for name in names if any(fnmatchcase(name, p.strip()) for p in (patterns or "*").split(","))]
            if not matching:
                raise ValueError(f"no row matches the comment: {line}")
            if line.startswith("#"):
                for name in matching:
                    by_row[name].append((key, content))
            else:
                pending.append((key, content))
        elif pending:
            by_row[line.strip().partition(":")[0]] += pending
            pending = []
    return by_row


def read(sweep: Path, results: Path | None = None) -> list[Row]:
    """Read the rows of a sweep with their results; results of other options are ignored."""
    text, paper = sweep.read_text(encoding="utf-8"), sweep.parent.name
    values = yaml.safe_load(text)
    grid = grid_points({"base": values["base"], "axes": {"row": values["axes"]["row"]}}, sweep.name)
    all_options = {point.axes["row"]: point.options for point in grid}
    rows = []
    for name, pairs in comments(text, list(all_options)).items():
        options = all_options[name]
        extra = {key: content for key, content in pairs if key not in ("note", "published")}
        notes = [content for key, content in pairs if key == "note"]
        if "same" in extra:
            other_paper, _, other = extra["same"].partition("/")
            notes.append(f"The same runs as [{other}]({other_paper}.md).")
        row = Row(paper, name, options, dict(pairs).get("published", ""), tuple(notes), (), extra, sweep.stem)
        path = (results or RESULTS) / f"{row.stored}.json"
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"config": options, "rows": []}
        rows.append(replace(row, runs=tuple(stored["rows"]) if stored["config"] == options else ()))
    return rows


def read_all(configs: Path | None = None, results: Path | None = None) -> list[Row]:
    """Read all rows, measured or not, sorted by paper and name."""
    rows = [row for path in (configs or CONFIGS).glob("*/*.yaml") for row in read(path, results)]
    return sorted(rows, key=lambda row: (row.paper, row.name))
