"""What comes next in a text."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection
from torchmetrics.text import Perplexity

from zoo.options import Optimizer, Schedule
from zoo.tasks.base import Measured, Task

UNITS = ("character", "byte")
REMEMBERED = "zoo_remembered"


class BitsPer(Metric):
    """Bits that a text takes per unit of it, whatever the tokens: the sum of -log2 p over its characters or bytes.

    Args:
        unit: ``character`` or ``byte``.
    """

    bits: Tensor
    units: Tensor

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.column = UNITS.index(unit)
        self.add_state("bits", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("units", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor, nats: Tensor, lengths: Tensor) -> None:
        """Add -ln p of the tokens, any shape, and the characters and bytes of their texts, [B, 2]; the rest is for others."""
        self.bits += nats.sum(dtype=self.bits.dtype) / math.log(2)
        self.units += lengths[:, self.column].sum()

    def compute(self) -> Tensor:
        """Return the bits per unit."""
        return self.bits / self.units


class NextPerplexity(Perplexity):
    """Perplexity of tokens, padding left out."""

    def __init__(self) -> None:
        super().__init__(ignore_index=0)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Read logits [B, L, V] and tokens [B, L]."""
        super().update(preds.float(), target)


class LanguageModel(Task):
    """Cross entropy of the next token in nats; perplexity per token, bits per character and per byte.

    A network with a memory (`zoo.backbones.generative.GenerativeModel`) is given it from batch to batch, in training and in
    measuring apart, and forgets at the beginning of a pass through the data.

    Args:
        net: From tokens [B, L] to logits [B, L, outputs].
        outputs: Tokens.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
        label_smoothing: Share of the probability that training spreads over all tokens.
    """

    def __init__(
        self, net: nn.Module, outputs: int, optimizer: Optimizer, schedule: Schedule, label_smoothing: float = 0.0
    ) -> None:
        metrics: dict[str, Any] = {"perplexity": NextPerplexity()}
        metrics |= {f"bits_per_{unit}": BitsPer(unit) for unit in UNITS}
        # Not in groups: in a text of ASCII alone the two units look like one state, until another letter comes.
        super().__init__(net, MetricCollection(metrics, compute_groups=False), optimizer, schedule)
        self.label_smoothing = label_smoothing
        self.memory: dict[bool, list[Tensor]] = {True: [], False: []}

    def answer(self, inputs: Any) -> Tensor:
        """Apply the network to tokens, [B, L]."""
        if not getattr(self.net, "has_memory", False):
            return super().answer(inputs)
        y: Tensor = self.net(inputs, self.memory[self.training])
        return y

    def loss(self, batch: tuple[Tensor, Tensor, Tensor]) -> Measured:
        """Return the cross entropy of a batch (tokens, targets, lengths), and what the metrics read."""
        tokens, targets, lengths = batch
        logits = self.answer(tokens)
        if self.training:
            smoothed = F.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=0, label_smoothing=self.label_smoothing
            )
            return Measured(smoothed, logits.detach(), targets)
        nats = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=0, reduction="none")
        count = (targets != 0).sum()
        extra = {"nats": nats.detach(), "lengths": lengths}
        return Measured(nats.sum() / count, logits.detach(), targets, extra, int(count))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what is remembered for a run that goes on in the middle of an epoch."""
        if self.memory[True]:
            checkpoint[REMEMBERED] = [part.clone() for part in self.memory[True]]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remember it again."""
        self.memory[True][:] = checkpoint.get(REMEMBERED, [])

    def on_train_start(self) -> None:
        """Bring what a checkpoint remembered to where the network is."""
        self.memory[True][:] = [part.to(self.device) for part in self.memory[True]]

    def on_train_epoch_start(self) -> None:
        """Forget what the last epoch ended with."""
        self.memory[True].clear()

    def on_validation_epoch_start(self) -> None:
        """Forget what was measured before."""
        self.memory[False].clear()

    def on_test_epoch_start(self) -> None:
        """Forget what was measured before."""
        self.memory[False].clear()

    def on_predict_epoch_start(self) -> None:
        """Forget what was measured before."""
        self.memory[False].clear()
