"""Measure layers and networks on a GPU: ``python -m benchmarks.gpu [speed|train] [--minutes 3] [--jobs 4]``.

``speed`` compares times with those of the same layer or network over the reals, alternately in one process, by CUDA events.
``train`` trains every backbone for 20 steps in float32 and bfloat16 and evaluates the saved model on the GPU and on the CPU;
its errors of a layer are relative to float64 on the CPU. Writes benchmarks/results/gpu.json after each case;
``python -m benchmarks.speed_page`` writes docs/speed.md from it.
"""

import argparse
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from benchmarks import fused, machine
from zoo.errors import one_line
from zoo.nn import LSTM, Linear
from zoo.nn.kernel_choice import set_kernel
from zoo.nn.scores import arrange, attend
from zoo.training.bench import Call

RESULTS = Path(__file__).parent / "results" / "gpu.json"
ALGEBRAS = ("real", "quaternion", "phm-4", "octonion")
BACKBONES = (
    "vit",
    "gpt/micro",
    "transformer",
    "lstm",
    "decomposable_attention",
    "timm/resnet18",
    "convnet/resnet-8",
    "transformer_xl",
    "cnn",
    "mlp",
    "fasttext",
)
ROWS = 16_384
Case = tuple[str, Callable[[], dict[str, Call]]]


def timed(calls: dict[str, Call], rounds: int, target: float = 4.0) -> dict[str, dict[str, float]]:
    """Time calls in turn, each repeated for about ``target`` milliseconds; the ratios are to the first call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def milliseconds(call: Call, repeats: int) -> float:
        torch.cuda.synchronize()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / repeats

    memory, repeats = {}, {}
    for name, call in calls.items():
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        milliseconds(call, 2)
        memory[name] = (torch.cuda.max_memory_allocated() - before) / 2**20
        repeats[name] = max(1, min(200, round(target / milliseconds(call, 2))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffled = list(calls), random.Random(0)
    for _ in range(rounds):
        shuffled.shuffle(order)
        for name in order:
            times[name].append(milliseconds(calls[name], repeats[name]))
    reference, result = times[next(iter(calls))], {}
    for name, values in times.items():
        low, middle, high = quantiles([value / base for value, base in zip(values, reference, strict=True)], n=4)
        result[name] = {"ms": round(median(values), 4), "ratio": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}
        result[name] |= {"peak_mb": round(memory[name], 1)}
    return result


class Autocast(nn.Module):
    """A layer in bfloat16 mixed precision."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        """Call the layer."""
        with torch.autocast("cuda", torch.bfloat16):
            return self.layer(x)


def linear(algebra: str, size: int, kernel: str = "auto") -> nn.Module:
    """Create a linear layer on the GPU; over the reals, torch's."""
    if algebra == "real":
        return nn.Linear(size, size, device="cuda")
    layer = Linear(size, size, algebra=zoo.algebra(algebra)).cuda()
    set_kernel(layer, kernel)
    return layer


def trained(layer: nn.Module, is_bfloat16: bool, *shape: int) -> Call:
    """Return a call that runs the forward and backward pass of a layer in float32 or bfloat16 mixed precision."""
    layer, dtype = (Autocast(layer), torch.bfloat16) if is_bfloat16 else (layer, torch.float32)
    return fused.trained(layer, *shape, device="cuda", dtype=dtype)


def layers(size: int, is_bfloat16: bool, *kernels: str) -> dict[str, Call]:
    """Return the training of linear layers over the reals, and over algebras with kernels, as in ``quaternion triton``."""
    pairs = [name.partition(" ") for name in kernels]
    named = {name: linear(algebra, size, kernel or "auto") for name, (algebra, _, kernel) in zip(kernels, pairs, strict=True)}
    return {name: trained(layer, is_bfloat16, ROWS, size) for name, layer in {"real": linear("real", size), **named}.items()}


def evaluated(size: int, rows: int) -> dict[str, Call]:
    """Return evaluations of linear layers in bfloat16, with matrices kept and not."""
    x = torch.randn(rows, size, device="cuda", dtype=torch.bfloat16)
    names = "real", "quaternion, kept", "quaternion"
    made = {name: linear(name.partition(",")[0], size).bfloat16() for name in names}
    return {name: fused.evaluated(layer, x, "kept" in name) for name, layer in made.items()}


def recurrent(batch: int, steps: int, size: int, is_bfloat16: bool) -> dict[str, Call]:
    """Return the training of LSTMs; the real one is torch's."""
    named: dict[str, nn.Module] = {"real": nn.LSTM(size, size, batch_first=True)}
    named |= {name: LSTM(size, size, batch_first=True, algebra=zoo.algebra(name)) for name in ("quaternion", "octonion")}
    return {name: trained(layer.cuda(), is_bfloat16, batch, steps, size) for name, layer in named.items()}


def attention(algebra: str, is_causal: bool) -> dict[str, Call]:
    """Return forward and backward passes of attention with scores, 8 x 8 heads of 64 channels and 1,024 positions."""
    table = zoo.algebra(algebra).structure.cuda()
    q, k, v = (torch.randn(8, 8, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def call(score: str) -> None:
        keys = k if score == "dot" else arrange(k, table.to(k.dtype), score)
        attend(q, keys, v, score, causal=is_causal).sum().backward()
        q.grad = k.grad = v.grad = None

    return {score: partial(call, score) for score in ("dot", "product", "hermitian")}


def networks(spec: str, batch: int, is_compiled: bool = False, algebras: tuple[str, ...] = ALGEBRAS) -> dict[str, Call]:
    """Return training steps of networks with AdamW in bfloat16: images of 224 x 224, or texts of 1,024 tokens."""
    return {algebra: step(spec, batch, algebra, is_compiled) for algebra in algebras}


def step(spec: str, batch: int, algebra: str, is_compiled: bool) -> Call:
    """Return a training step of a network."""
    torch.manual_seed(0)
    if spec.startswith("vit"):
        net: Any = zoo.backbone(spec, algebra, in_channels=3, image_size=224, num_classes=1000)
        x, target = torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(1000, (batch,), device="cuda")
    else:
        net = zoo.backbone(spec, algebra, vocab_size=8192, max_length=1024)
        x, target = (torch.randint(1, 8192, (batch, 1024), device="cuda") for _ in range(2))
    optimizer = torch.optim.AdamW(net.cuda().parameters(), lr=1e-4, fused=True)
    net = torch.compile(net) if is_compiled else net

    def call() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(net(x).flatten(0, -2), target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return call


def cases() -> Iterator[Case]:
    """Yield the names of cases and functions that create their calls, the reference first."""
    for size in (1024, 2048, 4096, 8192):
        for is_bfloat16 in (True, False):
            others = ("quaternion", "phm-4", "octonion", *(() if is_bfloat16 else ("quaternion factored", "octonion factored")))
            name = f"Linear, {ROWS:,} x {size} to {size}, {'bfloat16' if is_bfloat16 else 'tf32'}"
            yield name, partial(layers, size, is_bfloat16, *others)
    vit, gpt = "vit(dim=768, depth=12, heads=12, patch=16)", "gpt(dim=1024, depth=12, heads=16)"
    yield f"{vit}, 64 images, bfloat16", partial(networks, vit, 64)
    yield f"{gpt}, 8 x 1,024 tokens, bfloat16", partial(networks, gpt, 8)
    for batch, steps, size in ((64, 40, 304), (64, 128, 1024)):
        yield f"LSTM, {batch} x {steps} x {size}, tf32", partial(recurrent, batch, steps, size, False)
    for size in (1024, 4096):
        for rows in (1, 8):
            yield f"inference, {rows} x {size} to {size}, bfloat16", partial(evaluated, size, rows)
    yield "attention of quaternions, bfloat16", partial(attention, "quaternion", False)
    for size in (1024, 2048):
        for is_bfloat16 in (True, False):
            name = f"Triton, {ROWS:,} x {size} to {size}, {'bfloat16' if is_bfloat16 else 'tf32'}"
            yield name, partial(layers, size, is_bfloat16, "quaternion triton")
    yield f"compiled {gpt}, 8 x 1,024 tokens, bfloat16", partial(networks, gpt, 8, True, ("real", "quaternion"))


def measure_speed(minutes: float, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the time of each case that can be started before ``minutes`` have passed."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    start = time.monotonic()
    for name, make in cases():
        if time.monotonic() - start > 60 * minutes:
            return
        try:
            row: dict[str, Any] = {"case": name, "calls": timed(make(), rounds)}
        except Exception as error:  # a case that fails is a result
            row = {"case": name, "error": one_line(error, 300)}
        torch.cuda.empty_cache()
        yield row | {"seconds": round(time.monotonic() - start, 1)}


# --- training ---


def check_layers(algebra: str) -> Iterator[dict[str, Any]]:
    """Yield the relative errors of the output and gradients of layers on the GPU against float64 on the CPU."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    kernels: tuple[str, ...] = ("auto",) if algebra == "real" else ("block", "factored", "triton")
    if algebra in ("phm-4", "octonion"):
        kernels = ("block", "factored")  # Triton takes fixed products; 30 terms of octonions take long to compile
    for kernel in ("lstm", *kernels):
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            inp, out = (56, 56) if kernel == "lstm" else (104, 72)
            make = LSTM if kernel == "lstm" else Linear
            layer = make(zoo.algebra(algebra), inp, out).double()
            x, name = torch.randn(6, 7, inp, dtype=torch.float64), f"{algebra}, {kernel}, {str(dtype).removeprefix('torch.')}"
            try:
                expected = gradients(layer, x)
                layer = layer.to("cuda", dtype)
                if kernel != "lstm":
                    set_kernel(layer, kernel)
                actual = gradients(layer, x.to("cuda", dtype))
                errors = [float((a.cpu().double() - b).norm() / b.norm()) for a, b in zip(actual, expected, strict=True)]
                yield {"layer": name, "error": max(errors)}
            except Exception as error:  # a layer that fails is a result
                yield {"layer": name, "failed": one_line(error, 300)}


def gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the output of a layer, and the gradients of the input and the parameters."""
    x = x.clone().requires_grad_()
    y = layer(x)
    y = y[0] if isinstance(y, tuple) else y
    wanted = [x, *layer.parameters()]
    return [y, *torch.autograd.grad(y.square().sum(), wanted)]


def check_training(algebra: str, backbone: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the results of training a backbone for 20 steps: the model is evaluated on both devices."""
    plain = [("32-true", False), ("bf16-mixed", False)]
    compiled = [("bf16-mixed", True)] if backbone in ("vit", "gpt/micro") and algebra in ("real", "quaternion") else []
    for precision, is_compiled in plain + compiled:
        row: dict[str, Any] = {"backbone": backbone, "algebra": algebra, "precision": precision, "compiled": is_compiled}
        start, run = time.monotonic(), folder / f"{backbone.replace('/', '-')}-{algebra}-{precision}-{is_compiled}"
        trainer = {"max_steps": 20, "precision": precision, "limit_val_batches": 2, "limit_test_batches": 2}
        options = {"backbone": backbone, "algebra": algebra, "compile": is_compiled, "run_dir": str(run)}
        try:
            zoo.fit(verbose=False, trainer=trainer, **options)
            row["seconds"] = round(time.monotonic() - start, 1)
            for device in ("cuda", "cpu"):
                model = zoo.load(run, device=device)
                row[device] = model.evaluate()
                if backbone == "gpt/micro":
                    row[f"text_{device}"] = model.generate("The ", length=24, temperature=0.0)
        except Exception as error:  # a run that fails is a result
            row["failed"] = one_line(error, 300)
        yield row


def check(algebra: str, backbone: str | None) -> list[dict[str, Any]]:
    """Return the results of an algebra: those of its layers, or of training a backbone."""
    with TemporaryDirectory() as folder:
        return list(check_training(algebra, backbone, Path(folder)) if backbone else check_layers(algebra))


def measure_training(jobs: int) -> Iterator[dict[str, Any]]:
    """Run the checks in parallel processes and yield their results."""
    backbones, algebras = zip(*itertools.product((None, *BACKBONES), ALGEBRAS), strict=True)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for rows in pool.map(check, algebras, backbones):
            yield from rows


def main() -> None:
    """Measure one kind of result and store it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "train"), nargs="?", default="speed")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no case after this time")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=4, help="number of processes that train")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu: torch sees no CUDA device")
    stored: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    about = {"machine": machine.info() | {"cuda": torch.version.cuda}, "commit": machine.commit()}
    rows: list[dict[str, Any]] = []
    measured = measure_training(options.jobs) if options.what == "train" else measure_speed(options.minutes, options.rounds)
    for row in measured:
        rows.append(row)
        print(json.dumps(row), flush=True)
        machine.write(options.out, stored | {options.what: about | {"rows": rows}})


if __name__ == "__main__":
    main()
