"""Measure layers and networks on a GPU: ``python -m benchmarks.speed.gpu [speed|train] [--minutes 4]``.

``speed`` first compares every kernel with float64 on the CPU, and then compares the time of each row of
`benchmarks.speed.gpu_rows` with that of its first call, alternately in one process: wall time with synchronization. It writes
each row when it is measured, starts no row that would not end in time, and skips the rows that were measured at the same
commit on the same device, so that several runs complete the table. ``--tiny`` runs all rows in tiny sizes, on any device.
``train`` trains every backbone for 20 steps in float32 and bfloat16 and evaluates the saved model on the GPU and on the CPU;
its errors of a layer are relative to float64 on the CPU. Writes benchmarks/results/gpu.json after each case;
``python -m benchmarks.speed.speed_page`` writes docs/speed.md from it.
"""

import argparse
import itertools
import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.profiler import profile

import zoo
from benchmarks import machine
from benchmarks.speed.gpu_rows import DEVICE, Row, table, variant
from zoo.errors import one_line
from zoo.kernels.base import kernels
from zoo.nn import LSTM, Linear
from zoo.nn.kernel_choice import set_kernel
from zoo.nn.scores import arrange, attend
from zoo.training.bench import Call

RESULTS = machine.RESULTS / "gpu.json"
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
BOUNDS = {"float32": 1e-4, "bfloat16": 5e-2}  # largest relative error of a kernel that is measured
FEW_ROWS = " in inference"
MARGIN = 15.0  # seconds after the end of the time at which a row is interrupted


# --- speed ---


def synchronize() -> None:
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def milliseconds(call: Call, repeats: int) -> float:
    """Return the wall time of a call."""
    synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronize()
    return 1000 * (time.perf_counter() - start) / repeats


def allocated(peak: bool = False) -> float:
    """Return the allocated memory of the device in MB, now or at most."""
    if DEVICE == "cpu":
        return 0.0
    return (torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()) / 2**20


def prepared(row: Row) -> tuple[dict[str, Call], dict[str, dict[str, Any]]]:
    """Build and warm up the calls of a row; return them and what they allocate, or their errors."""
    calls, facts = {}, {}
    for name, make in row.calls.items():
        before = allocated()
        try:
            call = make()
            milliseconds(call, 3)
            held = allocated()
            if DEVICE == "cuda":
                torch.cuda.reset_peak_memory_stats()
            milliseconds(call, 1)
            facts[name] = {"held_mb": round(held - before, 1), "peak_mb": round(allocated(peak=True) - held, 1)}
            facts[name] |= launches(call) if row.is_step else {}
            calls[name] = call
        except TimeoutError:
            raise
        except Exception as error:  # a call that fails is a result
            facts[name] = {"error": one_line(error, 300)}
    return calls, facts


def launches(call: Call) -> dict[str, Any]:
    """Count what a call launches on the device, and its time there; without a GPU the operators on the CPU."""
    kind = DeviceType.CUDA if DEVICE == "cuda" else DeviceType.CPU
    with profile() as profiled:
        call()
        synchronize()
    events = [event for event in profiled.key_averages() if event.device_type == kind]
    busy = sum(event.self_device_time_total if DEVICE == "cuda" else event.self_cpu_time_total for event in events)
    return {"launches": sum(event.count for event in events), "busy_ms": round(busy / 1000, 3)}


def timed(calls: dict[str, Call], rounds: int, deadline: float, target: float) -> dict[str, dict[str, float]]:
    """Time calls in turn, each repeated for about ``target`` milliseconds; the ratios are to the first call."""
    repeats = {name: max(1, min(200, round(target / milliseconds(call, 2)))) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffled = list(calls), random.Random(0)
    for number in range(rounds):
        if number >= 3 and time.monotonic() > deadline:
            break
        shuffled.shuffle(order)
        for name in order:
            times[name].append(milliseconds(calls[name], repeats[name]))
    reference, result = times[next(iter(calls))], {}
    for name, values in times.items():
        ratios = [value / base for value, base in zip(values, reference, strict=True)]
        low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else 3 * ratios
        result[name] = {"ms": round(median(values), 4), "ratio": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}
    return result


def measure(row: Row, wrong: set[str], rounds: int, deadline: float, target: float) -> dict[str, Any]:
    """Return the results of a row, without the variants whose algebra and kernel have a ``wrong`` result."""
    suffix = FEW_ROWS if row.name.startswith("inference") else ""
    names = [name for name in row.calls if not {variant(name)[0], variant(name)[0] + suffix} & wrong]
    chosen = row._replace(calls={name: row.calls[name] for name in names})
    calls, facts = prepared(chosen)
    times = timed(calls, rounds, deadline, target) if next(iter(row.calls)) in calls else {}
    result: dict[str, Any] = {name: times.get(name, {}) | fact for name, fact in facts.items()}
    result |= {name: {"error": "its values or gradients are wrong"} for name in row.calls if name not in result}
    return {"case": row.name, "goals": row.goals, "calls": result}


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in a row that takes longer, where the system has alarms."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def interrupt(*_: Any) -> None:
        raise TimeoutError("no time left")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def measure_speed(done: set[str], minutes: float, rounds: int, tiny: bool) -> Iterator[dict[str, Any]]:
    """Yield the errors of the kernels, and the rows that are not ``done`` and fit into the time."""
    start, end = time.monotonic(), time.monotonic() + 60 * minutes
    checks = [check for algebra in ALGEBRAS[1:] for check in (*check_layers(algebra), *check_few_rows(algebra))]
    checks += check_attention()
    wrong = {check["layer"].partition(",")[0] for check in checks if is_wrong(check)}
    yield {"case": "errors", "checks": checks, "seconds": round(time.monotonic() - start, 1)}
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    for row in table(tiny):
        begin = time.monotonic()
        if row.name in done or begin + row.seconds > end:
            continue
        try:
            with interrupted(end + MARGIN - begin):
                result = measure(row, wrong, rounds, min(begin + row.seconds, end), 0.0 if tiny else 20.0)
        except TimeoutError:
            return
        torch.compiler.reset()
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
        yield result | {"seconds": round(time.monotonic() - begin, 1)}


def is_wrong(check: dict[str, Any]) -> bool:
    """Return whether a layer failed or its error is too large; NaN is."""
    return "failed" in check or not check["error"] <= BOUNDS[check["layer"].rpartition(", ")[2]]


def write_speed(path: Path, minutes: float, rounds: int, tiny: bool, commit: str | None) -> None:
    """Measure rows and add each to the results."""
    about = {"machine": machine.info() | {"cuda": torch.version.cuda}, "commit": commit}

    def is_current(row: dict[str, Any]) -> bool:
        return row["commit"] == commit and row["machine"]["device"] == about["machine"]["device"]

    source = path if path.exists() else RESULTS
    stored: dict[str, Any] = {} if tiny else json.loads(source.read_text(encoding="utf-8"))
    rows = {row["case"]: row for row in stored.get("table", [])}
    done = {name for name, row in rows.items() if is_current(row)}
    for row in measure_speed(done, minutes, rounds, tiny):
        rows[row["case"]] = row | about
        print(json.dumps(row), flush=True)
        machine.write(path, stored | {"table": list(rows.values())})


# --- training ---


def check_layers(algebra: str) -> Iterator[dict[str, Any]]:
    """Yield the relative errors of the output and gradients of layers on the GPU against float64 on the CPU."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    names = {kernel.name for kernel in kernels() if kernel.missing() is None}
    names -= {"triton", "bmm"} if algebra == "octonion" else set()  # 30 terms take long to compile
    for kernel in ("lstm", "auto", *(() if algebra == "real" else sorted(names))):
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            inp, out = (56, 56) if kernel == "lstm" else (104, 72)
            make = partial(LSTM, batch_first=True) if kernel == "lstm" else Linear
            layer = make(inp, out, algebra=algebra).double()
            x, name = torch.randn(6, 7, inp, dtype=torch.float64), f"{algebra}, {kernel}, {str(dtype).removeprefix('torch.')}"
            try:
                expected = gradients(layer, x)
                layer = layer.to(DEVICE, dtype)
                if kernel != "lstm":
                    set_kernel(layer, kernel)
                actual = gradients(layer, x.to(DEVICE, dtype))
                errors = [float((a.cpu().double() - b).norm() / b.norm()) for a, b in zip(actual, expected, strict=True)]
                yield {"layer": name, "error": max(errors)}
            except Exception as error:  # a layer that fails is a result
                yield {"layer": name, "failed": one_line(error, 300)}


def check_few_rows(algebra: str) -> Iterator[dict[str, Any]]:
    """Yield the relative error of a linear layer for 1 and 9 rows, without gradients, against float64 on the CPU."""
    for rows, dtype in itertools.product((1, 9), (torch.float32, torch.bfloat16)):
        torch.manual_seed(0)
        layer, x = Linear(104, 72, algebra=algebra).double(), torch.randn(rows, 104, dtype=torch.float64)
        name = f"{algebra}{FEW_ROWS}, {rows} rows, {str(dtype).removeprefix('torch.')}"
        with torch.no_grad():
            yield compare(name, lambda x: [layer.to(x.device, x.dtype)(x)], x, dtype)  # noqa: B023 (called at once)


def check_attention() -> Iterator[dict[str, Any]]:
    """Yield the relative errors of causal hermitian attention and its gradients against float64 on the CPU."""
    structure = zoo.algebra("quaternion").structure

    def call(qkv: Tensor) -> list[Tensor]:
        qkv = qkv.clone().requires_grad_()
        q, k, v = qkv
        y = attend(q, arrange(k, structure.to(k), "hermitian"), v, "hermitian", causal=True)
        return [y.detach(), *torch.autograd.grad(y.square().sum(), qkv)]

    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        yield compare(
            f"hermitian, causal, {str(dtype).removeprefix('torch.')}", call, torch.randn(3, 2, 2, 90, 32).double(), dtype
        )


def compare(name: str, call: Callable[[Tensor], list[Tensor]], x: Tensor, dtype: torch.dtype) -> dict[str, Any]:
    """Return the largest relative error of a call in a dtype against float64 on the CPU, or why it failed."""
    expected = call(x)
    try:
        errors = [
            float((a.cpu().double() - b).norm() / b.norm()) for a, b in zip(call(x.to(DEVICE, dtype)), expected, strict=True)
        ]
        return {"layer": name, "error": max(errors)}
    except Exception as error:  # a layer that fails is a result
        return {"layer": name, "failed": one_line(error, 300)}


def gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the output of a layer, and the gradients of the input and the parameters."""
    x = x.clone().requires_grad_()
    y = layer(x)
    y = y[0] if isinstance(y, tuple) else y
    wanted = [x, *layer.parameters()]
    return [y.detach(), *torch.autograd.grad(y.square().sum(), wanted)]


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
    parser.add_argument("--minutes", type=float, default=4.0, help="time after which speed stops")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=4, help="number of processes that train")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tiny", action="store_true", help="test the rows of speed in tiny sizes; give --out")
    parser.add_argument("--commit", default=machine.commit(), help="the commit, outside of a git checkout")
    options = parser.parse_args()
    if options.tiny and options.out == RESULTS:
        parser.error("--tiny needs --out")
    if not options.tiny and not torch.cuda.is_available():
        raise SystemExit("benchmarks.speed.gpu: torch sees no CUDA device")
    if options.what == "speed":
        write_speed(options.out, options.minutes, options.rounds, options.tiny, options.commit)
        return
    stored: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    about = {"machine": machine.info() | {"cuda": torch.version.cuda}, "commit": options.commit}
    rows: list[dict[str, Any]] = []
    for row in measure_training(options.jobs):
        rows.append(row)
        print(json.dumps(row), flush=True)
        machine.write(options.out, stored | {"train": about | {"rows": rows}})


if __name__ == "__main__":
    main()
