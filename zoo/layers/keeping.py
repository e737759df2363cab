"""The scope in which weights may cache what they compute from their components."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from torch import nn

from zoo.layers.weight import Weight

_LOCK = Lock()


@contextmanager
def keep_matrices(module: nn.Module) -> Iterator[None]:
    """Let the weights of a network cache their matrices until the scope is left, where no gradient needs them.

    Open it where nothing writes to the network: `predict`, `generate` and the Trainer's evaluation loops do. It is what
    `torch.nn.utils.parametrize.cached` is to parametrizations. Outside, nothing is ever cached; `zoo.fold` is the permanent
    form. Scopes may nest, and several threads may open and use them: the outermost one discards what was cached.

    Example:
        >>> import torch
        >>> net = nn.Linear(2, 2)
        >>> with torch.no_grad(), keep_matrices(net):
        ...     y = net(torch.ones(1, 2))
    """
    weights = [part for part in module.modules() if isinstance(part, Weight)]
    with _LOCK:
        for weight in weights:
            weight.open_cache()
    try:
        yield
    finally:
        with _LOCK:
            for weight in weights:
                weight.close_cache()
