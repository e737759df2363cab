"""Quantization-aware training: train the weights that the quantized network has."""

from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from zoo.conversion.quantization import BITS, RoundedWeights
from zoo.errors import InputError


class QuantizationAware(Callback):
    r"""Train and validate a task with the rounded weights of `zoo.quantize`, and update the weights before rounding.

        w <- w - lr dL/dv at v = s q

    for the integers q and scales s of w: the straight-through estimator (Bengio, Leonard and Courville 2013), in the form of
    Courbariaux, Bengio and David (2015, Algorithm 1). Scales follow from the largest numbers, so that none is clipped. Weights
    are rounded before the forward pass and restored after the backward pass: the optimizer, moving averages and checkpoints
    have the weights before rounding; a model folder has the rounded ones, see `rounded`.

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


@contextmanager
def rounded(net: nn.Module, format: str | None) -> Iterator[None]:
    """Give a network in a block the weights with which `QuantizationAware` validates it; without a format change nothing."""
    weights = None if format is None else RoundedWeights(net, BITS[format])
    if weights is not None:
        weights.round()
    try:
        yield
    finally:
        if weights is not None:
            weights.restore()
