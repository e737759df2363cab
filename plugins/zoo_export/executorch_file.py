"""Write ExecuTorch programs, and run them with its Python runtime."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.inference.model import Model
from zoo_export.tracing import check_equal, program, refusing


def write_executorch(model: Model, net: nn.Module, file: Path, output: str) -> dict[str, Any]:
    """Write a network for ExecuTorch with one row per call, and compare it with the model; the network is changed.

    XNNPACK computes the operators that it has, ExecuTorch's portable kernels all others.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    with refusing(model):
        try:
            lowered, network = lower(model, net, [XnnpackPartitioner()])
            backend = "XNNPACK"
        except RuntimeError:  # its partitioner accepts tensors of more than six axes, which its runtime does not load
            lowered, network = lower(model, net, [])
            backend = "portable kernels"
    file.write_bytes(lowered.buffer)
    planned = sum(lowered.executorch_program.execution_plan[0].non_const_buffer_sizes)
    return {"max_difference": check_equal(model, network), "backend": backend, "activation_bytes": planned}


def lower(model: Model, net: nn.Module, partitioners: list[Any]) -> tuple[Any, "ExecutorchNetwork"]:
    """Return the program of a network, and the program in the runtime."""
    from executorch.exir import to_edge_transform_and_lower

    exported = program(model, net.requires_grad_(False), rows=1)
    lowered = to_edge_transform_and_lower(exported, partitioner=partitioners).to_executorch()
    return lowered, ExecutorchNetwork(lowered.buffer)


class ExecutorchNetwork(nn.Module):
    """An ExecuTorch program."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        from executorch.runtime import Runtime

        self.program = Runtime.get().load_program(content)  # owns the memory of its methods
        self.method: Any = self.program.load_method("forward")

    def forward(self, *inputs: Tensor) -> Tensor:
        """Run the network, row by row."""
        rows = zip(*(x.split(1) for x in inputs), strict=True)
        return torch.cat([self.method.execute(row)[0] for row in rows])
