"""Quantization-aware training: train the weights that the quantized network has."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from zoo.conversion.quantization import BITS, RoundedWeights
from zoo.errors import InputError
from zoo.training.folder import finite


class QuantizationAware(Callback):
    r"""Train and validate a task with the rounded weights of `zoo.quantize`, and update the weights before rounding.

        w <- w - lr dL/dv at v = s q

    for the integers q and scales s of w: the straight-through estimator (Bengio, Leonard and Courville 2013), in the form of
    Courbariaux, Bengio and David (2015, Algorithm 1). Scales follow from the largest numbers, so that none is clipped. Weights
    are rounded before the forward pass and restored after the backward pass: the optimizer, moving averages and checkpoints
    have the weights before rounding, and `zoo.quantize` of them returns the network that was validated.

    Args:
        format: ``int8`` or ``int4``.
    """

    def __init__(self, format: str) -> None:
        self.bits = BITS[format]
        self.weights = RoundedWeights(nn.Identity(), self.bits)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check that Lightning calls the optimizer, and collect the weights."""
        if not pl_module.automatic_optimization:
            raise InputError("quantize_aware: manual optimization is not supported", code="unsupported")
        self.on_train_start(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Collect the weights; a finder that an error has ended may have left rounded ones."""
        self.weights = RoundedWeights(pl_module.net, self.bits)  # type: ignore[arg-type]

    def _round(self, *_: object, **__: object) -> None:
        self.weights.round()

    def _restore(self, *_: object, **__: object) -> None:
        self.weights.restore()

    # Moving averages swap weights before the first batch of a validation, and swap back after this callback at its end.
    on_train_batch_start = on_validation_batch_start = _round
    on_after_backward = on_train_batch_end = on_validation_epoch_end = on_exception = _restore


def evaluate_quantized(trainer: Trainer, task: Any, data: object, format: str) -> dict[str, Any]:
    """Return the format and the test metrics of a task with rounded weights; they are not logged."""
    weights, loggers = RoundedWeights(task.net, BITS[format]), trainer.loggers
    trainer.loggers = []
    weights.round()
    try:
        measured = trainer.test(task, data, verbose=False)
    finally:
        weights.restore()
        trainer.loggers = loggers
    return {"format": format, "metrics": {name.removeprefix("test_"): finite(value) for name, value in measured[0].items()}}
