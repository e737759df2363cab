"""Metrics: their inputs, the mean loss, torchmetrics by name, synchronization over processes, and cached matrices."""

import inspect
import re
import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback
from torch import Tensor, distributed, nn
from torchmetrics import Metric, MetricCollection, classification, regression, text
from torchmetrics.utilities import dim_zero_cat

from zoo.errors import InputError
from zoo.nn import keep_matrices


class StepOutput(NamedTuple):
    """The mean loss of a batch over ``size`` terms (by default one per target), and the inputs of its metrics."""

    loss: Tensor
    predictions: Any
    targets: Any
    extra: dict[str, Tensor] = {}  # noqa: RUF012 (never written to)
    size: int | None = None

    @property
    def num_terms(self) -> int:
        """The number of terms in the mean loss."""
        return len(self.targets) if self.size is None else self.size


class Ratio(Metric):
    """A sum divided by a count, both accumulated over batches and processes; keeps NaN and infinity."""

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def add(self, total: Tensor, count: Tensor | int) -> None:
        """Add to the sum and the count."""
        self.total += total
        self.count += count

    def compute(self) -> Tensor:
        """Return the quotient."""
        return self.total / self.count


class MeanLoss(Ratio):
    """The mean of the losses of batches, weighted by their sizes; keeps NaN and infinity.

    ``torchmetrics.MeanMetric`` 1.9 ignores losses that are NaN or, with ``nan_strategy="disable"``, the weights.

    Example:
        >>> mean = MeanLoss()
        >>> mean.update(torch.tensor(1.0), 3)
        >>> mean.update(torch.tensor(2.0), 1)
        >>> mean.compute()
        tensor(1.2500)
    """

    def update(self, loss: Tensor, size: int) -> None:
        """Add the mean loss of ``size`` terms."""
        self.add(loss.to(self.total.dtype) * size, size)


class Defined(Metric):
    """A metric that is NaN if its targets leave it undefined, where torchmetrics 1.9 returns 0 or 1, warns or raises.

    Args:
        metric: The metric.
        num_classes: Number of classes; None for targets that are numbers.
        needed: Number of different classes that the targets must have; numbers must differ, or for 0 have a positive one.

    Attributes:
        reason: Why the last value is undefined; empty if it is defined.

    Example:
        >>> metric = Defined(classification.BinaryF1Score(), 2)
        >>> metric.update(torch.tensor([0.2, 0.9]), torch.tensor([0, 0]))
        >>> metric.compute(), metric.reason
        (tensor(nan), 'the targets have 1 of 2 classes')
    """

    low: Tensor
    high: Tensor
    counts: Tensor

    def __init__(self, metric: Metric, num_classes: int | None = None, needed: int = 2) -> None:
        super().__init__()
        self.metric, self.num_classes, self.needed, self.reason = metric, num_classes, needed, ""
        self.add_state("low", torch.tensor(torch.inf), "min")
        self.add_state("high", torch.tensor(-torch.inf), "max")
        self.add_state("counts", torch.zeros(num_classes or 1, dtype=torch.int64), "sum")

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Whether the optimum is a maximum."""
        return self.metric.higher_is_better

    def update(self, predictions: object, targets: Tensor, **extra: object) -> None:
        """Update the metric."""
        self.metric.update(predictions, targets, **extra)
        self.low = torch.minimum(self.low, targets.min().to(self.low.dtype))
        self.high = torch.maximum(self.high, targets.max().to(self.high.dtype))
        if self.num_classes is not None:
            self.counts = self.counts + targets.flatten().bincount(minlength=self.num_classes)

    def compute(self) -> Tensor:
        """Return the value, or NaN."""
        classes = int((self.counts > 0).sum())
        self.reason = ""
        if self.num_classes is not None and classes < self.needed:
            self.reason = f"the targets have {classes} of {self.num_classes} classes"
        elif self.num_classes is None and (self.high <= 0 if self.needed == 0 else self.low >= self.high):
            self.reason = "no target is positive" if self.needed == 0 else "all targets are equal"
        if self.reason:
            return torch.full((), torch.nan, device=self.low.device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value: Tensor = self.metric.compute()
        if value.isnan() and caught:
            self.reason = str(caught[-1].message).partition(".")[0].lower()
        return value

    def reset(self) -> None:
        """Reset the metric."""
        super().reset()
        self.metric.reset()


# Metrics of numbers that need different ones; of classes that are always defined, or need two of them, where others need all.
DIFFERENT_NUMBERS = "CorrCoef|R2Score|ExplainedVariance|RelativeSquaredError"
ALWAYS_DEFINED = "CalibrationError|HingeLoss"
TWO_CLASSES = "F1Score|CohenKappa|JaccardIndex|MatthewsCorrCoef|MulticlassPrecision|Specificity|NegativePredictiveValue"


def named_metrics(names: Iterable[str], num_classes: int | None) -> dict[str, Metric]:
    """Create metrics from names of torchmetrics classes: multiclass metrics for classes, else those of numbers and texts.

    The metrics are named in snake case, such as ``multiclass_calibration_error``.
    """
    known, metrics = _scalar_metrics(bool(num_classes)), dict[str, Metric]()
    prefix, options = ("Multiclass", {"num_classes": num_classes}) if num_classes else ("", {})
    for name in names:
        if name not in known:
            close = get_close_matches(prefix + name, known, 1) or get_close_matches(name, known, 1)
            advice = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
            raise InputError(f"unknown metric '{name}' of this task: {advice}", code="unknown")
        metric = known[name](**options)
        if num_classes and not re.search(ALWAYS_DEFINED, name):
            metric = Defined(metric, num_classes, 2 if re.search(TWO_CLASSES, name) else num_classes)
        elif not num_classes and re.search(DIFFERENT_NUMBERS, name):
            metric = Defined(metric)
        metrics[re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()] = metric
    return metrics


def _scalar_metrics(for_classes: bool) -> dict[str, type[Metric]]:
    """Return the torchmetrics classes that need no options besides the number of classes and compute one number."""
    kinds: dict[str, type[Metric]] = {}
    for module in (classification,) if for_classes else (regression, text):
        kinds |= {name: getattr(module, name) for name in module.__all__}
    allowed = {"num_classes", "kwargs"} if for_classes else {"kwargs"}
    return {
        name: kind
        for name, kind in kinds.items()
        if name.startswith("Multiclass") is for_classes
        and not re.search("ConfusionMatrix|Curve|classROC|StatScores|ExactMatch", name)
        and {key for key, p in inspect.signature(kind).parameters.items() if p.default is p.empty} <= allowed
        and "model_name_or_path" not in inspect.signature(kind).parameters  # it would be downloaded
    }


class StageMetrics(nn.Module):
    """The mean loss and the metrics of a stage over its batches.

    Args:
        stage: ``val`` or ``test``.
        metrics: The metrics by name, which are copied.
    """

    def __init__(self, stage: str, metrics: MetricCollection) -> None:
        super().__init__()
        self.stage, self.loss, self.metrics = stage, MeanLoss(), metrics.clone(prefix=f"{stage}_")

    def update(self, output: StepOutput) -> None:
        """Update the loss and the metrics with a batch; an empty batch is ignored."""
        if size := output.num_terms:
            self.loss.update(output.loss.detach(), size)
            self.metrics.update(output.predictions, output.targets, **output.extra)

    def named(self) -> dict[str, Metric]:
        """Return the metrics by the names under which they are logged."""
        return {f"{self.stage}_loss": self.loss, **dict(self.metrics.items())}

    def reset(self) -> None:
        """Reset the loss and the metrics."""
        for metric in self.named().values():
            metric.reset()

    def undefined(self) -> dict[str, str]:
        """Return why metrics of the last evaluation are undefined (NaN), by name."""
        reasons = {name: getattr(metric, "reason", "") for name, metric in self.named().items()}
        return {name.removeprefix(f"{self.stage}_"): reason for name, reason in reasons.items() if reason}


class Evaluation(Callback):
    """Cache the matrices of weights during an evaluation epoch, and log its `StageMetrics` at the end.

    Callbacks that swap weights for an evaluation (moving averages) do so before the epoch starts and after it ends.
    """

    def __init__(self) -> None:
        self._scope = ExitStack()

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Reset the validation metrics, and start to cache matrices."""
        pl_module.val_metrics.reset()
        self.on_predict_epoch_start(trainer, pl_module)

    def on_test_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Reset the test metrics, and start to cache matrices."""
        pl_module.test_metrics.reset()
        self.on_predict_epoch_start(trainer, pl_module)

    def on_predict_epoch_start(self, trainer: object, pl_module: object) -> None:
        """Start to cache matrices."""
        self._scope.close()
        self._scope.enter_context(keep_matrices(pl_module))

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the validation metrics."""
        self._log(pl_module, pl_module.val_metrics)

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the test metrics."""
        self._log(pl_module, pl_module.test_metrics)

    def _log(self, pl_module: Any, metrics: StageMetrics) -> None:
        self._close()
        for name, metric in metrics.named().items():
            even_states(metric)
            pl_module.log(name, metric, on_step=False, on_epoch=True, prog_bar=True)

    def _close(self, *_: object, **__: object) -> None:
        self._scope.close()

    on_predict_epoch_end = on_exception = teardown = _close


def even_states(metric: Metric) -> None:
    """Concatenate every list state of a metric into one tensor in each process, so that torchmetrics can gather them.

    Torchmetrics 1.9 gathers lists without a reduction (as in retrieval metrics) element by element, which fails if the
    processes had different numbers of batches; and for a process without batches it assumes floats.
    """
    if isinstance(metric, Defined):
        even_states(metric.metric)
    names = [name for name, state in metric.metric_state.items() if isinstance(state, list)]
    is_distributed = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    if not is_distributed or not names:
        return
    states = {name: dim_zero_cat(state) for name in names if (state := getattr(metric, name)) != []}
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, {name: (state.dtype, state.shape[1:]) for name, state in states.items()})
    for name in names:
        for dtype, shape in [types[name] for types in gathered if name in types][:1]:
            setattr(metric, name, [states.get(name, torch.empty((0, *shape), dtype=dtype, device=metric.device))])
