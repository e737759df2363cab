"""In-place operations before and after layers have the same values and gradients as out-of-place ones."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from zoo.layers import Layers, set_kernel


class Packed(nn.Module):
    def __init__(self, lstm, lengths):
        super().__init__()
        self.lstm, self.lengths = lstm, lengths

    def forward(self, x):
        return self.lstm(pack_padded_sequence(x, self.lengths, batch_first=True))


LAYERS = {
    "linear": (lambda make: make.linear(24, 20, role="ffn"), (6, 24)),
    "linear, blocks and padding": (lambda make: make.linear(21, 30, role="ffn", blocks=(1, 3), bias=False), (2, 3, 21)),
    "conv2d": (lambda make: make.conv2d(8, 16, 3, padding=1), (2, 8, 6, 6)),
    "conv2d, groups": (lambda make: make.conv2d(16, 16, 3, groups=2), (2, 16, 6, 6)),
    "embedding": (lambda make: make.embedding(12, 16, padding_idx=0), None),
    "lstm": (lambda make: make.lstm(8, 12), (2, 5, 8)),
    "lstm, packed": (lambda make: Packed(make.lstm(8, 12, num_layers=2, bidirectional=True), [5, 3]), (2, 5, 8)),
    "attention": (lambda make: make.attention(16, 2), (2, 5, 16)),
}


def outputs(layer, x, in_place):
    x = x.clone().requires_grad_(x.is_floating_point())
    inner = nn.ReLU(in_place)(x * 1.0) if x.is_floating_point() else x
    ys = [nn.Hardswish(in_place)(y) for y in features(layer(inner))]
    total = sum(y.square().sum() for y in ys)
    return [*ys, *torch.autograd.grad(total, [p for p in (x, *layer.parameters()) if p.requires_grad])]


def features(y):
    """All outputs of a layer that are not indices: an LSTM also returns states, and packed sequences hold sizes."""
    if isinstance(y, Tensor):
        return [y] if y.is_floating_point() else []
    return [part for several in y if several is not None for part in features(several)]


@pytest.mark.parametrize("algebra", ["quaternion", "phm-4"])
@pytest.mark.parametrize("kernel", ["auto", "block", "factored", "fused", "thin"])
@pytest.mark.parametrize("name", LAYERS)
def test_in_place_activations(name, kernel, algebra, request):
    if kernel in ("fused", "thin"):
        request.getfixturevalue("library")
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make(Layers(algebra, scope="all+embed"))
    set_kernel(layer, kernel)  # layers that it does not support take another one
    x = torch.randint(12, (3, 7)) if shape is None else torch.randn(shape)
    torch.testing.assert_close(outputs(layer, x, True), outputs(copy.deepcopy(layer), x, False))
