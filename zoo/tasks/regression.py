"""Real numbers for each input."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanSquaredError, MetricCollection

from zoo.options import Optimizer, Schedule
from zoo.tasks.base import Measured, Task


class Regression(Task):
    """Mean squared error, averaged over all numbers of a target.

    Args:
        net: From inputs [B, in] to answers [B, outputs].
        outputs: Numbers of an answer.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
    """

    def __init__(self, net: nn.Module, outputs: int, optimizer: Optimizer, schedule: Schedule) -> None:
        metrics: dict[str, Any] = {"mse": MeanSquaredError()}
        super().__init__(net, MetricCollection(metrics), optimizer, schedule)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Measured:
        """Return the mean squared error of a batch (inputs, targets)."""
        inputs, targets = batch
        answers = self.answer(inputs)
        return Measured(F.mse_loss(answers, targets), answers.detach(), targets)
