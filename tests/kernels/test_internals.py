"""The private names of torch that the zoo uses, so that an incompatible version fails here first."""

import importlib
import re
from operator import attrgetter
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
    "torch.nn": ("Conv2d._conv_forward",),
}
FILES = {
    r"torch\._C\b|torch\._higher|forward_ad": {"zoo/kernels/internals.py", "zoo/algebras/read_only.py"},
    r"_conv_forward": {"zoo/kernels/internals.py"},
    r"_softmax_backward_data|\bF\._|torch\.nn\.functional\._": set(),
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in NAMES.items() for name in names])
def test_private_name_exists(module, name):
    assert attrgetter(name)(importlib.import_module(module)) is not None


@pytest.mark.parametrize("pattern", FILES)
def test_private_names_are_used_in_one_file(pattern):
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in (ROOT / "zoo").rglob("*.py")}
    assert {name for name, text in sources.items() if re.search(pattern, text)} == FILES[pattern]


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
