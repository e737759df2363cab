"""The rows of `benchmarks.speed.gpu`: training steps, layers, inference, attention and LSTMs, the reference of each row first.

Each row has makers of calls, by name: ``quaternion`` is a network or layer over the quaternions with the planned kernel,
``quaternion bmm_keep`` one with the kernel ``bmm_keep``. Variants of kernels that are not installed are left out.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from benchmarks.speed import fused
from zoo.kernels.base import kernels
from zoo.nn import LSTM, Linear, set_kernel
from zoo.nn.scores import arrange, attend
from zoo.training.bench import Call

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CACHE = 2**27  # bytes, more than a GPU caches


class Row(NamedTuple):
    """A row of the table."""

    name: str
    calls: dict[str, Callable[[], Call]]
    seconds: float
    """Estimated duration on an H100, with building and compiling."""
    goals: dict[str, float] = {}  # noqa: RUF012 (not modified)
    """The ratio to the reference that each call should reach."""
    is_step: bool = False
    """Whether to count the launches and the time of the device."""


class Sizes(NamedTuple):
    """Sizes of the rows that do not depend on a spec."""

    batch: int = 8
    tokens: int = 1024
    images: int = 64
    pixels: int = 224
    vocabulary: int = 8192
    rows: int = 16_384


TINY = Sizes(batch=2, tokens=8, images=2, pixels=32, vocabulary=32, rows=8)


class Autocast(nn.Module):
    """A layer in bfloat16 mixed precision."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        """Call the layer."""
        with torch.autocast(DEVICE, torch.bfloat16):
            return self.layer(x)


def variant(name: str) -> tuple[str, str]:
    """Return the algebra and the kernel of a name such as ``quaternion bmm_keep`` or ``quaternion, kept``."""
    algebra, _, kernel = name.partition(",")[0].partition(" ")
    return algebra, kernel or "auto"


def installed(*names: str) -> Iterator[str]:
    """Yield the names whose kernel exists."""
    known = {"auto", *(kernel.name for kernel in kernels())}
    return (name for name in names if variant(name)[1] in known)


def step(spec: str, name: str, sizes: Sizes, mixed: bool = True, last: bool = False, mode: str | None = None) -> Call:
    """Return a training step of a network with AdamW, with channels ``last`` and compiled in a ``mode``."""
    torch.manual_seed(0)
    algebra, kernel = variant(name)
    if spec.startswith("gpt"):
        net: Any = zoo.backbone(spec, algebra, vocab_size=sizes.vocabulary, max_length=sizes.tokens)
        x, target = (torch.randint(1, sizes.vocabulary, (sizes.batch, sizes.tokens), device=DEVICE) for _ in range(2))
    else:
        net = zoo.backbone(spec, algebra, in_channels=3, image_size=sizes.pixels, num_classes=1000)
        x = torch.randn(sizes.images, 3, sizes.pixels, sizes.pixels, device=DEVICE)
        target = torch.randint(1000, (sizes.images,), device=DEVICE)
    net = net.to(DEVICE)
    if algebra != "real":
        set_kernel(net, kernel)
    if last:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    if mode == "aot_eager":
        net = torch.compile(net, backend=mode)
    elif mode is not None:
        net = torch.compile(net, mode=mode)

    def call() -> None:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=mixed):
            loss = F.cross_entropy(net(x).flatten(0, -2), target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return call


def linear(name: str, inp: int, out: int) -> nn.Module:
    """Create a linear layer without a bias; over the reals, torch's."""
    algebra, kernel = variant(name)
    if algebra == "real":
        return nn.Linear(inp, out, bias=False, device=DEVICE)
    layer = Linear(inp, out, algebra=zoo.algebra(algebra), bias=False).to(DEVICE)
    set_kernel(layer, kernel)
    return layer


def trained(name: str, rows: int, inp: int, out: int) -> Call:
    """Return the forward and backward pass of a linear layer in bfloat16 mixed precision."""
    return fused.trained(Autocast(linear(name, inp, out)), rows, inp, device=DEVICE, dtype=torch.bfloat16)


def evaluated(name: str, size: int, rows: int, graph: bool, cache: int) -> Call:
    """Return a call of bfloat16 layers, which together exceed a ``cache`` of so many bytes; in a CUDA ``graph``."""
    name, _, kept = name.partition(", ")
    weights = size * size / zoo.algebra(variant(name)[0]).n
    net = nn.Sequential(*(linear(name, size, size) for _ in range(math.ceil(cache / 2 / weights)))).bfloat16()
    call = fused.evaluated(net, torch.randn(rows, size, device=DEVICE, dtype=torch.bfloat16), bool(kept))
    return captured(call) if graph else call


def captured(call: Call) -> Call:
    """Return the replay of a CUDA graph of a call; without a GPU the call."""
    if DEVICE == "cpu":
        return call
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def attention(score: str, tokens: int, causal: bool, backward: bool) -> Call:
    """Return attention over quaternions with a score, for 8 x 8 heads of 64 channels."""
    table = zoo.algebra("quaternion").structure.to(DEVICE)
    q, k, v = (torch.randn(8, 8, tokens, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=backward) for _ in range(3))

    def call() -> None:
        keys = k if score == "dot" else arrange(k, table.to(k.dtype), score)
        y = attend(q, keys, v, score, causal=causal)
        if backward:
            y.sum().backward()
            q.grad = k.grad = v.grad = None

    return call


def recurrent(algebra: str, batch: int, steps: int, size: int) -> Call:
    """Return the training of an LSTM; the real one is torch's."""
    layer: Any = nn.LSTM(size, size, batch_first=True) if algebra == "real" else LSTM(size, size, algebra=zoo.algebra(algebra))
    return fused.trained(layer.to(DEVICE), batch, steps, size, device=DEVICE)


def made(make: Callable[..., Call], *names: str, **options: Any) -> dict[str, Callable[[], Call]]:
    """Return the makers of calls for the installed variants; the first argument of ``make`` is the name."""
    return {name: partial(make, name, **options) for name in installed(*names)}


def steps(spec: str, goals: dict[str, float], seconds: float, sizes: Sizes, **options: Any) -> Row:
    """Return the row of the training steps of a network."""
    batch = f"{sizes.batch} x {sizes.tokens:,} tokens" if spec.startswith("gpt") else f"{sizes.images} images"
    notes = [batch, "bfloat16" if options.get("mixed", True) else "tf32"]
    notes += ["channels last"] if options.get("last") else []
    notes += [f"compiled ({options['mode']})"] if "mode" in options else []
    calls = made(lambda name, **rest: step(spec, name, sizes, **rest), "real", *goals, **options)
    return Row(f"step: {spec}, {', '.join(notes)}", calls, seconds, goals, is_step=True)


def table(tiny: bool = False) -> Iterator[Row]:
    """Yield the rows, the most important first; ``tiny`` sizes test the code."""
    sizes = TINY if tiny else Sizes()

    def gpt(dim: int, depth: int, heads: int, ffn: int) -> str:
        shape = (dim // 32, 1, 2, ffn // 64) if tiny else (dim, depth, heads, ffn)
        return "gpt(dim={}, depth={}, heads={}, ffn={})".format(*shape)

    first = gpt(1024, 12, 16, 4096)
    resnet, vit = "timm/resnet50", "vit(dim=768, depth=12, heads=12, patch=16)"
    if tiny:
        resnet, vit = "timm/test_resnet", "vit(dim=32, depth=1, heads=2, patch=16)"
    yield steps(first, {"quaternion": 0.90, "octonion": 0.90, "phm-4": 0.95}, 22, sizes)
    yield steps(gpt(2048, 6, 16, 8192), {"quaternion": 0.85, "quaternion bmm_keep": 0.85}, 18, sizes)
    goals = {"quaternion": 0.70, "quaternion bmm_keep": 0.66, "octonion": 0.70}
    yield steps(gpt(4096, 3, 32, 16384), goals, 35, sizes)
    yield steps(vit, {"quaternion": 0.96}, 14, sizes)
    yield steps(resnet, {"quaternion": 0.93}, 14, sizes)
    yield steps(resnet, {"quaternion": 0.98}, 14, sizes, last=True)
    yield steps(gpt(1024, 6, 16, 512), {"quaternion": 0.98}, 12, sizes, mixed=False)
    yield steps(first, {"quaternion": 0.95}, 60, sizes, mode="aot_eager" if tiny else "default")
    yield from layers(sizes, tiny)
    for size in (16,) if tiny else (1024, 4096):
        for rows in (1, 2 if tiny else 8):
            for graph in (True,) if tiny else (True, False):
                names = ("quaternion", "quaternion, kept", "octonion", "octonion, kept")
                limits = (0.75, 0.5) if size == 1024 else (0.5, 0.5)
                goals = dict(zip(names, limits * 2, strict=True)) if rows == 1 and graph else {}
                options: dict[str, Any] = {"size": size, "rows": rows, "graph": graph, "cache": 1 if tiny else CACHE}
                name = f"inference: {rows} x {size} to {size}, bfloat16{', CUDA graph' if graph else ''}"
                yield Row(name, made(evaluated, "real", *names, **options), 6, goals)
    for causal in (False, True):
        for backward in (False, True):
            limit = {} if backward else {"hermitian": 3.5}
            passes = "forward and backward" if backward else "forward"
            name = f"attention of quaternions, bfloat16, {passes}{', causal' if causal else ''}"
            options = {"tokens": sizes.tokens, "causal": causal, "backward": backward}
            yield Row(name, made(attention, "dot", "product", "hermitian", **options), 4, limit)
    shape = {"batch": 2, "steps": 3, "size": 16} if tiny else {"batch": 64, "steps": 40, "size": 304}
    name = f"LSTM, {' x '.join(map(str, shape.values()))}, tf32"
    yield Row(name, made(recurrent, "real", "quaternion", "octonion", **shape), 4, {"quaternion": 1.05})
    if not tiny:
        yield steps(first, {"quaternion": 0.95}, 90, sizes, mode="reduce-overhead")


def layers(sizes: Sizes, tiny: bool) -> Iterator[Row]:
    """Yield the rows of linear layers."""
    names = "quaternion", "quaternion bmm_keep", "octonion", "octonion bmm_keep"
    shapes = {(4096, 4096): (0.74, 0.92), (4096, 16384): (0.64, 0.72), (8192, 8192): (0.60, 0.67)}
    for (inp, out), (quaternion, octonion) in {(16, 32): (1.0, 1.0)}.items() if tiny else shapes.items():
        goals = dict(zip(names, (quaternion, quaternion, octonion, octonion), strict=True))
        name = f"Linear: {sizes.rows:,} x {inp} to {out}, bfloat16, forward and backward"
        yield Row(name, made(trained, "real", *names, rows=sizes.rows, inp=inp, out=out), 6, goals)
