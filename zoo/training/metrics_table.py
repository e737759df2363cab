"""metrics.csv: a row for everything that is logged, without gaps or duplicates however often a run is stopped."""

import csv
import io
import os
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from zoo.atomic import write_text

_WAITING = 100


class MetricsTable(Logger):
    """Write metrics.csv into the run's folder, in the columns of Lightning's `CSVLogger`; hyperparameters are in config.yaml.

    Args:
        folder: The run's folder.
        rows: The first so many rows of the file stay; those after them are logged again by the run that goes on.

    Attributes:
        rows: How many there are.
    """

    name = version = ""

    def __init__(self, folder: Path, rows: int = 0) -> None:
        super().__init__()
        self.path, self.rows = folder / "metrics.csv", rows
        self._waiting: list[dict[str, Any]] = []
        self._columns: list[str] = []
        self._fresh = True

    @property
    def log_dir(self) -> str:
        """The run's folder."""
        return str(self.path.parent)

    def log_hyperparams(self, params: Any = None, *args: Any, **kwargs: Any) -> None:
        """Write nothing."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Add a row."""
        row = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
        self._waiting.append({**row, "step": self.rows if step is None else step})
        self.rows += 1
        if len(self._waiting) >= _WAITING:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        """Bring the rows to the disk; the whole file is written anew if there are new columns."""
        found = sorted(set(self._columns).union(*self._waiting))
        if self._fresh or found != self._columns:
            old = self._read(self.rows - len(self._waiting))
            self._columns, self._fresh = sorted({*found, *(old[0] if old else ())}), False
            if old or self._waiting:
                write_text(self.path, self._text([*old, *self._waiting], header=True))
        elif self._waiting:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                file.write(self._text(self._waiting, header=False))
                file.flush()
                os.fsync(file.fileno())
        self._waiting = []

    def finalize(self, status: str) -> None:
        """Write what waits."""
        self.save()

    def _read(self, count: int) -> list[dict[str, Any]]:
        if not count or not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")  # a damaged table must not end the run
        try:
            rows = list(csv.DictReader(io.StringIO(text, newline="")))[:count]
        except csv.Error:
            return []
        return [{str(name): value for name, value in row.items() if isinstance(value, str)} for row in rows]

    def _text(self, rows: list[dict[str, Any]], header: bool) -> str:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns)
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
