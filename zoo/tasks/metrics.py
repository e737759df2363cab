"""Evaluation: what metrics read, metrics of torchmetrics by name and over processes, and the scope of cached matrices."""

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
"""The parts of torchmetrics whose classes can be named."""
SIZES = ("num_classes", "num_labels", "num_outputs")
"""The arguments of a metric that the task fills in."""

Inputs = tuple[Any, Any, dict[str, Tensor]]
"""Predictions, targets and keywords of a metric's ``update``."""


class StepOutput(NamedTuple):
    """The loss of a batch, a mean over ``size`` things (by default one for each target), and what the metrics read."""

    loss: Tensor
    predictions: Any
    targets: Any
    extra: dict[str, Tensor] = {}  # noqa: RUF012 (never written to)
    size: int | None = None

    @property
    def num_terms(self) -> int:
        """The number of things that the loss is a mean over."""
        return len(self.targets) if self.size is None else self.size


class Ratio(Metric):
    """A sum over a count, both over all batches and processes; a sum that is not finite stays so."""

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def add(self, total: Tensor, count: Tensor | int) -> None:
        """Add to both."""
        self.total += total
        self.count += count

    def compute(self) -> Tensor:
        """Return the quotient."""
        return self.total / self.count


class MeanLoss(Ratio):
    """The mean of the losses of batches, each weighted by its size; a loss that is not finite stays in it.

    The ``MeanMetric`` of torchmetrics leaves such losses out, or with ``nan_strategy="disable"`` the weights (version 1.9).

    Example:
        >>> mean = MeanLoss()
        >>> mean.update(torch.tensor(1.0), 3)
        >>> mean.update(torch.tensor(2.0), 1)
        >>> mean.compute()
        tensor(1.2500)
    """

    def update(self, loss: Tensor, size: int) -> None:
        """Add the mean loss of so many things."""
        self.add(loss.to(self.total.dtype) * size, size)


class EvaluationScope(Callback):
    """Let weights cache their matrices from the first batch of an evaluation epoch to its last: nothing writes to them there.

    Callbacks that exchange weights for an evaluation (moving averages) do it before the epoch starts and after it has ended.
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
    """Build metrics, by their names in small letters, from checked names of torchmetrics classes; try each on the example."""
    inputs = example() if names else ()
    return {snake_case(name): _built(name, inputs) for name in names}


def check_names(names: Sequence[str]) -> None:
    """Check that there are metrics of these names."""
    if isinstance(names, str):
        raise InputError(f"metrics={names!r}: give a list of names, such as ('{names}',)")
    for name in names:
        _metric_class(name)
    if twice := {name for name in names if list(names).count(name) > 1}:
        raise InputError(f"metrics has {twice.pop()} twice: leave one out")


def snake_case(name: str) -> str:
    """Write the name of a class as that of a value.

    Example:
        >>> snake_case("BinaryAUROC"), snake_case("MulticlassCalibrationError")
        ('binary_auroc', 'multiclass_calibration_error')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def update_named(metric: Metric, predictions: Any, targets: Any, extra: dict[str, Tensor]) -> None:
    """Update a metric with as much as it takes; one for two classes reads the probability of the second one."""
    one_label = isinstance(predictions, Tensor) and predictions.ndim == 2 and targets.ndim == 1
    if type(metric).__name__.startswith("Binary") and one_label:
        if predictions.shape[1] != 2:
            raise ValueError(f"it is for two classes, and there are {predictions.shape[1]}")
        predictions = predictions[:, 1]
    taken = inspect.signature(type(metric).update).parameters
    metric.update(predictions, targets, **{name: value for name, value in extra.items() if name in taken})


def even_states(metric: Metric) -> None:
    """Give every list of a metric one entry in each process, so that torchmetrics can gather them.

    Torchmetrics 1.9 gathers entry by entry where a list has no reduction (as in retrieval metrics), which fails if one process
    has seen more batches than another; and where a process has seen none, it gathers floats, whatever the others have.
    """
    names = [name for name, default in metric._defaults.items() if isinstance(default, list)]
    alone = not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1
    if alone or not names:
        return
    states = {name: dim_zero_cat(state) for name in names if (state := getattr(metric, name)) != []}
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, {name: (state.dtype, state.shape[1:]) for name, state in states.items()})
    for name in names:
        if theirs := [other[name] for other in found if name in other]:
            dtype, shape = theirs[0]
            setattr(metric, name, [states.get(name, torch.empty((0, *shape), dtype=dtype, device=metric.device))])


def _metric_class(name: str) -> type[Metric]:
    """Find a metric of torchmetrics by its name."""
    modules = [import_module(f"torchmetrics.{part}") for part in MODULES]
    members = [(member, getattr(module, member)) for module in modules for member in module.__all__]
    known = {member: kind for member, kind in members if isinstance(kind, type) and issubclass(kind, Metric)}
    if name in known:
        return known[name]
    accepted = [other for other, kind in known.items() if set(_required(kind)) <= {*SIZES}]
    usable = {spelling: other for other in accepted for spelling in (_plain_name(other), other.lower())}
    close = get_close_matches(str(name).lower().replace("_", ""), usable, 1)
    advice = f"did you mean {usable[close[0]]}?" if close else "use the name of a torchmetrics class, such as MulticlassAUROC"
    raise InputError(f"unknown metric '{name}': {advice}", code="unknown")


def _plain_name(name: str) -> str:
    return name.lower().replace("_", "").removeprefix("multiclass")


def _required(kind: type[Metric]) -> list[str]:
    """List the constructor's parameters without a default."""
    parameters = inspect.signature(kind).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def _built(name: str, inputs: Any) -> Metric:
    kind = _metric_class(name)
    needed = _required(kind)
    if unknown := [parameter for parameter in needed if parameter not in SIZES]:
        raise InputError(f"metric {name} needs {', '.join(unknown)}: use a class that works without, such as Multiclass{name}")
    try:
        metric = kind(**dict.fromkeys(needed, inputs[0].shape[-1])) if needed else kind()
        trial = metric.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of examples that are too few
            update_named(trial, *inputs)
            value = trial.compute()
    except (AttributeError, ImportError, IndexError, RuntimeError, TypeError, ValueError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"metric {name} does not work for this task: {reason}") from error
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise InputError(f"metric {name} is not one number: use another")
    return metric
