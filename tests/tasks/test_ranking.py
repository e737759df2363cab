"""Ranking metrics against their definitions, with questions spread over batches."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from zoo.tasks import AnswerRanking

# Question 0 has right answers at ranks 1 and 3 of four, question 1 at rank 2 of three, question 2 at rank 3 of three, and
# question 3 none. (question, label, score), in no order.
ROWS = [(1, 0, 0.9), (0, 1, 0.3), (2, 0, 0.5), (0, 0, 0.1), (3, 0, 0.8), (0, 1, 0.7), (1, 1, 0.6), (2, 0, 0.4)]
ROWS += [(0, 0, 0.5), (1, 0, 0.2), (2, 1, 0.1), (3, 0, 0.2)]


class Scores(nn.Module):
    """The question is ignored; the answer is its own score."""

    def forward(self, question, answer):
        return torch.stack([torch.zeros(len(answer)), answer[:, 0]], -1)


def batches(rows, size: int):
    groups, labels, scores = (torch.tensor(column) for column in zip(*rows, strict=True))
    parts = [slice(start, start + size) for start in range(0, len(rows), size)]
    return [((torch.ones(len(labels[p]), 1), scores[p, None]), labels[p], groups[p]) for p in parts]


def loader(rows, size: int = 5) -> DataLoader:
    return DataLoader(batches(rows, size), batch_size=None, collate_fn=lambda batch: batch)


@pytest.mark.parametrize("stage", ["val", "test"])
@pytest.mark.parametrize("size", [1, 5, 12])
def test_metrics_do_not_depend_on_batches(measured, size, stage):
    found = measured(AnswerRanking(Scores()), loader(ROWS, size), stage)
    expected = {"map": ((1 + 2 / 3) / 2 + 1 / 2 + 1 / 3) / 3, "mrr": (1 + 1 / 2 + 1 / 3) / 3, "top1": 1 / 3}
    (inputs, labels, _) = batches(ROWS, len(ROWS))[0]
    expected["loss"] = F.cross_entropy(Scores()(*inputs), labels).item()
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_loss_is_the_cross_entropy_of_each_answer_and_has_a_gradient():
    net = nn.Bilinear(3, 3, 2)
    a, b, labels = torch.randn(4, 3), torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    measured = AnswerRanking(net).step(((a, b), labels, torch.tensor([3, 3, 4, 4])))
    assert measured.loss.item() == pytest.approx(-net(a, b).log_softmax(-1)[torch.arange(4), labels].mean().item(), abs=1e-6)
    assert torch.equal(measured.predictions, net(a, b).softmax(-1)[:, 1])
    assert not measured.predictions.requires_grad
    assert measured.extra["indexes"].tolist() == [3, 3, 4, 4]
    measured.loss.backward()
    assert net.weight.grad.abs().sum() > 0
