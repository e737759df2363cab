"""The multilayer perceptron over every algebra."""

from typing import ClassVar

import pytest
import torch

import zoo
from tests.errors import raises
from zoo.testing import BackboneContract


class TestMLP(BackboneContract):
    spec = "mlp(dim={dim})"
    info: ClassVar[dict[str, int]] = {"in_features": 13, "out_features": 3}

    def batch(self):
        return torch.randn(4, 13, generator=torch.Generator().manual_seed(0))


def test_stem_and_head_are_real_and_the_rest_shrinks():
    real, quaternion = (
        zoo.backbone("mlp(dim=64, depth=3)", algebra=algebra, in_features=13, out_features=3)
        for algebra in ("real", "quaternion")
    )
    ends, hidden = 13 * 64 + 64 + 64 * 3 + 3, 3 * 64 * 64
    assert sum(p.numel() for p in real.parameters()) == ends + hidden + 3 * 64
    assert sum(p.numel() for p in quaternion.parameters()) == ends + hidden // 4 + 3 * 64


@pytest.mark.parametrize(("option", "value"), [("activation", "step"), ("dim", 0)])
def test_wrong_options(option, value):
    with raises("invalid", f"{option}="):
        zoo.backbone(f"mlp({option}={value})", algebra="real", in_features=3, out_features=1)
