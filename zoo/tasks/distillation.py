"""Knowledge distillation: the probabilities of a trained network as soft targets for another."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import InputError, check_rules


def distillation_loss(logits: Tensor, targets: Tensor, temperature: float = 1.0, counted: Tensor | None = None) -> Tensor:
    r"""Return the loss of soft targets (Hinton, Vinyals and Dean 2015, section 2).

        T^2 KL(softmax(v / T) || softmax(z / T))

    with z the logits, v those of the teacher and T the temperature: the mean over all distributions. Its gradient is that of
    the cross entropy with the teacher's probabilities; the factor T^2 keeps its size when T changes.

    Args:
        logits: z, [..., C].
        targets: v, [..., C].
        temperature: T.
        counted: Which distributions count, bool [...]; None for all.

    Example:
        >>> distillation_loss(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 3.0]])).item()
        0.0
    """
    z, v = (x.float().div(temperature).log_softmax(-1) for x in (logits, targets))
    terms = F.kl_div(z, v, reduction="none", log_target=True).sum(-1) * temperature**2
    return terms.mean() if counted is None else (terms * counted).sum() / counted.sum()


class Distillation(Callback):
    """Train a task with the soft targets of a teacher beside its labels (Hinton, Vinyals and Dean 2015).

        loss = (1 - weight) cross entropy with the labels + weight `distillation_loss`

    The teacher is no part of the task: it is not trained, and neither saved nor exchanged between processes. Validation and
    test measure the labels alone. The task is one that learns by `SoftTargets`.

    Args:
        teacher: A trained network with the same inputs and outputs as that of the task. It is moved to where the task is.
        temperature: Temperature of both softmax functions; above 1, small probabilities of the teacher count more.
        weight: Share of the soft targets in the loss, from 0 to 1.

    Raises:
        InputError: If an option is out of range, or the task has no soft targets or other outputs than the teacher.

    Example:
        >>> Distillation(nn.Linear(4, 2), temperature=2.0).weight
        0.9
    """

    def __init__(self, teacher: nn.Module, temperature: float = 4.0, weight: float = 0.9) -> None:
        check_distillation(temperature, weight)
        if not isinstance(teacher, nn.Module):
            raise InputError(f"teacher={teacher!r:.60}: a teacher is a torch.nn.Module, such as zoo.load(RUN).net")
        self.teacher, self.temperature, self.weight = teacher, temperature, weight
        self.memory: list[Tensor] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move the teacher to where the task is, and let the task ask it."""
        check_distilled(type(pl_module))
        dtype = next((p.dtype for p in pl_module.parameters() if p.is_floating_point()), None)
        self.teacher.to(pl_module.device, dtype).eval().requires_grad_(False)
        self.memory = [part.to(pl_module.device) for part in self.memory]
        pl_module.distillation = self  # type: ignore[assignment]

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Empty the memory of the last epoch, for a teacher with one."""
        self.memory.clear()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the task as it was."""
        pl_module.distillation = None  # type: ignore[assignment]

    def state_dict(self) -> dict[str, Any]:
        """Return the memory of a teacher that has one, for a run that goes on within an epoch."""
        return {"memory": [part.clone() for part in self.memory]} if self.memory else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the memory."""
        self.memory = list(state_dict.get("memory", []))

    def __call__(self, loss: Tensor, logits: Tensor, inputs: Any, counted: Tensor | None = None) -> Tensor:
        """Mix the loss of the labels with that of the soft targets for the same inputs."""
        args = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
        with torch.no_grad():
            targets = self.teacher(*args, *([self.memory] if getattr(self.teacher, "has_memory", False) else []))
        if targets.shape != logits.shape:
            raise InputError(
                f"the teacher answers with {list(targets.shape[1:])}, and the network with {list(logits.shape[1:])}"
            )
        soft = distillation_loss(logits, targets, self.temperature, counted)
        return (1 - self.weight) * loss + self.weight * soft


class SoftTargets:
    """A task whose network answers with logits, so that it can learn from those of a teacher.

    Attributes:
        distillation: What asks the teacher while it trains, or None.
    """

    distillation: Distillation | None = None
    training: bool

    def distilled(self, loss: Tensor, logits: Tensor, inputs: Any, counted: Tensor | None = None) -> Tensor:
        """Return the loss to train with: that of the labels, or with a `Distillation` the mixture."""
        if self.distillation is None or not self.training:
            return loss
        return self.distillation(loss, logits, inputs, counted)


def check_distilled(task: type) -> None:
    """Refuse a task that has no soft targets."""
    if not issubclass(task, SoftTargets):
        raise InputError(
            f"the task {task.__name__} has no soft targets to learn from a teacher: classification and language do"
        )


def check_distillation(temperature: float, weight: float) -> None:
    """Check the options of `Distillation`."""
    check_rules(
        (temperature > 0, f"distillation.temperature={temperature}: use a number above 0, such as 4"),
        (0 <= weight <= 1, f"distillation.weight={weight} is a share of the loss: use a number from 0 to 1"),
    )
