"""Relative attention against a reference implementation."""

import pytest
import torch
from torch import nn

from zoo.algebras import algebra
from zoo.layers import RelativeAttention
from zoo.layers.embedding import trigonometric
from zoo.testing.backbone import fitting_dim, installed_algebras


def make(spec, **options):
    torch.manual_seed(0)
    made = algebra(spec)
    layer = RelativeAttention(made, fitting_dim(made.n), 2, **options).double()
    for vector in (layer.u, layer.v, layer.qkv.bias, layer.proj.bias):
        nn.init.normal_(vector)
    return layer


def reference(layer, x, memory, mask=None):
    """One row, one head, one query at a time (Dai et al. 2019, section 3.3)."""
    rows = []
    for b in range(len(x)):
        words = torch.cat([memory[b], x[b]])
        q, k, v = layer.qkv(words).view(len(words), 3, 2, -1).unbind(1)
        heads = []
        for i in range(len(memory[b]), len(words)):
            visible = [j for j in range(i + 1) if mask is None or mask[b, j]]
            r = layer.distance(trigonometric(torch.tensor([i - j for j in visible]), layer.dim, x)).view(len(visible), 2, -1)
            scores = torch.stack([(q[i] + layer.u) * k[j] + (q[i] + layer.v) * r[p] for p, j in enumerate(visible)]).sum(-1)
            heads.append(((scores * (layer.dim // 2) ** -0.5).softmax(0)[..., None] * v[visible]).sum(0).flatten())
        rows.append(layer.proj(torch.stack(heads)))
    return torch.stack(rows)


@pytest.mark.parametrize("spec", installed_algebras())
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_definition(spec, masked):
    layer, noise = make(spec), torch.Generator().manual_seed(1)
    x = torch.randn(2, 4, layer.dim, dtype=torch.float64, generator=noise)
    memory = torch.randn(2, 3, layer.dim, dtype=torch.float64, generator=noise)
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1, 1]]).bool() if masked else None
    results = []
    for f in (layer, lambda *args: reference(layer, *args)):
        inputs = x.clone().requires_grad_()
        y = f(inputs, memory, mask)
        results.append((y, *torch.autograd.grad(y.pow(3).sum(), [inputs, *layer.parameters()])))
    torch.testing.assert_close(*results)


def test_memory_receives_no_gradient():
    layer, memory = make("quaternion"), torch.ones(1, 3, 32, dtype=torch.float64, requires_grad=True)
    layer(torch.ones(1, 2, 32, dtype=torch.float64), memory).sum().backward()
    assert memory.grad is None
