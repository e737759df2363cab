"""Metrics: their inputs, the mean loss, torchmetrics by name, synchronization over processes, and cached matrices."""

import inspect
import re
from collections.abc import Iterable
from contextlib import ExitStack
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback
from torch import Tensor, distributed
from torchmetrics import Metric, classification, regression, text
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


def named_metrics(names: Iterable[str], num_classes: int | None) -> dict[str, Metric]:
    """Create metrics from names of torchmetrics classes: multiclass metrics for classes, else those of numbers and texts.

    The metrics are named in snake case, such as ``multiclass_calibration_error``.
    """
    known, metrics = _scalar_metrics(bool(num_classes)), {}
    prefix, options = ("Multiclass", {"num_classes": num_classes}) if num_classes else ("", {})
    for name in names:
        if name not in known:
            close = get_close_matches(prefix + name, known, 1) or get_close_matches(name, known, 1)
            advice = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
            raise InputError(f"unknown metric '{name}' of this task: {advice}", code="unknown")
        metrics[re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()] = known[name](**options)
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


class EvaluationScope(Callback):
    """Cache the matrices of weights during an evaluation epoch.

    Callbacks that swap weights for an evaluation (moving averages) do so before the epoch starts and after it ends.
    """

    def __init__(self) -> None:
        self._scope = ExitStack()

    def _open(self, trainer: Any, pl_module: Any) -> None:
        self._scope.close()
        self._scope.enter_context(keep_matrices(pl_module))

    def _close(self, *_: Any, **__: Any) -> None:
        self._scope.close()

    on_validation_epoch_start = on_test_epoch_start = on_predict_epoch_start = _open
    on_validation_epoch_end = on_test_epoch_end = on_predict_epoch_end = _close
    on_exception = teardown = _close


def even_states(metric: Metric) -> None:
    """Concatenate every list state of a metric into one tensor in each process, so that torchmetrics can gather them.

    Torchmetrics 1.9 gathers lists without a reduction (as in retrieval metrics) element by element, which fails if the
    processes had different numbers of batches; and for a process without batches it assumes floats.
    """
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
