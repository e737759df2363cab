"""Multi-label classification, and a data set of digits with four labels each."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MultilabelAccuracy, MultilabelExactMatch, MultilabelF1Score

from zoo.data import DataModule, ImageInfo
from zoo.inference.predictions import Example, prediction_rows
from zoo.tasks import StepOutput, Task

# --- the task ---


class MultilabelClassification(Task):
    """Train with binary cross-entropy; report accuracy, macro F1 and exact match.

    Args:
        net: Network from images [B, C, S, S] to logits [B, num_labels].
        num_labels: Number of labels.
        threshold: Minimum probability of a predicted label.
        options: See `zoo.tasks.Task`.
    """

    info_type = ImageInfo
    inputs = ("image",)
    monitor = "val_f1", "max"
    next_commands = (("predict {run} IMAGE...", "tell what is true of your own pictures"),)

    def __init__(self, net: nn.Module, num_labels: int, *, threshold: Annotated[float, "(0, 1)"] = 0.5, **options: Any) -> None:
        super().__init__(net, **options)
        self.threshold = threshold

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the number of labels."""
        return {"num_labels": len(info.classes)}

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return accuracy, macro F1 and exact match."""
        labels, threshold = self.hparams["num_labels"], self.hparams["threshold"]
        return {
            "accuracy": MultilabelAccuracy(labels, threshold, average="micro"),
            "f1": MultilabelF1Score(labels, threshold),
            "exact_match": MultilabelExactMatch(labels, threshold),
        }

    def step(self, batch: tuple[Tensor, Tensor]) -> StepOutput:
        """Return the loss, the probabilities and the labels of a batch (images, labels [B, num_labels])."""
        images, labels = batch
        logits = self(images)
        loss = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return StepOutput(loss, logits.detach().sigmoid(), labels)

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        """Return the probability of every label, [B, num_labels]."""
        return torch.sigmoid(super().predict_step(batch, batch_idx))


@prediction_rows.register
def rows(task: MultilabelClassification, examples: Sequence[Example], outputs: Tensor) -> list[dict[str, Any]]:
    """Return the predicted labels of each image, and the probability of every label."""
    rows = []
    for example, probabilities in zip(examples, outputs.tolist(), strict=True):
        by_class = dict(zip(task.info.classes, probabilities, strict=True))
        labels = [name for name, probability in by_class.items() if probability >= task.threshold]
        rows.append({**example.columns, "labels": labels, **{name: round(value, 6) for name, value in by_class.items()}})
    return rows


# --- the data ---

PROPERTIES = {"even": (0, 2, 4, 6, 8), "prime": (2, 3, 5, 7), "above four": (5, 6, 7, 8, 9), "has a hole": (0, 4, 6, 8, 9)}
"""The digits with each label."""


class DigitProperties(DataModule[ImageInfo]):
    """Load batches (images float32 [B, 1, 8, 8], labels int64 [B, 4]) of scikit-learn's 1,797 digits.

    Args:
        options: ``batch_size``, ``num_workers`` and ``seed``, see `zoo.data.DataModule`.
    """

    task = "multilabel_classification"
    unit = "images"

    def load(self) -> ImageInfo:
        """Load the splits: of every ten images, one is for validation and two are for testing."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.from_numpy(digits.images).float()[:, None] / 16
        labels = torch.from_numpy(np.stack([np.isin(digits.target, true) for true in PROPERTIES.values()], 1)).long()
        position = torch.arange(len(images)) % 10
        parts = {"train": position > 2, "val": position == 0, "test": (position == 1) | (position == 2)}
        std, mean = torch.std_mean(images[parts["train"]])
        self.rows = {name: ((images[part] - mean) / std, labels[part]) for name, part in parts.items()}
        return ImageInfo(
            in_channels=1,
            image_size=8,
            classes=tuple(PROPERTIES),
            mean=(float(mean),),
            std=(float(std),),
            sizes={name: len(rows[1]) for name, rows in self.rows.items()},
            sha256=hashlib.sha256(digits.data.tobytes() + labels.numpy().tobytes()).hexdigest(),
        )

    def dataset(self, split: str) -> Dataset[Any]:
        """Return the rows of a split."""
        return TensorDataset(*self.rows[split])


def digit_properties(batch_size: int = 32, num_workers: int = 0, seed: int = 0) -> DigitProperties:
    """Scikit-learn's digits: whether each is even, prime, above four, and has a hole."""
    return DigitProperties(batch_size=batch_size, num_workers=num_workers, seed=seed)
