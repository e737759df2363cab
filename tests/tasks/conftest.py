"""Runs of a task with any data, and the warnings that they ignore."""

from pathlib import Path

import pytest
import torch
from torch import nn

from zoo.inference.evaluation import make_trainer

IGNORED = (".isinstance.treespec, LeafSpec", ".*does not have many workers", ".*number of training batches", ".*no GPU")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for text in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{text}"))


@pytest.fixture
def measured():
    """Return the function that evaluates a task and returns its metrics by name."""

    def measure(task, data, stage="test"):
        trainer = make_trainer({}, torch.device("cpu"), nn.Identity())
        (metrics,) = (trainer.test if stage == "test" else trainer.validate)(task, data, verbose=False)
        return {name.removeprefix(f"{stage}_"): value for name, value in metrics.items()}

    return measure
