"""The base class of all tasks: training, validation and test steps, metrics, optimizer and learning rate schedule."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from functools import partial, wraps
from inspect import Parameter, currentframe
from types import FrameType
from typing import Any, ClassVar, Self

import torch
from lightning.pytorch import Callback, LightningModule
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from zoo.data.info import DataInfo
from zoo.errors import InputError
from zoo.registry.resolution import Signature, check_option, evaluated_signature, forwarded
from zoo.tasks.distillation import labels_only
from zoo.tasks.metrics import Evaluation, StageMetrics, StepOutput, named_metrics
from zoo.tasks.optimization import check_network, check_optimizer, lr_factor, make_optimizer
from zoo.tasks.options import Optimizer, Schedule


class Task(LightningModule):
    """A network with a loss and metrics; works with any Trainer, data loaders and callbacks.

    Subclasses define `step` and `default_metrics`; ``zoo fit`` also uses the class attributes and methods below, and ``zoo
    predict`` the functions of `zoo.inference.predictions`. Logs ``train_loss``, ``train_loss_step``, and per epoch
    ``{val,test}_loss`` and ``{val,test}_{metric}``. All keyword arguments are saved as hyperparameters; `load_from_checkpoint`
    needs only ``net`` in addition.

    Args:
        net: The network.
        optimizer: An `Optimizer`, a spec such as ``"sgd(lr=0.1)"``, or options by name. Norms, biases and the parameters in
            ``no_weight_decay()`` of a module have no weight decay.
        schedule: A `Schedule`, a spec, or options by name.
        metrics: Additional metrics: names of torchmetrics classes, such as MulticlassCalibrationError.

    Attributes:
        info_type: The `DataInfo` class that the task requires.
        inputs: The supported values of `DataInfo.inputs`.
        monitor: The validation metric that selects the best epoch, and ``min`` or ``max``.
        columns: Names of the texts of an example, for tasks on text.
        per_token: Whether the network returns outputs for every token of its last input instead of one for each example.
        has_soft_targets: Whether the network returns logits, and `step` calls `distillation`.
        pipeline_tag: The Hugging Face Hub's name of the task, for model cards.
        next_commands: Pairs of a command to suggest after training, with ``{run}`` for the run folder, and its purpose.
        info: Facts about the data, set by `from_info`; predictions need it.
        tokenizer: The tokenizer of the data, for tasks on text.
        distillation: Combines the loss of the labels with that of a teacher, see `zoo.tasks.Distillation`. In training, `step`
            calls it with the loss, the logits, the inputs, and for tokens a mask of those in the loss.
        val_metrics, test_metrics: The `StageMetrics` of validation and test.
    """

    info_type: ClassVar[type[DataInfo]] = DataInfo
    inputs: ClassVar[tuple[str, ...]] = ()
    monitor: ClassVar[tuple[str, str]] = "val_loss", "min"
    columns: ClassVar[tuple[str, ...]] = ("text",)
    per_token: ClassVar[bool] = False
    has_soft_targets: ClassVar[bool] = False
    pipeline_tag: ClassVar[str | None] = None
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = ()
    info: Any = None
    tokenizer: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Show the options of the base class in the signature of a subclass that passes its ``**options`` to it."""
        super().__init_subclass__(**options)
        kinds = [kind for kind in cls.__mro__ if "__init__" in vars(kind)]
        form = evaluated_signature(Task)
        for kind in reversed(kinds[: kinds.index(Task)]):  # also mixins, which are no tasks
            own = evaluated_signature(kind.__init__)  # type: ignore[misc]
            named = [p for p in list(own.parameters.values())[1:] if p.kind is not Parameter.VAR_POSITIONAL]
            form = forwarded(own.replace(parameters=named), form.parameters.values())
        cls.__signature__ = form  # type: ignore[attr-defined]
        if "configure_callbacks" in vars(cls):
            cls.configure_callbacks = _with_evaluation(cls.configure_callbacks)  # type: ignore[assignment]

    def __init__(
        self,
        net: nn.Module,
        *,
        optimizer: Optimizer | Mapping[str, Any] | str = Optimizer(),  # noqa: B008 (frozen)
        schedule: Schedule | Mapping[str, Any] | str = Schedule(),  # noqa: B008 (frozen)
        metrics: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.optimizer: Optimizer = check_option("optimizer", Optimizer, optimizer)
        self.schedule: Schedule = check_option("schedule", Schedule, schedule)
        metrics = check_option("metrics", tuple[str, ...], metrics)
        check_optimizer(self.optimizer)
        check_network(net, self.optimizer.name)
        form = task_signature(type(self))
        self.save_hyperparameters(*form.parameters)
        checked = {name: _plain(value) for name, value in form.check(self.hparams).items()}
        self.save_hyperparameters(checked, frame=_outermost())  # in this frame it does not compare them with the arguments
        self.net = net
        self.distillation: Callable[..., Tensor] = labels_only
        named = named_metrics(metrics, self.hparams.get("num_classes"))
        collection = MetricCollection({**self.default_metrics(), **named}, compute_groups=False)
        self.val_metrics, self.test_metrics = StageMetrics("val", collection), StageMetrics("test", collection)

    @classmethod
    def from_info(cls, net: nn.Module, info: Any, tokenizer: Any = None, **options: Any) -> Self:
        """Create the task for a data set; ``options`` override the keyword arguments from `data_options`."""
        if cls.inputs and info.inputs not in cls.inputs:
            raise InputError(f"task {cls.__name__} supports {' or '.join(cls.inputs)} data, got {info.inputs}")
        task = cls(net, **task_signature(cls).check(cls.data_options(info) | options))
        task.info, task.tokenizer = info, tokenizer
        return task

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the keyword arguments of the constructor that follow from the data, such as ``num_classes``.

        Raises:
            InputError: If the task does not support the data.
        """
        return {}

    @classmethod
    def num_outputs(cls, info: Any) -> int:
        """Return the output size of the network per example or (`per_token`) token: the single value of `data_options`."""
        sizes = list(cls.data_options(info).values())
        if len(sizes) != 1:
            raise NotImplementedError(f"{cls.__name__}.num_outputs: return the output size of the network")
        return int(sizes[0])

    def step(self, batch: Any) -> StepOutput:
        """Return the loss of a batch and the inputs of its metrics."""
        raise NotImplementedError(f"{type(self).__name__}.step: return StepOutput(loss, predictions, targets)")

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return the metrics by name; their ``update`` gets predictions, targets and extra keywords of `StepOutput`."""
        return {}

    def forward(self, *inputs: Any) -> Tensor:
        """Apply the network to the inputs of a batch: tensors, or one tuple (which some versions of torch turn into a list)."""
        if len(inputs) == 1 and isinstance(inputs[0], tuple | list):
            (inputs,) = inputs
        y: Tensor = self.net(*inputs)
        return y

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the training loss of a batch; `InputError` if batch norm gets a single value per channel."""
        try:
            output = self.step(batch)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):  # torch raises no specific class
                raise
            text = "batch norm needs more than one value per channel: use a batch size of 2 or more, or larger images"
            raise InputError(text) from error
        loss, size = output.loss, output.num_terms
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=size, sync_dist=True)
        self.log("train_loss_step", loss, on_step=True, on_epoch=False, batch_size=size)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Update the validation metrics with a batch."""
        self.val_metrics.update(self.step(batch))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Update the test metrics with a batch."""
        self.test_metrics.update(self.step(batch))

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Any:
        """Return the predictions for inputs or a batch ``(inputs, ...)``, [B, outputs]."""
        return self(batch[0] if isinstance(batch, (tuple, list)) else batch)

    def configure_callbacks(self) -> list[Callback]:
        """Return the callback that logs the metrics and caches matrices during evaluation."""
        return [Evaluation()]

    def configure_optimizers(self) -> Any:
        """Build the optimizer and the learning rate schedule for each step."""
        optimizer = make_optimizer(self.net, self.optimizer)
        steps = int(min(self.trainer.estimated_stepping_batches, sys.maxsize))  # infinite if max_epochs=-1
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(lr_factor, steps=steps, schedule=self.schedule))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    @property
    def lr(self) -> float | None:
        """The peak learning rate, which Lightning's `LearningRateFinder` sets."""
        return self.optimizer.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.optimizer = replace(self.optimizer, lr=value)
        self.hparams["optimizer"] = _plain(self.optimizer)


def task_signature(kind: type[Task]) -> Signature:
    """Return the options of a task: the arguments of its class without the network and the tokenizer."""
    form = Signature.of(f"task {kind.__name__}", kind, (None,))
    return replace(
        form, parameters={name: p for name, p in form.parameters.items() if name not in ("net", "info", "tokenizer")}
    )


def check_task(kind: type[Task], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a task as values of their types, before there are data; `InputError` if one is unknown or invalid."""
    form = task_signature(kind)
    return form.check(options, [name for name, p in form.parameters.items() if p.default is Parameter.empty])


def _with_evaluation(configure: Callable[[Any], Any]) -> Callable[[Any], list[Callback]]:
    """Return a ``configure_callbacks`` that adds the callback which logs the metrics."""

    @wraps(configure)
    def called(task: Any) -> list[Callback]:
        given = configure(task)
        callbacks = list(given) if isinstance(given, list | tuple) else [given]
        return callbacks if any(isinstance(callback, Evaluation) for callback in callbacks) else [*callbacks, Evaluation()]

    return called


def _outermost() -> FrameType | None:
    frame = currentframe()
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _plain(value: Any) -> Any:
    """Return a value as hyperparameters in checkpoints and YAML store it."""
    if is_dataclass(value):
        return {name: _plain(item) for name, item in vars(value).items()}
    return list(value) if isinstance(value, tuple) else value
