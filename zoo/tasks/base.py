"""What every task shares: one step for all stages, the optimizer and the schedule."""

import difflib
import math
from typing import Any, ClassVar, NamedTuple

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import MetricCollection

from zoo.errors import InputError
from zoo.options import Optimizer, Schedule

SCHEDULES = ("cosine", "linear", "constant")


class Measured(NamedTuple):
    """The loss of a batch (a mean), and what its metrics read: predictions, targets and, by keyword, the rest."""

    loss: Tensor
    predictions: Tensor
    targets: Tensor
    extra: dict[str, Tensor] = {}  # noqa: RUF012 (never written to)


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
        loss, predictions, targets, extra = self.loss(batch)
        size = len(targets)
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
        optimizer = create_optimizer_v2(groups, opt=options.name, lr=options.lr, weight_decay=0.0)
        steps = int(self.trainer.estimated_stepping_batches)
        factor = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(self.schedule, step, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": factor, "interval": "step"}}


def undecayed(net: nn.Module) -> set[str]:
    """Name the parameters that a module of the network keeps from weight decay, by timm's ``no_weight_decay()``."""
    keepers: list[tuple[str, Any]] = [
        (name, module) for name, module in net.named_modules() if hasattr(module, "no_weight_decay")
    ]
    return {f"{name}.{own}" if name else own for name, module in keepers for own in module.no_weight_decay()}


def lr_factor(schedule: Schedule, step: int, steps: int) -> float:
    """Return the share of the peak learning rate at a step of that many.

    Example:
        >>> [round(lr_factor(Schedule("cosine", warmup=0.2), step, 10), 2) for step in (0, 1, 2, 6, 10)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warm = round(schedule.warmup * steps)
    if step < warm:
        return (step + 1) / warm
    done = min(1.0, (step - warm) / max(1, steps - warm))
    return {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "constant": 1.0}[schedule.name]


def check_schedule(schedule: Schedule) -> None:
    """Refuse an unknown schedule or a warm-up that is no share."""
    if schedule.name not in SCHEDULES:
        raise InputError(f"unknown schedule '{schedule.name}': use {', '.join(SCHEDULES)}")
    if not 0 <= schedule.warmup <= 1:
        raise InputError(f"schedule.warmup={schedule.warmup} is a share of all steps: use 0 to 1")


def check_optimizer(optimizer: Optimizer) -> None:
    """Refuse an optimizer that timm does not know, or numbers that cannot work."""
    from timm.optim import create_optimizer_v2, list_optimizers

    names = [str(name) for name in list_optimizers()]
    if optimizer.name not in names:
        close = difflib.get_close_matches(optimizer.name, names, n=3)
        hint = f": did you mean {', '.join(close)}?" if close else f": use one of timm's, such as {', '.join(names[:8])}"
        raise InputError(f"unknown optimizer '{optimizer.name}'{hint}")
    if optimizer.lr is None or not 0 < optimizer.lr < math.inf:
        raise InputError(f"optimizer.lr={optimizer.lr}: a learning rate is above zero")
    if not 0 <= optimizer.weight_decay < math.inf:
        raise InputError(f"optimizer.weight_decay={optimizer.weight_decay}: a decay is zero or more")
    try:
        create_optimizer_v2([torch.nn.Parameter(torch.zeros(2, 2))], opt=optimizer.name, lr=optimizer.lr)
    except (AssertionError, ImportError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"optimizer '{optimizer.name}' does not work here: {str(error) or type(error).__name__}") from error
