"""What the networks of a frontier cost: bytes, multiply-adds, and times of a training step and of an inference."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_model
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from zoo.layers import keep_matrices
from zoo.training.bench import evaluation_step, first_batch, side_by_side, training_step
from zoo.training.options import Fit, build
from zoo_experiments.sweep import points

ROUNDS = 20


def costs(values: Mapping[str, Any], file: str) -> dict[str, dict[str, float]]:
    """Measure the networks of a frontier in turns in one process, on the first batch of their training data.

    Args:
        values: The content of the file.
        file: Its name.

    Returns:
        For each network ``bytes`` of its weights file, ``multiply_adds`` of the forward pass of one example, and the medians
        ``step_ms`` (forward, backward and AdamW) and ``inference_ms`` (with `zoo.keep_matrices`) of a batch.
    """
    options: dict[str, Any] = {}
    for point in points(values, file):
        options.setdefault(point.axes["net"], point.options)
    tasks = {net: first_batch(build(Fit, chosen)) for net, chosen in options.items()}
    steps = side_by_side({net: training_step(task, batch) for net, (task, batch) in tasks.items()}, ROUNDS)
    measured = {}
    with ExitStack() as stack:
        for task, _ in tasks.values():
            stack.enter_context(keep_matrices(task.net))
        inferences = side_by_side({net: evaluation_step(task, batch) for net, (task, batch) in tasks.items()}, ROUNDS)
        for net, (task, batch) in tasks.items():
            with FlopCounterMode(display=False) as counter:
                evaluation_step(task, batch)()
            examples = next(len(part) for part in tree_leaves(batch) if isinstance(part, torch.Tensor))
            adds = counter.get_total_flops() // 2 // examples
            times = {"step_ms": steps[net]["ms"], "inference_ms": inferences[net]["ms"]}
            measured[net] = {"bytes": weights_bytes(task.net), "multiply_adds": adds} | times
    return measured


def weights_bytes(net: nn.Module) -> int:
    """Return the size of the weights of a network as a safetensors file."""
    with TemporaryDirectory() as folder:
        save_model(net, f"{folder}/model.safetensors")
        return Path(folder, "model.safetensors").stat().st_size
