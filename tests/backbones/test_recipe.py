"""One layer with a learned rule finds a rotation and the Hamilton product in data (Zhang et al. 2021, Figure 2)."""

import pytest
import torch
from torch.nn import functional as F
from zoo_datasets.vectors import hamilton, rotation

import zoo
from zoo.data import ready


def learn(data, algebra, seed, steps=3000):
    """Train as configs/papers/phm does: Adam, 64 rows a step, the learning rate falling to zero."""
    torch.manual_seed(seed)
    net = zoo.backbone("linear", algebra, **ready(data).info.model_kwargs)
    x, y = data.splits["train"]
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        F.mse_loss(net(x[rows]), y[rows]).backward()
        optimizer.step()
        schedule.step()
    return net


def squared_error(net, data):
    x, y = data.splits["test"]
    with torch.no_grad():
        return F.mse_loss(net(x), y).item()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_rotation_is_learned(seed):
    data = ready(rotation())
    net = learn(data, "phm-3", seed)
    assert squared_error(net, data) < 1e-6
    turned = net.weight @ net.weight.T
    torch.testing.assert_close(turned, torch.eye(3), rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_learned_rule_is_the_hamilton_product(seed):
    data, product = ready(hamilton()), zoo.algebra("quaternion")
    net = learn(data, "phm-4", seed)
    assert squared_error(net, data) < 1e-6
    # What the layer's weight does at each place, as a 4 x 4 matrix, and the quaternion that made the data there. The basis of
    # the learned rule is its own affair, so matrices are not compared; products are.
    learned = torch.einsum("ijk,ip->pkj", net.algebra.structure, net.components.flatten(1)).detach()
    true = data.truth[:, :4].reshape(4, 4, 4).flatten(1).T
    assert torch.linalg.matrix_rank(true) == 4  # the places span all quaternions
    q, x = torch.randn(50, 4), torch.randn(50, 4)
    share = q @ torch.linalg.pinv(true)  # q = sum_p share_p true_p
    ours = torch.einsum("bp,pkj,bj->bk", share, learned, x)
    torch.testing.assert_close(ours, product(q, x), rtol=0, atol=0.01)


def test_a_rule_that_is_fixed_and_wrong_does_not_learn_it():
    data = ready(hamilton())
    assert squared_error(learn(data, "quaternion", 0), data) < 1e-6
    assert squared_error(learn(data, "clifford(p=1, q=1)", 0), data) > 1e-2
