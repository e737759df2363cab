"""Options that a machine cannot mean: every number has limits, and the size of everything is known before it starts."""

import dataclasses
import random
from contextlib import suppress
from inspect import signature
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
import yaml
from lightning.pytorch import Trainer
from zoo_experiments.options import Lottery, PruningOptions, Sweep

from tests.errors import raises
from tests.faults.process import zoo_command
from zoo import registry
from zoo.backbones.build import SizeError, backbone, check_size, outlined
from zoo.cli.models import Evaluate, Generate, Predict
from zoo.cli.parser import Loader
from zoo.errors import InputError
from zoo.registry.limits import check_plain, check_sizes, cores
from zoo.registry.resolution import build_options
from zoo.training.options import TRAINER_INTERVALS, Average, Bench, DistillationOptions, Fit, Info, Optimizer, Prune, Schedule
from zoo.training.resolve import plan_run
from zoo.training.trainer import check_trainer

TINY = "vit(dim=16, depth=1, heads=1)"
RUN = {"backbone": TINY, "algebra": "quaternion", "data": "digits"}
WRONG = (-(10**30), 10**30, float("nan"), float("inf"), -float("inf"))


def numeric(kind: Any) -> bool:
    """Return whether an annotation allows a number."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType, tuple) else (kind,)
    return any(part in (int, float) or (get_origin(part) is tuple and numeric(part)) for part in parts)


CLASSES = (Average, Bench, Fit, Info, Lottery, Prune, PruningOptions, Sweep, Evaluate, Generate, Predict)
ELSEWHERE = {"rate", "pattern", "label_smoothing"}  # checked by the pruning and by the task
NUMBERS = [
    (kind, item.name) for kind in CLASSES for item in dataclasses.fields(kind) if numeric(get_type_hints(kind)[item.name])
]
TASK_NUMBERS = [
    (group, item.name)
    for group, kind in (("optimizer", Optimizer), ("schedule", Schedule), ("distillation", DistillationOptions))
    for item in dataclasses.fields(kind)
    if numeric(get_type_hints(kind)[item.name])
]


@pytest.mark.parametrize(("kind", "name"), NUMBERS, ids=lambda item: getattr(item, "__name__", item))
def test_every_number_of_the_options_has_limits(kind, name):
    for value in WRONG if name not in ELSEWHERE else ():
        if float in (hint := get_type_hints(kind)[name], *get_args(hint)) or isinstance(value, int):
            with raises("invalid", name):
                build_options(kind, {name: value})


@pytest.mark.parametrize(("group", "name"), [*TASK_NUMBERS, ("", "label_smoothing")], ids=str)
def test_every_number_of_the_task_has_limits(group, name):
    for value in (-1e30, *WRONG[2:]):
        with raises("invalid"):
            plan_run(build_options(Fit, RUN | ({group: {name: value}} if group else {name: value})))


@pytest.mark.parametrize("name", TRAINER_INTERVALS)
def test_every_number_of_the_trainer_has_limits(name):
    for value in WRONG:
        with raises("invalid", f"--trainer.{name}"):
            check_trainer({name: value})


def test_the_limits_of_the_trainer_are_complete():
    unlimited = {"precision", "devices"}  # Lightning checks precision; devices may also be a list
    hints = {name: hint for name, hint in get_type_hints(Trainer.__init__).items() if name in signature(Trainer).parameters}
    assert {name for name, hint in hints.items() if numeric(hint)} - unlimited == TRAINER_INTERVALS.keys() - unlimited


@pytest.mark.parametrize(
    "duration",
    ["00:00:00:00", "soon", 5, {}, {"days": -1}, {"days": 1e300}, {"fortnights": 1}, {"days": float("nan")}],
    ids=str,
)
def test_a_duration_must_be_positive(duration):
    with raises("invalid", "--trainer.max_time"):
        check_trainer({"max_time": duration})
    assert check_trainer({"max_time": {"hours": 2}}) == {"max_time": {"hours": 2}}


@pytest.mark.parametrize(
    "value",
    ["a\0b", "\ud800", ["\0"], {"a": {"b": "\0"}}, 16**5000, -(16**5000)],
    ids=lambda value: type(value).__name__,
)
def test_values_that_no_file_can_store(value):
    with raises("invalid", "option"):
        check_plain("option", value)
    for options in (RUN | {"run_dir": value}, RUN | {"trainer": {"default_root_dir": value}}):
        with raises("invalid"):
            build_options(Fit, options)


# --- sizes ---


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ("vit(depth=100000, dim=16, heads=1)", "5,000 parameter tensors"),
        ("vit(dim=1048576)", "1,000,000,000"),
        ("mlp(depth=16777216)", "5,000 parameter tensors"),
    ],
)
def test_large_networks_are_refused_before_anything_is_built(spec, limit, monkeypatch):
    monkeypatch.setattr("zoo.training.resolve._make_data", lambda *args: pytest.fail("data were opened"))
    with raises("invalid", limit, "--max-parameters"):
        plan_run(build_options(Fit, RUN | {"backbone": spec}))


def test_an_option_raises_the_limit():
    info = {"in_channels": 1, "image_size": 8, "num_classes": 10}
    size = sum(parameter.numel() for parameter in backbone(TINY, "quaternion", **info).parameters())
    check_size(TINY, "quaternion", size, **info)
    with pytest.raises(SizeError, match=f"{size:,} parameters, the limit is {size - 1:,}"):
        check_size(TINY, "quaternion", size - 1, **info)
    with raises("invalid", "--max-parameters"):
        plan_run(build_options(Fit, RUN | {"max_parameters": size - 1000}))


HOSTILE = (-1, 0, 3, 2**24, 2**25, 0.5, -0.5, 1e30, float("inf"), "x", True, None, [], [0], [2**24] * 3, ["a"])
INFO = {
    "in_channels": 1,
    "image_size": 8,
    "in_features": 8,
    "out_features": 3,
    "num_classes": 3,
    "vocab_size": 11,
    "max_length": 7,
}
OURS = [entry for entry in registry.entries("zoo.backbones") if entry.ours]


def networks() -> list[str]:
    """Return specs of our backbones with one hostile option."""
    specs = []
    for entry in OURS:
        factory = registry.load(entry)
        for name, parameter in signature(factory).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY and name not in ("variant", "pretrained"):
                head = {"timm": "timm/vit_tiny_patch16_224", "hf": "hf/bert"}.get(entry.name, entry.name)
                specs += [str(registry.Spec(head, {name: value})) for value in HOSTILE]
    return random.Random(0).sample(specs, len(specs))


def build_hostile(spec: str) -> None:
    """Build a network on the meta device, or refuse it."""
    entry, parsed = registry.resolve("zoo.backbones", spec)
    accepted = signature(registry.load(entry)).parameters
    with suppress(InputError):
        check_sizes(entry.name, parsed.options)
        with outlined(300, "too many layers"):
            backbone(spec, "quaternion", **{name: value for name, value in INFO.items() if name in accepted})


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_hostile_options_of_backbones():
    for spec in networks()[:40]:
        build_hostile(spec)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_all_hostile_options_of_backbones():
    for spec in networks():
        build_hostile(spec)


# --- processes, runs and files ---


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--trainer.devices", "1000"], ["--trainer.devices=1000", f"between 1 and {cores()}"]),
        (["--trainer.devices", "1000000"], ["--trainer.devices=1000000", "[-1, 1024]"]),
        (["--folds", "999999999"], ["folds=999999999", "[2, 1e6]"]),
        (["--folds", "20000"], ["20000", "10000"]),
        (["--folds", "2", "--jobs", "500"], ["jobs=500", f"between 1 and {cores()}"]),
        (["--num-workers", "1000"], ["num_workers=1000", f"[0, {8 * cores()}]"]),
    ],
    ids=str,
)
def test_numbers_of_processes_and_folds(refused, words, named):
    base = ["--backbone", TINY, "--algebra", "quaternion", "--data", "digits", "--trainer.accelerator", "cpu"]
    message = refused("fit", *base, *words)
    assert all(text in message for text in named), message


@pytest.mark.parametrize(
    "words", [["--seeds", "100000000"], ["--seeds", "1000", "--rounds", "100"], ["--rounds", "1000000"]], ids=str
)
def test_sizes_of_experiments(refused, words):
    refused("lottery", "--backbone", TINY, "--algebra", "quaternion", "--data", "digits", *words)


def test_a_sweep_has_a_limited_number_of_runs(refused, tmp_path):
    axes = {"seed": list(range(101)), "optimizer.lr": [10.0**-k for k in range(101)]}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"base": RUN, "axes": axes}))
    assert "10201" in refused("sweep", "sweep.yaml")


class Name(str):
    """A text that counts comparisons."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_reading_a_file_is_linear_in_its_keys(refused, tmp_path):
    names = [yaml.ScalarNode("tag:yaml.org,2002:str", Name(f"k{number}")) for number in range(2000)]
    node = yaml.MappingNode("tag:yaml.org,2002:map", [(name, name) for name in names])
    assert len(Loader("").construct_mapping(node)) == 2000
    assert Name.compared < 10 * 2000
    (tmp_path / "large.yaml").write_text("".join(f"k{number}: 1\n" for number in range(10000)))
    assert "'k0'" in refused("fit", "-c", "large.yaml")
    (tmp_path / "twice.yaml").write_text("seed: 1\nalgebra: real\nseed: 2\n")
    assert "'seed' is repeated" in refused("fit", "-c", "twice.yaml")


# --- whole configurations ---

WORDS = (-1, 0, 2, 10**6, 10**400, 0.5, -1e300, 1e999, "x", "", "\0", "\ud800", "../..", "[", True, None, [], {}, [1, [2]])
LONG = {"num_nodes", "devices", "max_epochs", "min_epochs", "max_steps", "min_steps", "compile"}  # valid values may take hours


def configurations(count: int) -> list[dict[str, Any]]:
    """Return configurations of short runs in which one to three options have hostile values, the same ones every time."""
    draw, given = random.Random(57), []
    fields = [item.name for item in dataclasses.fields(Fit) if item.name not in ("trainer", *NESTED, *LONG)]
    names = [*fields, *(f"trainer.{name}" for name in get_type_hints(Trainer.__init__) if name not in ("return", *LONG))]
    names += [f"{group}.{item.name}" for group, kind in NESTED.items() for item in dataclasses.fields(kind)]
    for _ in range(count):
        values: dict[str, Any] = RUN | {"trainer": dict(SHORT)}
        for name in draw.sample(names, draw.randint(1, 3)):
            group, _, key = name.rpartition(".")
            (values.setdefault(group, {}) if group else values)[key] = draw.choice(WORDS)
        given.append(values)
    return given


NESTED = {"optimizer": Optimizer, "schedule": Schedule, "distillation": DistillationOptions}
LIMIT = dict.fromkeys(("limit_train_batches", "limit_val_batches", "limit_test_batches"), 1)
SHORT = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False} | LIMIT


def run_configuration(values: dict[str, Any], folder: Path) -> None:
    """Train with a configuration; it works or is refused, and ends in bounded time and memory."""
    (folder / "hostile.yaml").write_text(yaml.safe_dump(values))
    ended = zoo_command(["fit", "-c", "hostile.yaml"], folder, timeout=240)
    assert ended.code == 0 or ended.refused, (values, ended.code, ended.err[-600:])


def test_hostile_configurations(tmp_path):
    for values in configurations(6):
        run_configuration(values, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 300, 50))
def test_many_hostile_configurations(tmp_path, start):
    for values in configurations(300)[start : start + 50]:
        run_configuration(values, tmp_path)
