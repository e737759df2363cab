"""Torch's multi-head attention with projections over an algebra."""

import pytest
import torch
from torch import nn

import zoo
from tests.errors import raises
from zoo.nn import MultiheadAttention

OPTIONS = [{}, {"batch_first": True, "bias": False}, {"add_bias_kv": True, "add_zero_attn": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_torch_over_the_reals(options):
    torch.manual_seed(0)
    ours, theirs = (
        make(16, 4, **options) for make in (lambda *a, **o: MultiheadAttention(*a, algebra="real", **o), nn.MultiheadAttention)
    )
    state = {key: value for key, value in ours.state_dict().items() if "components" not in key}
    theirs.load_state_dict(state | {"in_proj_weight": ours.in_proj_weight, "out_proj.weight": ours.out_proj.weight})
    q, k = torch.randn(3, 5, 16), torch.randn(3, 5, 16)
    mask = torch.zeros(5 if options.get("batch_first") else 3, 5 if options.get("batch_first") else 3, dtype=torch.bool)
    for args in ({}, {"need_weights": False}, {"attn_mask": mask}):
        for actual, expected in zip(ours(q, k, k, **args), theirs(q, k, k, **args), strict=True):
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("spec", ["quaternion", "phm-2"])
def test_equals_the_folded_layer(spec, options):
    torch.manual_seed(0)
    layer = MultiheadAttention(16, 4, algebra=spec, **options).eval()
    x = torch.randn(3, 5, 16)
    folded = zoo.fold(layer)
    assert type(folded) is nn.MultiheadAttention
    torch.testing.assert_close(layer(x, x, x)[0], folded(x, x, x)[0])


def test_heads_consist_of_whole_elements():
    # f(x q) = f(x) q for a unit quaternion q: scores of whole elements do not change, and values are multiplied by q.
    torch.manual_seed(0)
    H = zoo.algebra("quaternion").double()
    layer, x = MultiheadAttention(16, 2, bias=False, algebra="quaternion").double(), torch.randn(5, 3, 16, dtype=torch.float64)
    q = H.exp(torch.randn(4, dtype=torch.float64) * torch.tensor([0, 1, 1, 1]))
    times_q = lambda x: H(x, q[:, None].expand(4, 4).flatten().expand_as(x))  # noqa: E731
    torch.testing.assert_close(layer(times_q(x), times_q(x), times_q(x))[0], times_q(layer(x, x, x)[0]))


def test_keys_of_another_size_are_refused():
    with raises("unsupported", "kdim=8"):
        MultiheadAttention(16, 2, kdim=8, algebra="complex")
