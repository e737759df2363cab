"""Losses and metrics of classification against scikit-learn."""

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.errors import raises
from zoo.errors import InputError
from zoo.tasks import Classification


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
