"""What bounds the ratios of docs/speed.md on a machine: products of matrices, and moving numbers; used by `benchmarks.kernels`.

For a linear layer, forward and backward, with R products of [rows, i] and [i, o] instead of one of [rows, n i] and [n i, n o]:

    products alone = (time of the R products and of both their gradients) / (time of the real product and of both its gradients)
    with moving    = products alone + (bytes that are combined) / (measured bytes a second) / (time of the real ones)
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import zoo
from zoo.kernels import factorize
from zoo.layers import Linear
from zoo.training.bench import side_by_side

Call = Callable[[], Any]
RANKED = ("quaternion", "octonion", "complex")
DECODED = ((1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024))
"""Matrices of a block of the GPT that decodes."""
DEPTH = 12


def seconds(call: Call, repeats: int = 9) -> float:
    """Return the median time of a call."""
    times = []
    for number in range(repeats + 2):
        start = time.perf_counter()
        call()
        if number > 1:
            times.append(time.perf_counter() - start)
    return median(times)


def machine_rates() -> dict[str, float]:
    """Measure products of large and of narrow matrices, and copying."""
    big, part = torch.randn(4096, 512), torch.randn(8, 4096, 128)
    one, small, target = torch.randn(512, 512), torch.randn(8, 128, 128), torch.empty(4096, 512)
    whole, parts = seconds(lambda: torch.mm(big, one), 31), seconds(lambda: torch.bmm(part, small), 31)
    moved = seconds(lambda: target.copy_(big), 31)
    return {
        "gflops_512": round(2 * 4096 * 512**2 / whole / 1e9, 1),
        "gflops_8_parts_of_128": round(2 * 8 * 4096 * 128**2 / parts / 1e9, 1),
        "copy_gb_per_s": round(2 * big.numel() * 4 / moved / 1e9, 2),
    }


def three_products(batch: tuple[int, ...], rows: int, inp: int, out: int) -> Call:
    """Return a call with the products of a linear layer, forward and of both gradients."""
    x, w, g = torch.randn(*batch, rows, inp), torch.randn(*batch, inp, out), torch.randn(*batch, rows, out)

    def call() -> tuple[Tensor, Tensor, Tensor]:
        return x @ w, g @ w.mT, x.mT @ g

    return call


def floors(rows: int, inp: int, out: int, rate: float) -> dict[str, dict[str, float]]:
    """Bound the ratios of a linear layer that is trained; of a learned rule by the real product and its matrix."""
    calls, moved = {"real": three_products((), rows, inp, out)}, {}
    for algebra in RANKED:
        n, rank = zoo.algebra(algebra).n, factorize(zoo.algebra(algebra).structure).rank
        i, o = inp // n, out // n
        calls[algebra] = three_products((rank,), rows, i, o)
        moved[algebra] = 4 * rows * (i * (9 * n + 3 * rank) + o * (6 * n + 2 * rank))
    times = side_by_side(calls, 7)
    real = times["real"]["ms"] / 1000
    found = {"real": {"ms": 1000 * real}}
    # The real matrix is assembled twice and its gradient summed once; each time parts are written and read, and it is as well.
    block = 1 + 9 * 4 * inp * out / rate / real
    for algebra in RANKED:
        alone = times[algebra]["ratio"]
        found[algebra] = {"products": alone, "with_moving": round(min(alone + moved[algebra] / rate / real, block), 3)}
    found["phm-4"] = {"products": 1.0, "with_moving": round(block, 3)}
    return found


def shapes(net: nn.Module, call: Call) -> dict[tuple[int, int, int], int]:
    """Count the linear layers over an algebra of a network by rows, inputs and outputs."""
    found: dict[tuple[int, int, int], int] = {}

    def note(layer: nn.Module, args: tuple[Any, ...]) -> None:
        if isinstance(layer, Linear) and layer.algebra.n > 1:
            key = args[0].numel() // layer.in_features, layer.in_features, layer.out_features
            found[key] = found.get(key, 0) + 1

    hooks = [layer.register_forward_pre_hook(note) for layer in net.modules()]
    call()
    for hook in hooks:
        hook.remove()
    return found


def network_floor(net: nn.Module, call: Call, algebra: str, real_ms: float, rate: float) -> dict[str, float]:
    """Bound the ratio of a training step, in which nothing but the products of its linear layers gets faster."""
    real, own = 0.0, 0.0
    for (rows, inp, out), count in shapes(net, call).items():
        bounds = floors(rows, inp, out, rate)
        real += count * bounds["real"]["ms"]
        own += count * bounds["real"]["ms"] * bounds[algebra]["with_moving"]
    return {"share": round(real / real_ms, 3), "floor": round(1 - (real - own) / real_ms, 3)}


def evaluation_floors(size: int, rows: int, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Bound the ratios of a few rows by the products w_i x_j alone, beside the real product."""
    x, matrix = torch.randn(rows, size), torch.randn(size, size)
    calls: dict[str, Call] = {"real": lambda: torch.nn.functional.linear(x, matrix)}
    for algebra in names:
        n = zoo.algebra(algebra).n
        w, columns = torch.randn(n, size // n, size // n), torch.randn(rows * n, size // n)
        calls[algebra] = thin(w, columns)
    with torch.inference_mode():
        found = side_by_side(calls, 41)
    return {algebra: {"products": found[algebra]["ratio"]} for algebra in names}


def thin(w: Tensor, columns: Tensor) -> Call:
    """Return a call with the products of the thin kernel."""
    n = len(w)
    if len(columns) <= 8:
        return lambda: torch.bmm(columns.expand(n, -1, -1), w.mT)
    return lambda: torch.bmm(w, columns.T.expand(n, -1, -1))


def decoding_floor(real_ms: float, tokens: int) -> dict[str, float]:
    """Bound the ratio of decoding, in which nothing but the products of one row gets faster, over the quaternions."""
    saved, whole = 0.0, 0.0
    for inp, out in DECODED:
        row, columns = torch.randn(1, inp), torch.randn(4, inp // 4)
        matrices = [torch.randn(out, inp) for _ in range(DEPTH)]
        parts = [torch.randn(4, out // 4, inp // 4) for _ in range(DEPTH)]
        calls = {"real": each(lambda m, r=row: torch.nn.functional.linear(r, m), matrices)}
        calls["own"] = each(lambda w, c=columns: thin(w, c)(), parts)
        with torch.inference_mode():
            found = side_by_side(calls, 15)
        whole += tokens * found["real"]["ms"]
        saved += tokens * (found["real"]["ms"] - found["own"]["ms"])
    return {"share": round(whole / real_ms, 3), "floor": round(1 - saved / real_ms, 3)}


def each(call: Callable[[Tensor], Any], tensors: list[Tensor]) -> Call:
    """Return a call that goes through all tensors."""
    return lambda: [call(one) for one in tensors]
