"""Losses and metrics of classification, ranking and regression against scikit-learn and their definitions."""

import math

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.errors import raises
from zoo.errors import InputError
from zoo.tasks import AnswerRanking, Classification, Regression
from zoo.tasks.metrics import named_metrics


def task_of(classes: int) -> Classification:
    """A task whose network is the identity: its inputs are the logits."""
    return Classification(nn.Identity(), classes)


def loader(logits, labels) -> DataLoader:
    """Batches of unequal size."""
    return DataLoader(TensorDataset(logits, labels), batch_size=16)


def draw(classes: int, count: int = 103, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=random)
    return torch.randn(count, classes, generator=random) + nn.functional.one_hot(labels, classes), labels


@pytest.mark.parametrize("stage", ["val", "test"])
@pytest.mark.parametrize("classes", [2, 10])
def test_metrics_equal_those_of_scikit_learn(measured, classes, stage):
    logits, labels = draw(classes)
    metrics = measured(task_of(classes), loader(logits, labels), stage)
    predicted, probabilities = logits.argmax(-1), logits.double().softmax(-1)
    expected = {
        "loss": log_loss(labels, probabilities),
        "accuracy": accuracy_score(labels, predicted),
        "f1": f1_score(labels, predicted, average="macro"),
    }
    if classes == 2:
        expected["auroc"] = roc_auc_score(labels, probabilities[:, 1])
    assert metrics == pytest.approx(expected, abs=1e-6)


EVERY = ("MulticlassAUROC", "MulticlassAccuracy", "MulticlassAveragePrecision", "MulticlassRecall", "MulticlassHammingDistance")
TWO = ("MulticlassMatthewsCorrCoef", "MulticlassCohenKappa", "MulticlassF1Score", "MulticlassJaccardIndex")
TWO += ("MulticlassPrecision", "MulticlassSpecificity")
DEFINED = ("MulticlassCalibrationError", "MulticlassHingeLoss")
FOR_NUMBERS = (
    "R2Score",
    "ExplainedVariance",
    "RelativeSquaredError",
    "PearsonCorrCoef",
    "SpearmanCorrCoef",
    "ConcordanceCorrCoef",
)


def snake(name: str) -> str:
    return next(iter(named_metrics([name], 3 if name.startswith("Multi") else None)))


@pytest.mark.parametrize("stage", ["val", "test"])
def test_metrics_of_one_class_are_undefined(measured, stage, recwarn):
    logits, _ = draw(2, 40)
    task = Classification(nn.Identity(), 2, metrics=[*EVERY, *TWO, *DEFINED])
    found = measured(task, loader(logits, torch.ones(40, dtype=torch.int64)), stage)
    undefined = {"auroc", "f1", *map(snake, (*EVERY, *TWO))}
    assert {name for name, value in found.items() if math.isnan(value)} == undefined
    assert getattr(task, f"{stage}_metrics").undefined() == dict.fromkeys(undefined, "the targets have 1 of 2 classes")
    assert found["accuracy"] == (logits.argmax(-1) == 1).float().mean()
    assert not [warning for warning in recwarn if "torchmetrics" in warning.filename]
    found = measured(task, loader(*draw(2, 40)), stage)
    assert not getattr(task, f"{stage}_metrics").undefined()
    assert not any(map(math.isnan, found.values())), "the same task measures other targets"


def test_an_absent_class_leaves_means_over_all_classes_undefined(measured):
    logits, labels = draw(3, 40)
    task = Classification(nn.Identity(), 3, metrics=[*EVERY, *TWO, *DEFINED])
    found = measured(task, loader(logits, labels.clamp(max=1)))
    assert {name for name, value in found.items() if math.isnan(value)} == set(map(snake, EVERY))
    assert set(task.test_metrics.undefined().values()) == {"the targets have 2 of 3 classes"}


@pytest.mark.filterwarnings("ignore:Metric `SpearmanCorrcoef`")
@pytest.mark.parametrize("count", [1, 5])
def test_metrics_of_equal_numbers_are_undefined(measured, count):
    task = Regression(nn.Identity(), metrics=FOR_NUMBERS)
    found = measured(task, loader(torch.randn(count, 1), torch.ones(count, 1)))
    assert task.test_metrics.undefined() == dict.fromkeys(map(snake, FOR_NUMBERS), "all targets are equal")
    assert {name for name, value in found.items() if not math.isnan(value)} == {"loss", "mse"}
    x = torch.randn(30, 1)
    assert measured(task, loader(x, x + 1))["pearson_corr_coef"] == pytest.approx(1, abs=1e-5)
    assert not task.test_metrics.undefined()


def test_a_constant_prediction_has_no_correlation(measured):
    task = Regression(nn.Identity(), metrics=["PearsonCorrCoef"])
    assert math.isnan(measured(task, loader(torch.ones(9, 1), torch.randn(9, 1)))["pearson_corr_coef"])
    assert "variance" in task.test_metrics.undefined()["pearson_corr_coef"]


def test_a_ranking_without_right_answers_is_undefined(measured):
    task = AnswerRanking(Scores())
    found = measured(task, ranking_loader([(question, 0, score) for question, _, score in ROWS]))
    assert task.test_metrics.undefined() == dict.fromkeys(("map", "mrr", "top1"), "no target is positive")
    assert all(math.isnan(found[name]) for name in ("map", "mrr", "top1"))


def test_the_loss_is_the_mean_cross_entropy_and_has_a_gradient():
    net = nn.Linear(4, 3)
    task = Classification(net, 3)
    x, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0])
    loss, logits, targets, extra, size = task.step((x, labels))
    expected = -net(x).log_softmax(-1)[torch.arange(6), labels].mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert torch.equal(logits, net(x))
    assert not logits.requires_grad
    assert torch.equal(targets, labels)
    assert (extra, size) == ({}, None)
    loss.backward()
    assert net.weight.grad.abs().sum() > 0


def test_label_smoothing_in_training_only(measured):
    """Szegedy et al. 2016, section 7."""
    logits, labels = draw(4)
    task = Classification(nn.Identity(), 4, label_smoothing=0.3)
    logs = logits.log_softmax(-1)
    plain, spread = -logs[torch.arange(len(labels)), labels].mean(), -logs.mean(-1).mean()
    task.train()
    assert task.step((logits, labels)).loss.item() == pytest.approx((0.7 * plain + 0.3 * spread).item())
    task.eval()
    assert task.step((logits, labels)).loss.item() == pytest.approx(plain.item())
    assert measured(task, loader(logits, labels), "val")["loss"] == pytest.approx(plain.item())
    assert task_of(4).train().step((logits, labels)).loss.item() == pytest.approx(plain.item())  # the default is none


def test_batch_norm_with_one_value_per_channel():
    """torch raises ValueError for a single value per channel in training; other errors are not caught."""
    task, batch = Classification(nn.BatchNorm1d(3), 3), (torch.randn(1, 3), torch.tensor([0]))
    with raises("invalid", "batch norm"):
        task.training_step(batch, 0)
    with pytest.raises(ValueError, match="expected 2D or 3D") as caught:
        task.training_step((torch.randn(1, 3, 1, 1), torch.tensor([0])), 0)
    assert not isinstance(caught.value, InputError)


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


def ranking_loader(rows, size: int = 5) -> DataLoader:
    return DataLoader(batches(rows, size), batch_size=None, collate_fn=lambda batch: batch)


@pytest.mark.parametrize("stage", ["val", "test"])
@pytest.mark.parametrize("size", [1, 5, 12])
def test_metrics_do_not_depend_on_batches(measured, size, stage):
    found = measured(AnswerRanking(Scores()), ranking_loader(ROWS, size), stage)
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


@pytest.mark.parametrize("stage", ["val", "test"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_error_is_the_mean_over_all_batches(measured, stage, outputs):
    draw = torch.Generator().manual_seed(outputs)
    answers, targets = torch.randn(103, outputs, generator=draw), torch.randn(103, outputs, generator=draw)
    loader = DataLoader(TensorDataset(answers, targets), batch_size=16)
    error = (answers - targets).square().sum().item() / (103 * outputs)
    metrics = measured(Regression(nn.Identity(), outputs), loader, stage)
    assert metrics == pytest.approx({"loss": error, "mse": error}, rel=1e-5)


def test_the_loss_has_the_gradient_of_a_mean():
    net, x, y = nn.Linear(4, 3, bias=False), torch.randn(6, 4), torch.randn(6, 3)
    measured = Regression(net, 3).step((x, y))
    assert torch.equal(measured.predictions, net(x))
    assert not measured.predictions.requires_grad
    measured.loss.backward()
    torch.testing.assert_close(net.weight.grad, 2 * (net(x) - y).T @ x / y.numel())
