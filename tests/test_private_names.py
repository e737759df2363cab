"""Public names are documented in docs/reference; the private names of torch and Lightning that the zoo uses exist."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import wandb
from lightning.pytorch.strategies import DDPStrategy, launchers
from packaging.requirements import Requirement
from torch import nn
from torch._dynamo import config as dynamo

from zoo.training.resume import logged_steps, set_counters

PAGES = sorted((Path(__file__).parents[1] / "docs" / "reference").glob("*.md"))
BLOCK = re.compile(r"^::: ([\w.]+)\n((?: +.*\n?)*)", flags=re.MULTILINE)


def listed(text: str) -> list[tuple[str, str]]:
    """Return the pairs (module, member) that a page documents; the member is empty if it lists none."""
    pairs = []
    for module, options in BLOCK.findall(text):
        members = re.search(r"members: \[(.*?)\]", options, flags=re.DOTALL)
        pairs += [(module, name.strip()) for name in members[1].split(",")] if members else [(module, "")]
    return pairs


NAMES = [pair for page in PAGES for pair in listed(page.read_text(encoding="utf-8"))]


def find(path: str):
    """Import a module, or return the attribute that a dotted path names."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(find(parent), name)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_documented_names_exist(module, name):
    if module in ("zoo.peft", "zoo.transformers"):
        pytest.importorskip(module.removeprefix("zoo."))
    target = find(module)
    assert not name or hasattr(target, name), f"{module}.{name} is documented in docs/reference but does not exist"


def test_public_names_are_documented():
    import zoo

    assert {name for module, name in NAMES if module == "zoo"} == set(zoo.__all__)


ROOT = Path(__file__).parents[1]
DOCUMENTED = {"_asdict", "_fields", "_replace", "_exit"}  # of named tuples and os
HOOKS = {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"}
PRIVATE = {
    "plugins/zoo_experiments/worker.py": {"_is_in_bad_fork"},
    "plugins/zoo_export/onnx_file.py": {"_modules"},
    "zoo/algebras/product.py": {"_buffers", "_parameters"},
    "zoo/nn/computed_matrix.py": {"_C", "_is_alias_of", "_python_dispatch"},
    "zoo/conversion/replacement.py": HOOKS,
    "zoo/kernels/internals.py": {
        "_C",
        "_are_functorch_transforms_active",
        "_current_level",
        "_higher_order_ops",
        "_is_any_autocast_enabled",
        "_is_tracing",
        "_len_torch_dispatch_stack",
    },
    "zoo/kernels/matrices.py": {"_version"},
    "zoo/nn/batching.py": {"_dynamo", "_forward_pre_hooks"},
    "zoo/nn/weight.py": {"_forward_hooks", "_forward_pre_hooks", "_version"},
    "zoo/peft.py": {"_move_adapter_to_device_of_base_layer", "_register_custom_module", "_replace_module"},
    "zoo/pruning/masks.py": {"_ConvNd", "_ConvTransposeNd"},
    "zoo/pruning/structured.py": {"_BatchNorm", "_OutputOp"},
    "zoo/transformers.py": {"_is_hf_initialized", "_keys_to_ignore_on_load_unexpected", "_weight_conversions"},
    "zoo/training/processes.py": {"_SubprocessScriptLauncher", "_signal_connector", "_sigterm_notifier_fn", "_timeout"},
    "zoo/training/resume.py": {"_batches_that_stepped", "_data_fetcher", "_results"},
    "zoo/training/trainer.py": {"_save_dir", "_sync_buffers", "_wandb_init"},
}


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module defines, including attributes of ``self``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def used(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes and the parts of imported names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (getattr(node, "module", None) or "").split(".")
            yield from (part for alias in node.names for part in alias.name.split("."))


def test_all_private_names_are_listed():
    paths = [path for package in ("zoo", "plugins") for path in (ROOT / package).rglob("*.py") if "test" not in path.name]
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    ours = {name for tree in trees.values() for name in defined(tree)} | DOCUMENTED
    found = {file: {name for name in used(tree) if re.match("_(?!_)", name)} - ours for file, tree in trees.items()}
    assert {file: names for file, names in found.items() if names} == PRIVATE


def test_private_names_exist():
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    loop = trainer.fit_loop
    assert hasattr(loop, "_data_fetcher")
    assert hasattr(loop.epoch_loop, "_results")
    assert logged_steps(trainer) == 0
    set_counters(trainer, 1, 3)
    assert logged_steps(trainer) == 3
    assert hasattr(trainer._signal_connector, "_sigterm_notifier_fn")
    assert hasattr(DDPStrategy(), "_timeout")
    assert not dynamo.wrap_top_frame
    assert hasattr(launchers, "_SubprocessScriptLauncher")
    assert hasattr(torch.nn.parallel.DistributedDataParallel, "_sync_buffers")
    assert {"_save_dir", "_wandb_init"} <= set(re.findall(r"self\.(\w+)", inspect.getsource(wandb.WandbLogger.__init__)))
    assert vars(nn.Linear(1, 1)).keys() >= HOOKS | {"_buffers", "_modules", "_parameters"}


def test_private_names_of_transformers_exist():
    models = pytest.importorskip("transformers.modeling_utils")
    from transformers import core_model_loading, initialization
    from transformers.quantizers.base import HfQuantizer

    assert "_keys_to_ignore_on_load_unexpected" in vars(models.PreTrainedModel)
    assert "_weight_conversions" in inspect.getsource(core_model_loading.revert_weight_conversion)
    assert "_is_hf_initialized" in inspect.getsource(initialization)
    assert vars(HfQuantizer).keys() >= {"_process_model_before_weight_loading", "_process_model_after_weight_loading"}


def test_private_names_of_peft_exist():
    tuners = pytest.importorskip("peft.tuners.tuners_utils")
    from peft import LoraConfig
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
    from peft.utils import PeftType

    assert vars(tuners.BaseTuner).keys() >= {"_create_and_replace", "_replace_module"}
    assert vars(tuners.BaseTunerLayer).keys() >= {
        "_move_adapter_to_device_of_base_layer",
        "_disable_adapters",
        "_active_adapter",
    }
    assert hasattr(LoraConfig, "_register_custom_module")
    assert isinstance(next(iter(PEFT_TYPE_TO_CONFIG_MAPPING)), str)
    assert "ZOO" not in list(PeftType)


@pytest.mark.parametrize("extra", ["transformers", "peft"])
def test_versions_with_private_names_are_bounded_and_tested(extra):
    pytest.importorskip(extra)
    with (ROOT / "pyproject.toml").open("rb") as file:
        requirement = Requirement(tomllib.load(file)["project"]["optional-dependencies"][extra][0])
    assert requirement.name == extra
    assert {item.operator for item in requirement.specifier} == {">=", "<"}
    assert requirement.specifier.contains(version(extra)), "tests run with a version that the package does not allow"
