"""What bounds the ratios of docs/speed.md on a machine: products of matrices, and moving numbers; used by `benchmarks.kernels`.

For a linear layer, forward and backward, with R products of [rows, i] and [i, o] instead of one of [rows, n i] and [n i, n o]:

    products = (time of the R products and of both their gradients) / (time of the real product and of both its gradients)
    bound    = products + (bytes that are combined) / (bytes that are copied in the cache a second) / (time of the real ones)
    combined = the same with the bytes a second at which components are combined (`zoo.kernels.base`)
    shared   = combined + (4 times what sharing out to threads takes, see the same) / (time of the real ones)
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import zoo
from zoo.kernels import factorize
from zoo.kernels.base import TRAFFIC
from zoo.layers import Linear
from zoo.training.bench import side_by_side

TILE = 256
"""Rows of a tile that stays in the cache."""
HANDOVER = 3e-4
"""Seconds to share out work to threads that are not torch's."""
Call = Callable[[], Any]
RANKED = ("quaternion", "octonion", "complex")
DECODED = ((1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024))
"""Matrices of a block of the GPT that decodes."""
DEPTH = 12


def in_threads(work: Callable[[Any], Any], shares: list[Any]) -> None:
    """Call a function on every share, each in a thread of its own that computes alone."""

    def alone(share: Any) -> None:
        torch.set_num_threads(1)
        work(share)

    before = torch.get_num_threads()
    with ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(alone, shares))
    torch.set_num_threads(before)


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
    """Measure products of large and of narrow matrices, and copying of what stays in the cache, by all threads."""
    big, part = torch.randn(4096, 512), torch.randn(8, 4096, 128)
    one, small = torch.randn(512, 512), torch.randn(8, 128, 128)
    whole, parts = seconds(lambda: torch.mm(big, one), 31), seconds(lambda: torch.bmm(part, small), 31)
    threads, repeats = torch.get_num_threads(), 100
    tiles = [(torch.randn(TILE, 512), torch.empty(TILE, 512)) for _ in range(threads)]

    def copy(pair: tuple[Tensor, Tensor]) -> None:
        for _ in range(repeats):
            pair[1].copy_(pair[0])

    moved = seconds(lambda: in_threads(copy, tiles), 31)
    return {
        "gflops_512": round(2 * 4096 * 512**2 / whole / 1e9, 1),
        "gflops_8_parts_of_128": round(2 * 8 * 4096 * 128**2 / parts / 1e9, 1),
        "copy_gb_per_s": round(2 * threads * repeats * TILE * 512 * 4 / moved / 1e9, 2),
    }


def three_products(rows: int, inp: int, out: int) -> Call:
    """Return a call with the products of a real linear layer, forward and of both gradients."""
    x, w, g = torch.randn(rows, inp), torch.randn(inp, out), torch.randn(rows, out)
    return lambda: (x @ w, g @ w.T, x.T @ g)


def products_in_tiles(rank: int, rows: int, inp: int, out: int) -> Call:
    """Return a call with the products of the factored kernel, every thread with a tile of rows that stays in its cache."""
    threads = torch.get_num_threads()
    sizes = ((rank, TILE, inp), (rank, TILE, out), (rank, inp, out))
    memory = [tuple(torch.randn(size) for size in (*sizes, *sizes)) for _ in range(threads)]

    def work(parts: tuple[Tensor, ...]) -> None:
        x, g, w, gx, y, gw = parts
        for _ in range(rows // TILE // threads):
            torch.bmm(x, w, out=y)
            torch.bmm(g, w.mT, out=gx)
            torch.baddbmm(gw, x.mT, g, beta=0.5, out=gw)

    return lambda: in_threads(work, [(x, g, w, gx, y, gw) for x, y, w, gx, g, gw in memory])


def floors(rows: int, inp: int, out: int, rate: float) -> dict[str, dict[str, float]]:
    """Bound the ratios of a linear layer that is trained; of a learned rule by the real product and its matrix."""
    calls, moved = {"real": three_products(rows, inp, out)}, {}
    for algebra in RANKED:
        n, rank = zoo.algebra(algebra).n, factorize(zoo.algebra(algebra).structure).rank
        i, o = inp // n, out // n
        calls[algebra] = products_in_tiles(rank, rows, i, o)
        moved[algebra] = 4 * rows * (i * (9 * n + 3 * rank) + o * (6 * n + 2 * rank))
    times = side_by_side(calls, 7)
    real = times["real"]["ms"] / 1000
    found = {"real": {"ms": 1000 * real}}
    # The real matrix is assembled twice and its gradient summed once; each time parts are written and read, and it is as well.
    assembled, threads = 9 * 4 * inp * out, torch.get_num_threads()
    for algebra in (*RANKED, "phm-4"):
        alone, numbers = (times[algebra]["ratio"], moved[algebra]) if algebra in moved else (1.0, assembled)
        combined = alone + numbers / (TRAFFIC * threads) / real
        shared = combined + 4 * HANDOVER / real if algebra in moved else combined
        found[algebra] = {"products": alone, "bound": alone + numbers / rate / real, "combined": combined, "shared": shared}
        found[algebra] = {key: round(value, 3) for key, value in found[algebra].items()}
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


def optimizer_ms(numbers: int) -> float:
    """Measure a step of AdamW on so many numbers."""
    weight = nn.Parameter(torch.randn(numbers))
    weight.grad = torch.randn(numbers)
    return 1000 * seconds(torch.optim.AdamW([weight], lr=1e-4).step)


def network_floor(net: nn.Module, call: Call, algebra: str, real_ms: float, rate: float) -> dict[str, float]:
    """Bound the ratio of a training step, in which nothing but its linear layers and their part of AdamW get faster."""
    real, own = 0.0, 0.0
    for (rows, inp, out), count in shapes(net, call).items():
        bounds = floors(rows, inp, out, rate)
        n = zoo.algebra(algebra).n
        step = optimizer_ms(inp * out) - optimizer_ms(inp * out // n)
        real += count * (bounds["real"]["ms"] + step)
        own += count * bounds["real"]["ms"] * min(bounds[algebra]["bound"], 1.0)
    return {"share": round(real / real_ms, 3), "bound": round(1 - (real - own) / real_ms, 3)}


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
    return {algebra: {"products": found[algebra]["ratio"], "bound": found[algebra]["ratio"]} for algebra in names}


def thin(w: Tensor, columns: Tensor) -> Call:
    """Return a call with the products of the thin kernel."""
    n = len(w)
    if len(columns) <= 8:
        return lambda: torch.bmm(columns.expand(n, -1, -1), w.mT)
    return lambda: torch.bmm(w, columns.T.expand(n, -1, -1))


def decoding_floor(real_ms: float, tokens: int) -> dict[str, float]:
    """Bound the ratio of decoding, in which nothing but the products of one row gets faster, over the quaternions."""
    saved, saved_by_layers = 0.0, 0.0
    for inp, out in DECODED:
        row, columns = torch.randn(1, inp), torch.randn(4, inp // 4)
        matrices = [torch.randn(out, inp) for _ in range(DEPTH)]
        parts = [torch.randn(4, out // 4, inp // 4) for _ in range(DEPTH)]
        calls = {"real": each(lambda m, r=row: torch.nn.functional.linear(r, m), matrices)}
        calls["own"] = each(lambda w, c=columns: thin(w, c)(), parts)
        layers = [Linear(zoo.algebra("quaternion"), inp, out).eval() for _ in range(DEPTH)]
        calls["layers"] = lambda ls=layers, r=row: [layer(r) for layer in ls]  # type: ignore[misc]
        with torch.inference_mode():
            found = side_by_side(calls, 15)
        saved += tokens * (found["real"]["ms"] - found["own"]["ms"])
        saved_by_layers += tokens * (found["real"]["ms"] - found["layers"]["ms"])
    bounds = {"bound": 1 - saved / real_ms, "combined": 1 - saved_by_layers / real_ms}
    return {key: round(value, 3) for key, value in bounds.items()}


def each(call: Callable[[Tensor], Any], tensors: list[Tensor]) -> Call:
    """Return a call that goes through all tensors."""
    return lambda: [call(one) for one in tensors]
