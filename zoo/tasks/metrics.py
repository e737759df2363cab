"""Metrics: their inputs, torchmetrics classes by name, synchronization over processes, and cached matrices in evaluation."""

import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback
from torch import Tensor, distributed
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import dim_zero_cat

from zoo.errors import InputError
from zoo.layers import keep_matrices

MODULES = ("classification", "regression", "retrieval", "text", "clustering", "nominal")
"""Submodules of torchmetrics with the metrics that users can name."""
OUTPUT_SIZES = ("num_classes", "num_labels", "num_outputs")
"""Arguments of metrics that are set to the output size of the task."""

Inputs = tuple[Any, Any, dict[str, Tensor]]
"""Predictions, targets and extra keywords for the ``update`` of a metric."""


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


def named_metrics(names: Sequence[str], example: Callable[[], Inputs]) -> dict[str, Metric | MetricCollection]:
    """Build metrics from checked names of torchmetrics classes, by snake-case names, and try each on the example."""
    inputs = example() if names else ()
    return {snake_case(name): _build(name, inputs) for name in names}


def check_names(names: Sequence[str]) -> None:
    """Check that names are distinct and those of torchmetrics classes."""
    if isinstance(names, str):
        raise InputError(f"metrics={names!r}: expected a list of names, such as ('{names}',)")
    for name in names:
        _metric_class(name)
    if duplicates := {name for name in names if list(names).count(name) > 1}:
        raise InputError(f"duplicate metric {duplicates.pop()}: leave one out")


def snake_case(name: str) -> str:
    """Convert the name of a class to snake case.

    Example:
        >>> snake_case("BinaryAUROC"), snake_case("MulticlassCalibrationError")
        ('binary_auroc', 'multiclass_calibration_error')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def update_named(metric: Metric, predictions: Any, targets: Any, extra: dict[str, Tensor]) -> None:
    """Update a metric with the keywords that it accepts; binary metrics get the probability of the second class."""
    is_single_label = isinstance(predictions, Tensor) and predictions.ndim == 2 and targets.ndim == 1
    if type(metric).__name__.startswith("Binary") and is_single_label:
        if predictions.shape[1] != 2:
            raise ValueError(f"it requires 2 classes, got {predictions.shape[1]}")
        predictions = predictions[:, 1]
    accepted = inspect.signature(type(metric).update).parameters
    metric.update(predictions, targets, **{name: value for name, value in extra.items() if name in accepted})


def even_states(metric: Metric) -> None:
    """Concatenate every list state of a metric into one tensor in each process, so that torchmetrics can gather them.

    Torchmetrics 1.9 gathers lists without a reduction (as in retrieval metrics) element by element, which fails if the
    processes had different numbers of batches; and for a process without batches it assumes floats.
    """
    names = [name for name, default in metric._defaults.items() if isinstance(default, list)]
    is_distributed = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    if not is_distributed or not names:
        return
    states = {name: dim_zero_cat(state) for name in names if (state := getattr(metric, name)) != []}
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, {name: (state.dtype, state.shape[1:]) for name, state in states.items()})
    for name in names:
        for dtype, shape in [types[name] for types in gathered if name in types][:1]:
            setattr(metric, name, [states.get(name, torch.empty((0, *shape), dtype=dtype, device=metric.device))])


def _metric_class(name: str) -> type[Metric]:
    modules = [import_module(f"torchmetrics.{part}") for part in MODULES]
    members = [(member, getattr(module, member)) for module in modules for member in module.__all__]
    classes = {member: kind for member, kind in members if isinstance(kind, type) and issubclass(kind, Metric)}
    if name in classes:
        return classes[name]
    supported = [other for other, kind in classes.items() if set(_required(kind)) <= {*OUTPUT_SIZES}]
    spellings = {spelling: other for other in supported for spelling in (_plain_name(other), other.lower())}
    close = get_close_matches(str(name).lower().replace("_", ""), spellings, 1)
    advice = f"did you mean {spellings[close[0]]}?" if close else "use a torchmetrics class, such as MulticlassAUROC"
    raise InputError(f"unknown metric '{name}': {advice}", code="unknown")


def _plain_name(name: str) -> str:
    return name.lower().replace("_", "").removeprefix("multiclass")


def _required(kind: type[Metric]) -> list[str]:
    """Return the names of the constructor's parameters without a default."""
    parameters = inspect.signature(kind).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def _build(name: str, inputs: Any) -> Metric:
    kind = _metric_class(name)
    required = _required(kind)
    if unknown := [parameter for parameter in required if parameter not in OUTPUT_SIZES]:
        raise InputError(f"metric {name} requires {', '.join(unknown)}: use a metric without, such as Multiclass{name}")
    try:
        metric = kind(**dict.fromkeys(required, inputs[0].shape[-1])) if required else kind()
        trial = metric.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as too few examples
            update_named(trial, *inputs)
            value = trial.compute()
    except (AttributeError, ImportError, IndexError, RuntimeError, TypeError, ValueError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"metric {name} does not work for this task: {reason}") from error
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise InputError(f"metric {name} is not a scalar: use another metric")
    return metric
