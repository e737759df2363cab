"""The numbers of this machine that the plan predicts times from, measured in a few seconds."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from zoo.kernels.base import AxisLayout
from zoo.kernels.factored import factored_linear
from zoo.kernels.factors import Factors
from zoo.kernels.plan import BYTES, FORWARD_PASSES, Accelerator, Machine
from zoo.kernels.threads import alone_if, in_threads
from zoo.kernels.triton_linear import MOST_TERMS, constants, triton_linear

ROWS, WIDTH, N, RANK = 2048, 512, 4, 8


def calibrate(repeats: int = 15) -> Machine:
    """Measure the machine with as many threads as torch uses, in float32.

    Every number is of the operation that the plan counts with it: large and narrow products of matrices in one thread, a
    factored product without what its matrices take, one row by a large matrix, a product of two numbers, and an exchange with
    the other threads after an operation that torch shared out.
    """
    with torch.inference_mode():
        one = torch.randn(1024, 1024)
        speed = 2 * 1024**3 / _seconds(lambda: alone_if(True, lambda: one @ one), repeats)
        width = 32
        parts, narrow = torch.randn(64, 256, width), torch.randn(64, width, width)
        reached = 64 * 2 * 256 * width**2 / _seconds(lambda: alone_if(True, lambda: parts @ narrow), repeats)
        half_width = max(width * ((speed / reached) ** 0.5 - 1), 0.1)
        row, large = torch.randn(1, 4096), torch.randn(4096, 4096)
        reading = BYTES * large.numel() / _seconds(lambda: F.linear(row, large), repeats)
        number = torch.ones(1, 1)
        call = _seconds(lambda: number @ number, repeats)
        traffic = _traffic(speed, half_width, repeats)
        handover = _handover(one, repeats)
    return Machine(speed, half_width, traffic, reading, call, handover)


def calibrate_gpu(dtype: torch.dtype, device: str = "cuda", width: int = 4096, repeats: int = 15) -> Accelerator:
    """Measure a GPU for numbers of one type, with 2 width rows: products of matrices, Triton's kernel, copies, small calls."""

    def seconds(function: Callable[[], Any]) -> float:
        def done() -> None:
            function()
            if device == "cuda":
                torch.cuda.synchronize()

        return _seconds(done, repeats)

    x, one = (torch.randn(rows, width, dtype=dtype, device=device) for rows in (2 * width, width))

    def fused(rank: int, n: int, training: bool) -> float:
        layout, own = AxisLayout(width, n), x.detach().requires_grad_(training)
        signs = constants(Factors(*(torch.randint(2, (rank, n)) * 2.0 - 1 for _ in range(3))))
        w = torch.randn(n, layout.width, layout.width, dtype=dtype, device=device, requires_grad=training)

        def call() -> None:
            y = triton_linear(own, w, signs, layout, layout)
            if training:
                torch.autograd.grad(y, (own, w), x)

        return (3 if training else 1) * rank * 4 * width * layout.width**2 / seconds(call)

    few, many = (MOST_TERMS, 4), (2 * MOST_TERMS, 8)
    speed = 4 * width**3 / seconds(lambda: x @ one)
    traffic = 2 * dtype.itemsize * x.numel() / seconds(x.clone)
    number = torch.ones(1, 1, dtype=dtype, device=device)
    return Accelerator(
        speed=speed,
        fused=fused(*few, training=False),
        grouped=fused(*many, training=False),
        fused_training=fused(*few, training=True),
        grouped_training=fused(*many, training=True),
        traffic=traffic,
        call=seconds(lambda: number @ number),
    )


def _traffic(speed: float, half_width: float, repeats: int) -> float:
    """Return the bytes a second at which one thread combines components, forward."""
    x, w = torch.randn(ROWS, WIDTH), torch.randn(N, WIDTH // N, WIDTH // N)
    factors = Factors(torch.randn(RANK, N), torch.randn(RANK, N), torch.randn(RANK, N))
    layout = AxisLayout(WIDTH, N)
    alone = _seconds(lambda: alone_if(True, lambda: factored_linear(x, w, factors, layout, layout)), repeats)
    width = WIDTH // N
    products = RANK * 2 * ROWS * width**2 / speed * (1 + half_width / width) ** 2
    moved = ROWS * BYTES * 2 * width * (FORWARD_PASSES * N + RANK)
    return moved / max(alone - products, alone / 10)


def _handover(matrix: Any, repeats: int) -> float:
    """Return the seconds that sharing out takes, beside the work itself and after an operation of torch's threads."""
    if torch.get_num_threads() == 1:
        return 1e-6
    half = matrix[:256]

    def work(_: Any) -> None:
        torch.mm(half, matrix)

    alone = _seconds(lambda: alone_if(True, lambda: torch.mm(half, matrix)), repeats)

    def shared() -> float:
        torch.add(matrix, 1.0)
        start = time.perf_counter()
        in_threads(work, range(torch.get_num_threads()))
        return time.perf_counter() - start

    return max(min(shared() for _ in range(repeats)) - alone, 1e-6)


def _seconds(function: Callable[[], Any], repeats: int) -> float:
    """Return the shortest time of several calls, which other work on the machine changes least."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
