"""The number of threads of a run on a CPU, chosen from the work of its network."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from zoo.nn import keep_matrices

WORK = 2**24  # multiplications of an average matrix product for each thread
RULE = "one thread for every 2^24 multiplications of an average matrix product of a training step; idle threads sleep"


def count_threads(work: float, most: int) -> int:
    """Return the number of threads for matrix products of ``work`` multiplications on average.

    Waking a thread costs as much time as some millions of multiplications, so a small network is fastest on one thread, also
    among other busy processes. The number depends neither on the load nor on a measurement, so it repeats.

    >>> count_threads(5e6, 16), count_threads(5e7, 16), count_threads(1e9, 16)
    (1, 2, 16)
    """
    return max(1, min(most, int(work / WORK)))


def average_work(net: nn.Module, inputs: tuple[Tensor, ...], batch_size: int) -> float:
    """Return the multiplications of a forward pass on a batch, divided by the number of weight matrices.

    They are counted on a few example inputs, in evaluation mode and without changing the network.
    """
    modes = {module: module.training for module in net.modules()}
    rnn = {torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops}
    with torch.no_grad(), keep_matrices(net), FlopCounterMode(display=False, custom_mapping=rnn) as counter:
        try:
            net.eval()(*inputs)
        finally:
            for module, mode in modes.items():
                module.training = mode
    matrices = sum(parameter.dim() > 1 for parameter in net.parameters())
    return float(counter.get_total_flops()) / 2 * batch_size / len(inputs[0]) / max(1, matrices)


def _recurrent_flops(x: Any, to_gates: Any, of_states: Any, *_: object, **__: object) -> int:
    """Count the operations of a layer of an LSTM, for the shapes [steps, batch, in], [gates, in] and [gates, states]."""
    return int(2 * x[0] * x[1] * to_gates[0] * (to_gates[1] + of_states[1]))


def choose_threads(net: nn.Module, info: Any, batch_size: int | None) -> None:
    """Reduce torch's threads to those that a network needs, unless environment variables set their number."""
    if info is None or batch_size is None or {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & set(os.environ):
        return
    example = info.example_inputs(2)
    work = average_work(net, example if isinstance(example, tuple) else (example,), batch_size)
    torch.set_num_threads(count_threads(work, torch.get_num_threads()))


@contextmanager
def restored_threads() -> Iterator[None]:
    """Restore the number of threads after a run."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
