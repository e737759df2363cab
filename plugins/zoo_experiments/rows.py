"""The results of an experiment with lottery tickets, lottery.json."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo.checkpoint.records import invalid_fields, known_fields
from zoo.errors import InputError

Metrics = dict[str, float | None]
"""Values by name; None is undefined."""


@dataclass(frozen=True, kw_only=True)
class GridRow:
    """A finished round of an arm.

    Attributes:
        control: None for the ticket, or the control ``random`` or ``reinit``.
        survivors: Weights left.
        weights: Prunable weights.
        real_weights: Prunable weights of the same network over the reals.
        metric: The reported metric.
        mode: Whether to maximize (``max``) or minimize (``min``) it.
        val: Metrics of the best epoch in validation.
        epoch: The best epoch.
        folder: The folder of the run in that of the experiment.
    """

    algebra: str
    control: str | None
    seed: int
    round: int
    survivors: int
    weights: int
    real_weights: int
    metric: str = ""
    mode: str = ""
    val: Metrics
    epoch: int | None = None
    test: Metrics
    seconds: float = 0.0
    folder: str

    @classmethod
    def from_json(cls, values: Mapping[str, object], message: str) -> "GridRow":
        """Check a row; raise `InputError` with a message if it is invalid."""
        if invalid_fields(cls, values):
            raise InputError(message, code="corrupt")
        return cls(**known_fields(cls, values))


@dataclass(frozen=True, kw_only=True)
class StoppedArm:
    """An arm that has no round after ``round``, and the reason."""

    algebra: str
    control: str | None
    seed: int
    round: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class LotteryResults:
    """The content of lottery.json; ``left`` counts the rounds to train."""

    backbone: str
    data: str | None
    task: str | None = None
    metric: str
    mode: str
    rate: float | str | None = None
    rounds: int | None = None
    pruning: dict[str, Any]
    rows: list[GridRow]
    stopped: list[StoppedArm]
    left: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the content of lottery.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any], file: Path) -> "LotteryResults":
        """Check the content of lottery.json; errors name the file."""
        if invalid_fields(cls, values):
            text = f"'{file}' is damaged: delete it, and resume to rebuild it from the rounds"
            raise InputError(text, code="corrupt")
        rows = [GridRow(**known_fields(GridRow, row)) for row in values["rows"]]
        stopped = [StoppedArm(**known_fields(StoppedArm, arm)) for arm in values["stopped"]]
        return cls(**{**known_fields(cls, values), "rows": rows, "stopped": stopped})
