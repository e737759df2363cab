"""The private names of torch that kernels and layers rely on: a new version of torch fails here first, by name."""

import importlib
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
NAMES = {
    "torch._C": (
        "_are_functorch_transforms_active",
        "_is_any_autocast_enabled",
        "_is_tracing",
        "_len_torch_dispatch_stack",
        "DisableTorchFunctionSubclass",
    ),
    "torch._higher_order_ops.scan": ("scan",),
    "torch.autograd.forward_ad": ("_current_level",),
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in NAMES.items() for name in names])
def test_torch_has_the_name(module, name):
    assert hasattr(importlib.import_module(module), name)


def test_the_private_names_of_torch_are_in_one_file():
    folders = [ROOT / "zoo" / name for name in ("algebras", "kernels", "layers")]
    found = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in folder.glob("*.py")
        if re.search(r"torch\._C\b|torch\._higher|forward_ad", path.read_text(encoding="utf-8"))
    }
    assert found == {"zoo/kernels/internals.py", "zoo/algebras/read_only.py"}  # which kernels import


def test_modes_are_recognized():
    from zoo.kernels.internals import autocast_dtype, is_plain_mode, is_recording

    assert is_plain_mode()
    assert not is_recording(torch.ones(1))
    assert autocast_dtype(torch.device("cpu")) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert autocast_dtype(torch.device("cpu")) == torch.bfloat16
    seen = []
    torch.func.vmap(lambda x: seen.append(is_plain_mode()) or x)(torch.ones(2))
    assert seen == [False]
