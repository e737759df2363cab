"""Regression: one or more real numbers for each input."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanSquaredError, Metric, MetricCollection

from zoo.data.info import TableInfo, VectorInfo
from zoo.tasks.base import Task
from zoo.tasks.inputs import Example
from zoo.tasks.metrics import StepOutput


class Regression(Task):
    """Regression with the mean squared error over all elements of the targets.

    Targets of tables are standardised in training; metrics and predictions are in their original units.

    Args:
        net: Maps inputs [B, in] to outputs [B, num_targets].
        num_targets: Size of a target.
        options: See `Task`.
    """

    info_type = VectorInfo
    inputs = ("vector",)

    def __init__(self, net: nn.Module, num_targets: int = 1, **options: Any) -> None:
        super().__init__(net, **options)
        self.num_targets = num_targets

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the size of a target."""
        return {"num_targets": info.out_features}

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return the mean squared error."""
        return {"mse": MeanSquaredError()}

    def step(self, batch: tuple[Any, Tensor]) -> StepOutput:
        """Return the mean squared error of a batch (inputs, targets)."""
        inputs, targets = batch
        outputs = self.outputs(inputs)
        return StepOutput(F.mse_loss(outputs, targets), self.in_units(outputs.detach()), self.in_units(targets))

    def in_units(self, values: Tensor) -> Tensor:
        """Convert standardised targets of a table to their original units; targets of other data are unchanged."""
        if not isinstance(self.info, TableInfo):
            return values
        return values * self.info.target_std + self.info.target_mean

    def prediction_rows(self, examples: Sequence[Example], outputs: Tensor) -> list[dict[str, Any]]:
        """Return the input and the output of each example."""
        rows = self.in_units(outputs).tolist()
        return [{**example.columns, "output": row} for example, row in zip(examples, rows, strict=True)]
