"""Assemble the matrices of all layers of a network at once, in its forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn
from torch.compiler import is_compiling, is_exporting

from zoo.kernels import matrices
from zoo.kernels.internals import is_plain_mode
from zoo.nn.weight import Weight

BUCKET = 25_000_000  # bytes of matrices that are assembled at once: DDP sends their gradients while others are computed

Module = TypeVar("Module", bound=nn.Module)


def batch_matrices(net: Module) -> Module:
    """Assemble the matrices of a network at once in every forward pass that trains it on a GPU, and return the network.

    Instead of a few launches per layer there is one for about 25 MB of matrices, and one for their gradients. Networks of
    `zoo.backbone`, `zoo.convert`, `zoo.load` and `zoo.fit` do this already; call it once for a network that you build from
    layers of the zoo. Nothing else changes: weights with hooks or parametrizations, frozen ones and sharded ones (FSDP2), and
    layers that are called alone assemble their own matrix.

    Like `torch.distributed.fsdp.fully_shard`, it registers hooks of the network, which copies of the network share.

    Example:
        >>> net = batch_matrices(nn.Sequential(nn.Linear(2, 2)))
        >>> net(torch.ones(1, 2)).shape
        torch.Size([1, 2])
    """
    if _open not in net._forward_pre_hooks.values():
        net.register_forward_pre_hook(_open)
        net.register_forward_hook(_close, always_call=True)
    return net


def compile_in_place(net: nn.Module) -> None:
    """Compile a network as `torch.nn.Module.compile`, with its hooks in the graph of its forward pass.

    By default torch compiles the hooks of the module that it is called with as graphs of their own.
    """
    from torch._dynamo import config  # takes a second to import

    with config.patch(wrap_top_frame=True):
        net.compile()


@contextmanager
def opened_matrices(net: nn.Module) -> Iterator[None]:
    """Assemble the matrices of a network at once inside this context, as `batch_matrices` does in its forward pass."""
    opened = _open_all(net)
    try:
        yield
    finally:
        for weight in opened:
            weight.open(None)


def _open(net: nn.Module, _: object) -> None:
    if opened := _open_all(net):
        net.__dict__["_opened"] = opened


def _open_all(net: nn.Module) -> list[Weight]:
    """Set the matrices of the weights that are batched, and not yet set, and return these weights."""
    opened: list[Weight] = []
    if not torch.is_grad_enabled() or (is_exporting() if is_compiling() else not is_plain_mode()):
        return opened
    for weights in _buckets(net):
        made = matrices([weight.part() for weight in weights], weights[0].product_dtype())
        for weight, matrix in zip(weights, made, strict=True):
            weight.open(matrix)
        opened += weights
    return opened


def _buckets(net: nn.Module) -> Iterator[list[Weight]]:
    """Yield the weights that are assembled together, in the order of the network."""
    buckets: dict[tuple[torch.device, torch.dtype], tuple[list[Weight], int]] = {}
    for weight in net.modules():
        if not isinstance(weight, Weight) or not weight.is_batched or weight.opened() is not None:
            continue
        key = weight.components.device, weight.product_dtype()
        weights, size = buckets.pop(key, ([], 0))
        weights.append(weight)
        size += weight.components.numel() * weight.inp.n**2 // weight.algebra.m * key[1].itemsize
        if size < BUCKET:
            buckets[key] = weights, size
        else:
            yield weights
    yield from (weights for weights, _ in buckets.values())


def _close(net: nn.Module, _: object, __: object) -> None:
    for weight in net.__dict__.pop("_opened", ()):
        weight.open(None)
