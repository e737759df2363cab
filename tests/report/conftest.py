"""Folders of ``zoo lottery`` with pruned, untrained networks."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from zoo_reports.lottery import lottery

import zoo
from zoo.pruning import Pruning, prunable
from zoo.pruning.masks import full_masks, next_masks, remaining
from zoo.report import Report

BACKBONE, RATE = "vit(dim=16, depth=1, heads=2)", 0.5
INFO = {"in_channels": 1, "image_size": 8, "num_classes": 4}
Value = Callable[[str, int, float], float]


def write_run(
    parent: Path,
    value: Value,
    *,
    name: str = "run",
    algebras: Iterable[str | tuple[str, str]] = ("real", "quaternion"),
    seeds: int = 1,
    rounds: int = 3,
    metric: str = "accuracy",
    mode: str = "max",
    models: bool = False,
) -> Path:
    """Write a run with a test metric that depends on algebra, seed and percent of real weights; validation is half of it."""
    run = parent / name
    run.mkdir(parents=True)
    record: dict[str, Any] = {"format": 1, "backbone": BACKBONE, "data": "digits", "task": "image_classification"}
    record |= {"metric": metric, "mode": mode, "rate": RATE, "rounds": rounds, "pruning": {"matrices": "all"}}
    record |= {"rows": [], "stopped": []}
    real = weights_of(zoo.backbone(BACKBONE, "real", **INFO))
    for arm in algebras:
        algebra, control = (arm, None) if isinstance(arm, str) else arm
        for seed in range(seeds):
            torch.manual_seed(seed)
            net = zoo.backbone(BACKBONE, algebra, **INFO)
            matrices = prunable(net)
            masks = full_masks(matrices)
            for number in range(rounds + 1):
                masks = next_masks(matrices, pruned(net, masks), masks, Pruning(RATE)) if number else masks
                percent = 100 * remaining(masks) / real
                folder = f"{algebra}{f'-{control}' if control else ''}/seed-{seed}/round-{number:02}"
                row = {"algebra": algebra, "control": control, "seed": seed, "round": number, "folder": folder}
                row |= {"survivors": remaining(masks), "weights": weights_of(net), "real_weights": real}
                score = value(algebra, seed, percent)
                record["rows"].append(row | {"test": {metric: score}, "val": {metric: score / 2}, "epoch": 1, "seconds": 0.1})
                if models:
                    pruned(net, masks)
                    zoo.save(net, run / folder / "model", backbone=BACKBONE, algebra=algebra, sparse=True, **INFO)
    (run / "lottery.json").write_text(json.dumps(record))
    return run


def weights_of(net: torch.nn.Module) -> int:
    return sum(matrix.parameter.numel() for matrix in prunable(net).values())


def pruned(net: torch.nn.Module, masks: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Set pruned weights to zero, and return all weights."""
    weights = {name: matrix.parameter.detach() for name, matrix in prunable(net).items()}
    for name, weight in weights.items():
        weight.masked_fill_(~masks[name], 0.0)
    return weights


def falling(algebra: str, seed: int, percent: float) -> float:
    """Return a metric that falls with pruning, later over the quaternions."""
    top, knee = (0.98, 10.0) if algebra == "real" else (0.90, 2.0)
    return top - 0.01 * seed - 0.6 / (1 + (percent / knee) ** 2)


@pytest.fixture
def lottery_run(tmp_path: Path) -> Callable[..., Path]:
    """Return `write_run` for ``tmp_path``."""
    return partial(write_run, tmp_path)


@pytest.fixture(scope="session")
def run_with_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A read-only run with two seeds, its models and a control."""
    arms = ("real", "quaternion", ("quaternion", "random"))
    return write_run(tmp_path_factory.mktemp("lottery"), falling, algebras=arms, seeds=2, models=True)


@pytest.fixture(scope="session")
def report(run_with_models: Path) -> Report:
    """The report on `run_with_models`."""
    return lottery([str(run_with_models)])
