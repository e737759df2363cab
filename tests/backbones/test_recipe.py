"""A layer with a learned product learns a rotation and the Hamilton product from data (Zhang et al. 2021, Figure 2)."""

import torch
from torch.nn import functional as F
from zoo_datasets.vectors import hamilton, rotation

import zoo
from zoo.data import ready


def learn(data, algebra, steps=3000):
    """Train as in configs/papers/phm: Adam, batch size 64, and a learning rate that decays to zero."""
    torch.manual_seed(0)
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


def test_a_rotation_is_learned():
    data = ready(rotation())
    net = learn(data, "phm-3")
    assert squared_error(net, data) < 1e-6
    turned = net.weight @ net.weight.T
    torch.testing.assert_close(turned, torch.eye(3), rtol=0, atol=1e-3)


def test_the_learned_rule_is_the_hamilton_product():
    data, product = ready(hamilton()), zoo.algebra("quaternion")
    net = learn(data, "phm-4")
    assert squared_error(net, data) < 1e-6
    # The 4 x 4 matrix of each element of the weight, and the quaternion that generated its data. The basis of the learned rule
    # is arbitrary, so products are compared instead of matrices.
    learned = torch.einsum("ijk,ip->pkj", net.algebra.structure, net.components.flatten(1)).detach()
    true = data.truth[:, :4].reshape(4, 4, 4).flatten(1).T
    assert torch.linalg.matrix_rank(true) == 4  # they span all quaternions
    q, x = torch.randn(50, 4), torch.randn(50, 4)
    coefficients = q @ torch.linalg.pinv(true)  # q = sum_p coefficients_p true_p
    ours = torch.einsum("bp,pkj,bj->bk", coefficients, learned, x)
    torch.testing.assert_close(ours, product(q, x), rtol=0, atol=0.01)


def test_a_fixed_wrong_product_does_not_learn_it():
    data = ready(hamilton())
    assert squared_error(learn(data, "quaternion"), data) < 1e-6
    assert squared_error(learn(data, "clifford(p=1, q=1)"), data) > 1e-2
