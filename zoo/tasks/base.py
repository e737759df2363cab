"""The base class of all tasks: training, validation and test steps, metrics, optimizer and learning rate schedule."""

import inspect
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, ClassVar, Self, TextIO

import torch
from lightning.pytorch import Callback, LightningModule
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from zoo.data.info import DataInfo, ImageInfo, ParallelInfo, TextInfo, VectorInfo
from zoo.errors import InputError
from zoo.tasks.inputs import Example, read_images, read_texts, read_vectors
from zoo.tasks.metrics import EvaluationScope, MeanLoss, StepOutput, even_states, named_metrics
from zoo.tasks.optimization import check_network, check_optimizer, check_schedule, lr_factor, make_optimizer


class Task(LightningModule):
    """A network with a loss and metrics; works with any Trainer, data loaders and callbacks.

    Subclasses define `step` and `default_metrics`; ``zoo fit`` and ``zoo predict`` also use the class attributes and methods
    below. Logs ``train_loss``, ``train_loss_step``, and per epoch ``{val,test}_loss`` and ``{val,test}_{metric}``. All keyword
    arguments are saved as hyperparameters; `load_from_checkpoint` needs only ``net`` in addition.

    Args:
        net: The network.
        lr: Peak learning rate.
        weight_decay: Weight decay of matrices; norms, biases and parameters in ``no_weight_decay()`` of a module have none.
        optimizer: Name of an optimizer of timm.
        betas: Coefficients of the running means of gradients and squared gradients; by default the optimizer's own.
        eps: Term added to the denominator for numerical stability; by default the optimizer's own.
        mup_base_width: Fan-in at which real matrices have the learning rate ``lr``; the rates of other matrices depend on
            their fan-in and algebra, see `zoo.tasks.optimization.mup_scales`. None uses the same rate everywhere.
        schedule: ``cosine``, ``linear``, ``constant`` or ``inverse_sqrt``, see `zoo.tasks.optimization.lr_factor`.
        warmup: Fraction of all steps in which the learning rate rises from zero to its peak.
        floor: Final learning rate of cosine and linear, as a fraction of the peak.
        metrics: Additional metrics: names of torchmetrics classes, such as MulticlassCalibrationError.

    Attributes:
        info_type: The `DataInfo` class that the task requires.
        inputs: The supported values of `DataInfo.inputs`.
        monitor: The validation metric that selects the best epoch, and ``min`` or ``max``.
        columns: Names of the texts of an example, for tasks on text.
        per_token: Whether the network returns outputs for every token of its last input instead of one for each example.
        has_soft_targets: Whether the network returns logits, and `step` calls `distilled`.
        next_commands: Pairs of a command to suggest after training, with ``{run}`` for the run folder, and its purpose.
        info: Facts about the data, set by `from_info`; `collate` and `prediction_rows` need it.
        tokenizer: The tokenizer of the data, for tasks on text.
        distillation: The `zoo.tasks.Distillation` callback of a run with a teacher, or None.
    """

    info_type: ClassVar[type[DataInfo]] = DataInfo
    inputs: ClassVar[tuple[str, ...]] = ()
    monitor: ClassVar[tuple[str, str]] = "val_loss", "min"
    columns: ClassVar[tuple[str, ...]] = ("text",)
    per_token: ClassVar[bool] = False
    has_soft_targets: ClassVar[bool] = False
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = ()
    info: Any = None
    tokenizer: Any = None
    distillation: Any = None

    def __init__(
        self,
        net: nn.Module,
        *,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        optimizer: str = "adamw",
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        mup_base_width: int | None = None,
        schedule: str = "cosine",
        warmup: float = 0.1,
        floor: float = 0.0,
        metrics: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(*type(self).options())
        type(self).check_options(**self.hparams)
        check_network(net, optimizer)
        self.net = net
        named = named_metrics(metrics or (), self.hparams.get("num_classes"))
        collection = MetricCollection({**self.default_metrics(), **named}, compute_groups=False)
        for stage in ("val", "test"):
            setattr(self, f"{stage}_loss", MeanLoss())
            setattr(self, f"{stage}_metrics", collection.clone(prefix=f"{stage}_"))

    @classmethod
    def options(cls) -> dict[str, inspect.Parameter]:
        """Return the keyword arguments of the constructor and of the base classes that it passes them to."""
        excluded = ("self", "net", "info", "tokenizer")
        options: dict[str, inspect.Parameter] = {}
        for kind in cls.__mro__:
            if "__init__" not in kind.__dict__:
                continue
            parameters = inspect.signature(kind.__dict__["__init__"]).parameters.values()
            named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
            options = {p.name: p for p in named if p.name not in excluded} | options
            if kind is Task or all(p.kind is not p.VAR_KEYWORD for p in parameters):
                break
        return options

    @classmethod
    def check_options(cls, **options: Any) -> None:
        """Check keyword arguments of the constructor; `InputError` if one is unknown or out of range."""
        known = cls.options()
        for name in options.keys() - known:
            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"leave it out (supported: {', '.join(known)})"
            raise InputError(f"task {cls.__name__} does not support the option {name}: {hint}", code="unknown")
        value = {name: p.default for name, p in known.items() if p.default is not p.empty} | options
        check_optimizer(value["optimizer"], *(value[name] for name in ("lr", "weight_decay", "betas", "eps", "mup_base_width")))
        check_schedule(value["schedule"], value["warmup"], value["floor"])
        if not 0 <= (smoothing := value.get("label_smoothing", 0.0)) < 1:
            raise InputError(f"label_smoothing={smoothing}: must be in [0, 1), such as 0.1")

    @classmethod
    def from_info(cls, net: nn.Module, info: Any, tokenizer: Any = None, **options: Any) -> Self:
        """Create the task for a data set; ``options`` override the keyword arguments from `data_options`."""
        cls.check_info(info)
        cls.check_options(**options)
        task = cls(net, **(cls.data_options(info) | options))
        task.info, task.tokenizer = info, tokenizer
        return task

    @classmethod
    def check_info(cls, info: Any) -> None:
        """Raise `InputError` if the task does not support a data set."""
        if cls.inputs and info.inputs not in cls.inputs:
            raise InputError(f"task {cls.__name__} supports {' or '.join(cls.inputs)} data, got {info.inputs}")

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the keyword arguments of the constructor that follow from the data, such as ``num_classes``."""
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

    def forward(self, *inputs: Any) -> Any:
        """Apply the network."""
        return self.net(*inputs)

    def outputs(self, inputs: Any) -> Tensor:
        """Apply the network to the inputs of a batch, a tensor or a tuple (which some versions of torch turn into a list)."""
        y: Tensor = self.net(*inputs) if isinstance(inputs, tuple | list) else self.net(inputs)
        return y

    def distilled(self, loss: Tensor, logits: Tensor, inputs: Any, counted: Tensor | None = None) -> Tensor:
        """Return the training loss: the given loss of the labels, combined with that of the soft targets of a teacher."""
        if self.distillation is None or not self.training:
            return loss
        return self.distillation(loss, logits, inputs, counted)  # type: ignore[no-any-return]

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
        self.measure("val", self.step(batch))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Update the test metrics with a batch."""
        self.measure("test", self.step(batch))

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Any:
        """Return the predictions for inputs or a batch ``(inputs, ...)``, [B, outputs]."""
        return self.outputs(batch[0] if isinstance(batch, (tuple, list)) else batch)

    def measure(self, stage: str, output: StepOutput) -> None:
        """Update the metrics of a stage; empty batches are ignored."""
        if size := output.num_terms:
            getattr(self, f"{stage}_loss").update(output.loss.detach(), size)
            getattr(self, f"{stage}_metrics").update(output.predictions, output.targets, **output.extra)

    def stage_metrics(self, stage: str) -> dict[str, Metric]:
        """Return the metrics of a stage by the names under which they are logged."""
        return {f"{stage}_loss": getattr(self, f"{stage}_loss"), **dict(getattr(self, f"{stage}_metrics").items())}

    def undefined(self, stage: str) -> dict[str, str]:
        """Return why metrics of the last evaluation are undefined (NaN), by name."""
        reasons = {name: getattr(metric, "reason", "") for name, metric in self.stage_metrics(stage).items()}
        return {name.removeprefix(f"{stage}_"): reason for name, reason in reasons.items() if reason}

    def configure_callbacks(self) -> list[Callback]:
        """Return the callback that caches matrices during evaluation."""
        return [EvaluationScope()]

    def on_validation_epoch_start(self) -> None:
        """Reset the validation metrics."""
        self.reset("val")

    def on_test_epoch_start(self) -> None:
        """Reset the test metrics."""
        self.reset("test")

    def on_validation_epoch_end(self) -> None:
        """Log the validation metrics."""
        self.log_metrics("val")

    def on_test_epoch_end(self) -> None:
        """Log the test metrics."""
        self.log_metrics("test")

    def reset(self, stage: str) -> None:
        """Reset the metrics of a stage."""
        for metric in self.stage_metrics(stage).values():
            metric.reset()

    def log_metrics(self, stage: str) -> None:
        """Log the metrics of a stage."""
        for name, metric in self.stage_metrics(stage).items():
            even_states(metric)
            self.log(name, metric, on_step=False, on_epoch=True, prog_bar=True)

    def configure_optimizers(self) -> Any:
        """Build the optimizer, without weight decay of norms and biases, and the learning rate schedule for each step."""
        h = self.hparams
        names = ("optimizer", "lr", "weight_decay", "betas", "eps", "mup_base_width")
        optimizer = make_optimizer(self.net, *(h[name] for name in names))
        steps = int(min(self.trainer.estimated_stepping_batches, sys.maxsize))  # infinite if max_epochs=-1
        factor = partial(lr_factor, steps=steps, schedule=h["schedule"], warmup=h["warmup"], floor=h["floor"])
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    @classmethod
    def read_inputs(
        cls, info: Any, inputs: Sequence[Any], stdin: TextIO | None = None, normalized: bool = False
    ) -> Iterator[Example]:
        """Yield examples from the inputs of a user: file names, texts, arrays or tensors; ``-`` is ``stdin``.

        By default, they are read as images, vectors or texts, depending on the class of ``info``. ``normalized``, passed only
        for images, tells whether floats are already normalized.
        """
        if isinstance(info, ImageInfo):
            return read_images(inputs, info, normalized)
        if isinstance(info, VectorInfo):
            return read_vectors(inputs, info)
        if isinstance(info, TextInfo | ParallelInfo):
            return read_texts(inputs, cls.columns, stdin, allow_empty=isinstance(info, ParallelInfo))
        raise InputError(
            f"task {cls.__name__} does not support zoo predict: call its predict_step in Python", code="unsupported"
        )

    def collate(self, examples: Sequence[Example]) -> Any:
        """Collate examples into a batch ``(inputs,)``: stacked tensors, token ids [B, L], or two such tensors for pairs."""
        if self.tokenizer is None:
            return (torch.stack([example.value for example in examples]),)
        columns = zip(*(example.value for example in examples), strict=True)
        tokens = [self.tokenizer.encode(column, lambda row: examples[row].location).padded() for column in columns]
        return (tokens[0] if len(tokens) == 1 else tuple(tokens),)

    def prediction_rows(self, examples: Sequence[Example], outputs: Any) -> list[dict[str, Any]]:
        """Return a row of JSON values for each example, from the output of `predict_step` for their batch."""
        raise NotImplementedError(f"{type(self).__name__}.prediction_rows: return a dict for each example")
