"""One label for each input."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassF1Score

from zoo.options import Optimizer, Schedule
from zoo.tasks.base import Measured, Task


class BinaryScore(BinaryAUROC):
    """Area under the ROC curve from two logits per input, the second of them for the positive class."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Read logits [B, 2] and labels [B]."""
        super().update(preds.softmax(-1)[:, 1], target)


class Classification(Task):
    """Cross entropy on logits; accuracy and macro F1, and the area under the ROC curve if there are two classes.

    Args:
        net: From inputs [B, ...], or several of them, to logits [B, num_classes].
        num_classes: Labels.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
        label_smoothing: Share of the probability that training, not measuring, spreads over all labels (Szegedy et al. 2016,
            section 7).
    """

    def __init__(
        self, net: nn.Module, num_classes: int, optimizer: Optimizer, schedule: Schedule, label_smoothing: float = 0.0
    ) -> None:
        metrics: dict[str, Any] = {
            "accuracy": MulticlassAccuracy(num_classes, average="micro"),
            "f1": MulticlassF1Score(num_classes, average="macro"),
        }
        if num_classes == 2:
            metrics["auroc"] = BinaryScore()
        super().__init__(net, MetricCollection(metrics), optimizer, schedule)
        self.label_smoothing = label_smoothing

    def loss(self, batch: tuple[Any, Tensor]) -> Measured:
        """Return the cross entropy in nats, the logits and the labels of a batch (inputs, labels)."""
        inputs, labels = batch
        logits = self.answer(inputs)
        smoothing = self.label_smoothing if self.training else 0.0
        return Measured(F.cross_entropy(logits, labels, label_smoothing=smoothing), logits.detach(), labels)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return class probabilities, [B, num_classes]."""
        return torch.softmax(super().predict_step(batch, batch_idx), dim=-1)


class TextClassification(Classification):
    """The same for one text or two; the best epoch is the most accurate one.

    On text, networks become overconfident long before they become less accurate, so the loss would stop them too early.
    """

    monitor = "val_accuracy", "max"
