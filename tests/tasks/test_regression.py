"""The mean squared error against its definition."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from zoo.tasks import Regression


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
