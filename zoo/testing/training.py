"""Small questions about a network that several contracts ask."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.layers.weight import Weight


def classify(model: nn.Module, batch: Any) -> Tensor:
    """Run a network on a batch, a tensor or a tuple of its arguments, with the same random numbers every time."""
    torch.manual_seed(0)
    y = model(*batch) if isinstance(batch, tuple) else model(batch)
    assert isinstance(y, Tensor)
    return y


def loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the cross entropy of a batch against the labels 0, 1, 2, ..., one for each row of logits."""
    y = classify(model, batch).flatten(0, -2)
    return F.cross_entropy(y, torch.arange(len(y)) % y.shape[1])


def take(batch: Any, index: Any) -> Any:
    """Index the examples of a batch."""
    return tuple(take(part, index) for part in batch) if isinstance(batch, tuple) else batch[index]


def weights(model: nn.Module) -> int:
    """Count the trainable parameters without the rules that are learned."""
    rules = {id(p) for m in model.modules() if isinstance(m, Algebra) for p in m.parameters()}
    return sum(p.numel() for p in model.parameters() if p.requires_grad and id(p) not in rules)


def matrices(model: nn.Module) -> dict[str, Any]:
    """Name the weights of the layers."""
    return {name: m for name, m in model.named_modules() if isinstance(m, Weight)}


def is_divided(layer: Any, real: Any) -> bool:
    """Tell whether n divides both axes of a weight, given the same weight over the reals."""
    axes = [(getattr(layer, name), getattr(real, name)) for name in ("out", "inp")]
    return all(ours.channels == theirs.channels and ours.size == ours.n * ours.width for ours, theirs in axes)
