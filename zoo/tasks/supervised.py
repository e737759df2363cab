"""Supervised tasks: classification of images, vectors, texts and pairs of texts, ranking of answers, and regression."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanSquaredError, Metric, MetricCollection
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassF1Score
from torchmetrics.retrieval import RetrievalMAP, RetrievalMRR, RetrievalPrecision

from zoo.data.info import ImageInfo, TableInfo, TextInfo, VectorInfo
from zoo.errors import InputError
from zoo.tasks.base import Task
from zoo.tasks.metrics import Defined, StepOutput


class AUROC(BinaryAUROC):
    """Area under the ROC curve from two logits per input; the second one is that of the positive class."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Update with logits [B, 2] and labels [B]."""
        super().update(preds.softmax(-1)[:, 1], target)


class Classification(Task):
    """Classification with cross entropy; measures accuracy, macro F1 and, for two classes, the area under the ROC curve.

    Args:
        net: Maps one or more inputs [B, ...] to logits [B, num_classes].
        num_classes: Number of classes.
        label_smoothing: Label smoothing in training only (Szegedy et al. 2016, section 7).
        options: See `Task`.
    """

    has_soft_targets = True

    def __init__(
        self, net: nn.Module, num_classes: int, *, label_smoothing: Annotated[float, "[0, 1)"] = 0.0, **options: Any
    ) -> None:
        super().__init__(net, **options)
        self.num_classes, self.label_smoothing = num_classes, label_smoothing

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the number of classes."""
        return {"num_classes": len(info.classes)}

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return accuracy, macro F1 and, for two classes, the area under the ROC curve."""
        classes = self.hparams["num_classes"]
        metrics: dict[str, Metric | MetricCollection] = {
            "accuracy": MulticlassAccuracy(classes, average="micro"),
            "f1": Defined(MulticlassF1Score(classes, average="macro"), classes),
        }
        return metrics | {"auroc": Defined(AUROC(), classes)} if classes == 2 else metrics

    def step(self, batch: Sequence[Any]) -> StepOutput:
        """Return cross entropy in nats, logits and labels of a batch (inputs, labels, ...)."""
        inputs, labels = batch[:2]
        logits = self(inputs)
        if not self.training:
            return StepOutput(F.cross_entropy(logits, labels), logits.detach(), labels)
        smoothed = F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)
        return StepOutput(self.distillation(smoothed, logits, inputs), logits.detach(), labels)

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        """Return class probabilities, [B, num_classes]."""
        return torch.softmax(super().predict_step(batch, batch_idx), dim=-1)


class ImageClassification(Classification):
    """Classification of images."""

    info_type = ImageInfo
    pipeline_tag = "image-classification"
    inputs = ("image",)
    next_commands = (("predict {run} IMAGE...", "classify your own pictures"),)


class VectorClassification(Classification):
    """Classification of vectors, such as the rows of a table."""

    info_type = TableInfo
    pipeline_tag = "tabular-classification"
    inputs = ("vector",)
    next_commands = (("predict {run} ROWS.csv", "classify the rows of a table"),)


class TextClassification(Classification):
    """Classification of texts; accuracy selects the best epoch, because the loss rises long before accuracy falls."""

    info_type = TextInfo
    pipeline_tag = "text-classification"
    inputs = ("text",)
    monitor = "val_accuracy", "max"
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = (
        ('predict {run} "some text"', "classify your own text, or a file with one text per line"),
    )


class PairClassification(TextClassification):
    """Classification of pairs of texts."""

    inputs = ("text_pair",)
    columns = ("first", "second")
    next_commands = (('predict {run} "one text" "another"', "compare your own texts, or a file with two per line"),)


class AnswerRanking(Task):
    """Answer selection: rank the candidate answers of a question by the probability that they are right.

    The loss is the cross entropy of each pair of question and answer (Tay et al. 2019, section 4.1). Measures mean average
    precision, mean reciprocal rank and precision at 1; questions without a right answer are skipped.

    Args:
        net: Maps tokens of questions and answers, [B, L] and [B, M], to logits [B, 2] for wrong and right.
    """

    info_type = TextInfo
    pipeline_tag = "text-ranking"
    inputs = ("text_pair",)
    has_soft_targets = True
    monitor = "val_map", "max"
    columns = ("question", "answer")
    next_commands = (('predict {run} "a question" "an answer"', "score an answer"),)

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Check that the data have questions."""
        if not getattr(info, "ranking", True):  # `step` checks the batches of other data
            advice = "use ranking(path=...), or another task"
            text = f"task {cls.__name__} ranks the answers of each question, but the data have no questions"
            raise InputError(f"{text}: {advice}")
        return {}

    @classmethod
    def num_outputs(cls, info: Any) -> int:
        """Return 2, for the logits of wrong and right."""
        return 2

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return mean average precision, mean reciprocal rank and precision at 1."""
        metrics = {"map": RetrievalMAP("skip"), "mrr": RetrievalMRR("skip"), "top1": RetrievalPrecision("skip", top_k=1)}
        return {name: Defined(metric, needed=0) for name, metric in metrics.items()}

    def step(self, batch: Sequence[Any]) -> StepOutput:
        """Return the cross entropy in nats of a batch (inputs, labels, questions), and the relevance of the answers."""
        inputs, labels, questions = batch[:3]
        logits = self(inputs)
        relevance = logits.detach().softmax(-1)[:, 1]
        loss = F.cross_entropy(logits, labels)
        if self.training:
            loss = self.distillation(loss, logits, inputs)
        return StepOutput(loss, relevance, labels, {"indexes": questions})

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        """Return the probability that each answer is right, [B]."""
        return torch.softmax(super().predict_step(batch, batch_idx), dim=-1)[:, 1]


class Regression(Task):
    """Regression with the mean squared error over all elements of the targets.

    Targets of tables are standardized in training; metrics and predictions are in their original units.

    Args:
        net: Maps inputs [B, in] to outputs [B, num_targets].
        num_targets: Size of a target.
        options: See `Task`.
    """

    info_type = VectorInfo
    pipeline_tag = "tabular-regression"
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
        outputs = self(inputs)
        return StepOutput(F.mse_loss(outputs, targets), self.in_units(outputs.detach()), self.in_units(targets))

    def in_units(self, values: Tensor) -> Tensor:
        """Convert standardized targets of a table to their original units; targets of other data are unchanged."""
        if not isinstance(self.info, TableInfo):
            return values
        return values * self.info.target_std + self.info.target_mean
