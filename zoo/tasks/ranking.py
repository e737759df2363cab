"""Candidate answers of a question, ranked by how probable each is to be right."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.retrieval import RetrievalMAP, RetrievalMRR, RetrievalPrecision

from zoo.options import Optimizer, Schedule
from zoo.tasks.base import Measured, Task


class Ranking(Task):
    """Cross entropy on right or wrong; mean average precision, mean reciprocal rank and whether the first answer is right.

    As in answer selection (Tay et al. 2019, section 4.1): every pair of question and answer is classified by itself, and the
    answers of a question are ranked by the probability of being right. Questions without a right answer do not count.

    Args:
        net: From questions and answers, tokens [B, L] and [B, M], to logits [B, 2], the second of them for a right answer.
        outputs: Logits, 2.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
    """

    monitor = "val_map", "max"

    def __init__(self, net: nn.Module, outputs: int, optimizer: Optimizer, schedule: Schedule) -> None:
        metrics: dict[str, Any] = {
            "map": RetrievalMAP("skip"),
            "mrr": RetrievalMRR("skip"),
            "top1": RetrievalPrecision("skip", top_k=1),
        }
        super().__init__(net, MetricCollection(metrics), optimizer, schedule)

    def loss(self, batch: tuple[tuple[Tensor, Tensor], Tensor, Tensor]) -> Measured:
        """Return the cross entropy in nats of a batch (inputs, labels, questions), and what ranks its answers."""
        inputs, labels, questions = batch
        logits = self.answer(inputs)
        return Measured(F.cross_entropy(logits, labels), logits.detach().softmax(-1)[:, 1], labels, {"indexes": questions})

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return how probably each answer is right, [B]."""
        return super().predict_step(batch, batch_idx).softmax(-1)[:, 1]
