"""A text in answer to a text."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassExactMatch
from torchmetrics.text import CHRFScore, SacreBLEUScore

from zoo.data.parallel.encoding import encode
from zoo.data.text.tokens import BEGIN, END, UNKNOWN
from zoo.errors import InputError
from zoo.options import Decoding, Optimizer, Schedule
from zoo.tasks.base import Measured, Task
from zoo.tasks.decoding import write
from zoo.tasks.decoding.filters import allowed


class BLEU(SacreBLEUScore):
    """BLEU in per cent, by sacreBLEU's rules with the tokenizer 13a (Post 2018)."""

    def compute(self) -> Tensor:
        """Return the score."""
        return 100 * super().compute()


class CHRF(CHRFScore):
    """The character F-score chrF++ in per cent (Popovic 2017)."""

    def compute(self) -> Any:
        """Return the score."""
        return 100 * super().compute()


class Seq2Seq(Task):
    """Cross entropy of the next token in nats; the share of texts that are right as a whole; for written texts BLEU and chrF.

    Validation gives the network each target up to the token in question. A text that is right so is what greedy decoding would
    write, so its ``exact_match`` is that of greedy decoding. Testing writes every text, as ``decoding`` says, and compares.

    Args:
        net: From sources [B, S] and targets so far [B, T] to logits [B, T, outputs].
        outputs: Tokens.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
        label_smoothing: Share of the probability that training spreads over all tokens (Vaswani et al. 2017: 0.1).

    Attributes:
        decoding: How texts are written when testing.
    """

    def __init__(
        self, net: nn.Module, outputs: int, optimizer: Optimizer, schedule: Schedule, label_smoothing: float = 0.1
    ) -> None:
        metrics: dict[str, Any] = {"exact_match": MulticlassExactMatch(outputs, ignore_index=0, validate_args=False)}
        super().__init__(net, MetricCollection(metrics), optimizer, schedule)
        self.label_smoothing, self.decoding = label_smoothing, Decoding()
        self.bleu, self.chrf, self.right = BLEU(), CHRF(), MeanMetric()

    def loss(self, batch: tuple[tuple[Tensor, Tensor], Tensor, Tensor]) -> Measured:
        """Return the cross entropy of a batch (inputs, targets, rows), and what the metrics read."""
        inputs, targets, _ = batch
        logits = self.answer(inputs)
        smoothing = self.label_smoothing if self.training else 0.0
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=0, label_smoothing=smoothing)
        if self.training:
            return Measured(loss, logits.detach(), targets)
        written = allowed(logits.detach().flatten(0, 1), END).argmax(-1).view_as(targets)  # as decoding chooses
        return Measured(loss, written, targets, size=int((targets != 0).sum()))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Write the answers to a batch and compare them with what was wanted."""
        measured, data = self.loss(batch), self.trainer.datamodule  # type: ignore[attr-defined]
        (source, _), _, rows = batch
        written = [data.tokenizer.decode(answer) for answer in self.write(source, data.tokenizer.max_length)]
        references = data.references("test", rows.cpu())
        for metric in (self.bleu, self.chrf):
            metric.update(written, [[text] for text in references])
        # The targets of the batch may be cut. Nobody can write what no token stands for.
        wanted = list(encode(references, data.tokenizer.limited(None)))
        same = [UNKNOWN not in one and text == data.tokenizer.decode(one) for text, one in zip(written, wanted, strict=True)]
        self.right.update(torch.tensor(same, dtype=torch.float32))
        self.log("test_loss", measured.loss, batch_size=measured.size, sync_dist=True)
        found = {"test_exact_match": self.right, "test_bleu": self.bleu, "test_chrf": self.chrf}
        self.log_dict(found, on_step=False, on_epoch=True, batch_size=len(rows))

    def write(self, source: Tensor, longest: int) -> list[list[int]]:
        """Write an answer to each source, [B, S], of ``longest`` tokens at most unless the options say: token numbers."""
        net: Any = self.net
        begin = source.new_full((len(source), 1), BEGIN)
        return write(net, begin, source=source, options=within(self.decoding, net, longest), end=END)


def within(options: Decoding, net: Any, longest: int) -> Decoding:
    """Let answers be no longer than any text the network has read, unless the user gives another length."""
    most = room(options, net)
    return replace(options, length=longest if most is None else most) if options.length is None else options


def room(options: Decoding, net: Any) -> int | None:
    """Return how many tokens an answer may have for which the network has positions; None if there is no limit.

    Raises:
        InputError: If the user wants longer ones.
    """
    most = getattr(net, "max_length", None)
    if most is None:
        return None
    if options.length is not None and options.length >= most:
        raise InputError(f"length={options.length}: this network has positions for answers of {most - 1} tokens")
    return int(most) - 1
