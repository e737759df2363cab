"""What every task shares: one step for all stages, the optimizer and the schedule."""

import sys
from typing import Any, ClassVar, NamedTuple

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import MetricCollection

from zoo.options import Optimizer, Schedule
from zoo.tasks.optimizer import check_optimizer, extra, undecayed
from zoo.tasks.schedule import check_schedule, lr_factor


class Measured(NamedTuple):
    """The loss of a batch (a mean), and what its metrics read: predictions, targets and, by keyword, the rest.

    The loss is a mean over ``size`` things, by default one for each target.
    """

    loss: Tensor
    predictions: Tensor
    targets: Tensor
    extra: dict[str, Tensor] = {}  # noqa: RUF012 (never written to)
    size: int | None = None


class Task(LightningModule):
    """A network, a loss and metrics; a subclass says what the loss of a batch is.

    Logs ``{stage}_loss`` and ``{stage}_{metric}`` per epoch, for the stages train (loss only), val and test.

    Args:
        net: The network.
        metrics: What to measure on predictions and targets.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.

    Attributes:
        monitor: The validation value that tells which epoch was best, and whether ``min`` or ``max`` is.

    Raises:
        InputError: If the optimizer or the schedule is unknown, or a number is out of range.
    """

    monitor: ClassVar[tuple[str, str]] = "val_loss", "min"

    def __init__(self, net: nn.Module, metrics: MetricCollection, optimizer: Optimizer, schedule: Schedule) -> None:
        super().__init__()
        check_optimizer(optimizer)
        check_schedule(schedule)
        self.net, self.optimizer_options, self.schedule = net, optimizer, schedule
        self.val_metrics, self.test_metrics = metrics.clone(prefix="val_"), metrics.clone(prefix="test_")

    def loss(self, batch: Any) -> Measured:
        """Return the loss of a batch and what its metrics read."""
        raise NotImplementedError

    def forward(self, *inputs: Any) -> Any:
        """Apply the network."""
        return self.net(*inputs)

    def answer(self, inputs: Any) -> Tensor:
        """Apply the network to the inputs of a batch: one, or several, of which some versions of torch make a list."""
        y: Tensor = self.net(*inputs) if isinstance(inputs, (tuple, list)) else self.net(inputs)
        return y

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the answers to a batch (inputs, ...), [B, outputs]."""
        return self.answer(batch[0] if isinstance(batch, (tuple, list)) else batch)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss to descend."""
        return self._step("train", batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Measure a validation batch."""
        self._step("val", batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Measure a test batch."""
        self._step("test", batch)

    def _step(self, stage: str, batch: Any) -> Tensor:
        loss, predictions, targets, extra, size = self.loss(batch)
        size = len(targets) if size is None else size
        self.log(
            f"{stage}_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=size, sync_dist=stage != "train"
        )
        if stage != "train":
            metrics: MetricCollection = getattr(self, f"{stage}_metrics")
            metrics.update(predictions, targets, **extra)
            self.log_dict(metrics, on_step=False, on_epoch=True, prog_bar=True, batch_size=size)
        return loss

    def configure_optimizers(self) -> Any:
        """Build the optimizer, with no decay on norms and biases, and a schedule that moves every step."""
        from timm.optim import create_optimizer_v2, param_groups_weight_decay

        options = self.optimizer_options
        groups = param_groups_weight_decay(self.net, options.weight_decay, no_weight_decay_list=undecayed(self.net))
        optimizer = create_optimizer_v2(groups, opt=options.name, lr=options.lr, weight_decay=0.0, **extra(options))
        steps = int(min(self.trainer.estimated_stepping_batches, sys.maxsize))  # of a run without an end it is infinite
        factor = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(self.schedule, step, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": factor, "interval": "step"}}
