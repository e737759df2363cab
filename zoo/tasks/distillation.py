"""Knowledge distillation: train a network on the soft targets of another."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import InputError
from zoo.tasks.options import DistillationOptions


def distillation_loss(logits: Tensor, targets: Tensor, temperature: float = 1.0, counted: Tensor | None = None) -> Tensor:
    r"""Return the mean loss of soft targets (Hinton, Vinyals and Dean 2015, section 2).

        T^2 KL(softmax(v / T) || softmax(z / T))

    The gradient is that of the cross entropy with the teacher's probabilities; T^2 makes its size independent of T.

    The logits z and those of the teacher v are [..., C]; ``counted`` is a mask of the distributions in the mean, bool [...].

    Example:
        >>> distillation_loss(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 3.0]])).item()
        0.0
    """
    z, v = (x.float().div(temperature).log_softmax(-1) for x in (logits, targets))
    terms = F.kl_div(z, v, reduction="none", log_target=True).sum(-1) * temperature**2
    return terms.mean() if counted is None else (terms * counted).sum() / counted.sum()


class Distillation(Callback):
    """Train a task with the soft targets of a teacher in addition to its labels (Hinton, Vinyals and Dean 2015).

        loss = (1 - weight) cross entropy with the labels + weight `distillation_loss`

    The teacher is not part of the task: it is not trained, saved or synchronized between processes. Validation and test use
    the labels only. The task must have `has_soft_targets`.

    Args:
        teacher: A trained network with the same inputs and outputs as the network of the task. It is moved to its device and
            set to evaluation mode; its parameters are not frozen, so that it can be trained later.
        temperature: Temperature of both softmax functions; above 1, small probabilities of the teacher count more.
        weight: Weight of the soft targets in the loss, in [0, 1].

    Example:
        >>> Distillation(nn.Linear(4, 2), temperature=2.0).weight
        0.9
    """

    def __init__(self, teacher: nn.Module, temperature: float = 4.0, weight: float = 0.9) -> None:
        options = DistillationOptions(temperature, weight)
        self.teacher, self.temperature, self.weight = teacher, options.temperature, options.weight
        self.memory: list[Tensor] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move the teacher to the device of the task, and attach the callback to the task."""
        check_distilled(type(pl_module))
        if self.teacher is getattr(pl_module, "net", None):
            raise InputError("the teacher is the network of the task itself: use a copy, copy.deepcopy(net)", code="conflict")
        dtype = next((p.dtype for p in pl_module.parameters() if p.is_floating_point()), None)
        self.teacher.to(pl_module.device, dtype).eval()
        self.memory = [part.to(pl_module.device) for part in self.memory]
        pl_module.distillation = self  # type: ignore[assignment]

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Clear the memory of a teacher that has one."""
        self.memory.clear()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Detach the callback from the task."""
        pl_module.distillation = labels_only  # type: ignore[assignment]

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Detach the callback from the task: Lightning does not call `teardown` after an interruption."""
        pl_module.distillation = labels_only  # type: ignore[assignment]

    def state_dict(self) -> dict[str, Any]:
        """Return the memory of the teacher, to resume within an epoch."""
        return {"memory": [part.clone() for part in self.memory]} if self.memory else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the memory."""
        self.memory = list(state_dict.get("memory", []))

    def __call__(self, loss: Tensor, logits: Tensor, inputs: object, counted: Tensor | None = None) -> Tensor:
        """Combine the loss of the labels with the loss of the soft targets for the same inputs."""
        args = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
        with torch.no_grad():
            targets = self.teacher(*args, *([self.memory] if getattr(self.teacher, "has_memory", False) else []))
        soft = distillation_loss(logits, targets, self.temperature, counted)
        return (1 - self.weight) * loss + self.weight * soft


def labels_only(loss: Tensor, logits: Tensor, inputs: object, counted: Tensor | None = None) -> Tensor:
    """Return the loss of the labels: the place of a `Distillation` in a task without a teacher."""
    return loss


def check_distilled(task: Any) -> None:
    """Raise `InputError` if a task does not support distillation."""
    if not getattr(task, "has_soft_targets", False):
        raise InputError(
            f"task {task.__name__} does not support distillation: use a classification or language model task",
            code="unsupported",
        )
