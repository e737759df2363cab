"""Public API of ``import zoo``: lazy imports and public names."""

import subprocess
import sys

import pytest
import torch

import zoo

INFO = {"in_channels": 1, "image_size": 8, "num_classes": 10}


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_import_loads_no_heavy_packages():
    heavy = {"torch", "lightning", "timm", "numpy", "sklearn", "torchmetrics", "jsonargparse", "yaml"}
    loaded = python(f"import sys, zoo; dir(zoo); zoo.InputError; print(sorted({heavy!r} & set(sys.modules)))")
    assert loaded.strip() == "[]"


MISTAKES = """
test nothing
predict runs/none text
generate runs/none
average runs/none
prune runs/none --ratio 0.5
convert --algebra quaternion
export vit-digits-quaternion --to x --format onnxx
serve runs/none
sweep none.yaml
frontier none.yaml
lottery --backbone vit
"""


def test_mistakes_are_reported_before_torch_is_imported():
    code = f"""
import sys
from zoo.cli import main
for words in {MISTAKES.strip().splitlines()}:
    print(main(words.split()), "torch" in sys.modules, words)
"""
    assert python(code).splitlines() == [f"2 False {words}" for words in MISTAKES.strip().splitlines()]


@pytest.mark.parametrize("name", zoo.__all__)
def test_public_names_resolve_and_are_documented(name):
    value = getattr(zoo, name)
    assert callable(value)
    assert value.__doc__
    assert name in dir(zoo)


def test_unknown_names_raise_attribute_error():
    with pytest.raises(AttributeError, match="'zoo' has no attribute 'nonsense'"):
        zoo.nonsense  # noqa: B018


def test_backbone():
    torch.manual_seed(0)
    net = zoo.backbone("vit(dim=32,depth=1)", algebra="quaternion", **INFO)
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    twin = zoo.backbone("vit(dim=32,depth=1)", algebra=zoo.algebra("real"), **INFO)
    assert zoo.count(net)["total"] < 0.4 * zoo.count(twin)["total"]
    assert zoo.count(net) == {"total": sum(parameter.numel() for parameter in net.parameters()), "embedding": 0}


def test_the_seed_determines_the_weights():
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in zoo.backbone("vit(dim=16,depth=1,heads=1)", "phm-2", **INFO).parameters()])

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
