"""Count and time what data-parallel training sends: ``python -m benchmarks.speed.communication``.

Runs training steps of a GPT on 2 and 4 processes (gloo). A communication hook counts the gradients that DDP sends, and a
dispatch mode what FSDP2 sends. For the times of a step, another hook replaces the transfer by a link of a given speed: it
completes each bucket when the link would have sent it. `predict` is then compared with the measured steps, and applied to
steps that were measured on one GPU. Writes results/communication.json, docs/communication.md and its picture.

    --processes N  measure only with N processes, and keep the other results
    --report       measure nothing; write the page
"""

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, distributed, multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from zoo_reports.page import colors_of, log_axis, pictures, plain_axes

import zoo
from benchmarks import machine
from zoo.nn import batching, weight

RESULTS = machine.RESULTS / "communication.json"
PAGE = machine.ROOT / "docs" / "communication.md"
TEMPLATE = Path(__file__).parent / "communication_template.md"
PICTURE = "communication"
SPEC, BATCH, TOKENS, VOCABULARY = "gpt(dim=256, depth=4, heads=4)", 4, 64, 64
ALGEBRAS = ("real", "quaternion", "octonion")
PROCESSES = (2, 4)
LINKS = (0.2, 1.0, 10.0, 25.0, 100.0)  # Gbit/s that each process sends
BUCKET_MB = 1.0  # of gradients and of assembled matrices: both are 25 by default, for larger networks
STEPS = 5
DDP_BUCKET = 25 * 2**20  # bytes, torch's default
GPU_STEPS = {
    "gpt(dim=1024, depth=12, heads=16, ffn=4096)": {"real": 26.4, "quaternion": 0.98 * 26.4, "octonion": 0.93 * 26.4},
    "gpt(dim=4096, depth=3, heads=32, ffn=16384)": {"real": 66.4, "quaternion": 0.69 * 66.4, "octonion": 0.73 * 66.4},
}
"""Milliseconds of a step of 8 x 1,024 tokens on one H100, measured with a prototype of the kernels on 2026-11-28."""
SIZES = {"vocab_size": 8192, "max_length": 1024}
BACKWARD = 2 / 3  # share of the backward pass in a step, an assumption
GPUS = (8, 64, 512)
GPU_LINKS = (25.0, 100.0, 400.0)


class Transfers(TorchDispatchMode):
    """Count the bytes that the collective operations of a process send, by the algorithm of rings."""

    def __init__(self, processes: int):
        super().__init__()
        self.processes, self.sent = processes, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if "_allgather_base" in name or "_reduce_scatter_base" in name:
            whole = max(args[:2], key=Tensor.numel)
            self.sent += whole.nbytes * (self.processes - 1) / self.processes
        return func(*args, **kwargs or {})


class Link:
    """A communication hook of DDP: counts the bytes of gradients and lets each bucket take the time of a link."""

    def __init__(self, processes: int, gbits: float | None):
        self.processes, self.gbits, self.sent, self.free = processes, gbits, 0.0, 0.0
        self.queue = ThreadPoolExecutor(1)

    def send(self, _: Any, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:
        """Send a bucket: through gloo, or through the link."""
        gradients = bucket.buffer()
        size = 2 * (self.processes - 1) / self.processes * gradients.nbytes
        self.sent += size
        if self.gbits is None:
            done = distributed.all_reduce(gradients.div_(self.processes), async_op=True).get_future()
            return done.then(lambda future: future.value()[0])  # type: ignore[no-any-return]
        done = torch.futures.Future()
        self.free = max(self.free, time.perf_counter()) + 8e-9 * size / self.gbits
        self.queue.submit(self.wait, self.free, done, gradients)
        return done

    def wait(self, end: float, done: torch.futures.Future[Tensor], gradients: Tensor) -> None:
        """Complete a bucket when the link has sent it."""
        time.sleep(max(0.0, end - time.perf_counter()))
        done.set_result(gradients)


def network(algebra: str) -> nn.Module:
    """Return the network, the same in every process."""
    torch.manual_seed(0)
    return zoo.backbone(SPEC, algebra, vocab_size=VOCABULARY, max_length=TOKENS)


def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    """Train one step and return the seconds of the forward pass, the backward pass and the optimizer."""
    x = torch.randint(1, VOCABULARY, (BATCH, TOKENS))
    times = [time.perf_counter()]
    loss = F.cross_entropy(net(x).flatten(0, 1), x.flatten())
    times.append(time.perf_counter())
    loss.backward()
    times.append(time.perf_counter())
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter())
    return [after - before for before, after in pairwise(times)]


def bytes_of_steps(algebra: str, processes: int) -> dict[str, Any]:
    """Return the megabytes that a process sends in a step, under DDP and FSDP2, and check that the processes agree."""
    net, link = network(algebra), Link(processes, None)
    weights = sum(p.numel() for p in net.parameters())
    parallel = DistributedDataParallel(net, bucket_cap_mb=BUCKET_MB)
    parallel.register_comm_hook(None, link.send)
    torch.manual_seed(distributed.get_rank())  # other data in each process
    step(parallel, torch.optim.AdamW(net.parameters()))
    total = torch.stack([p.detach().double().sum() for p in net.parameters()])
    others = [torch.empty_like(total) for _ in range(processes)]
    distributed.all_gather(others, total)
    if not all(torch.equal(total, other) for other in others):
        raise RuntimeError(f"{algebra}: the processes have different weights after a step")
    sharded = network(algebra)
    for block in sharded.get_submodule("blocks").children():
        fully_shard(block)
    fully_shard(sharded)
    optimizer = torch.optim.AdamW(sharded.parameters())
    with Transfers(processes) as transfers:
        step(sharded, optimizer)
    return {"weights": weights, "ddp_mb": round(link.sent / 1e6, 3), "fsdp_mb": round(transfers.sent / 1e6, 3)}


def seconds_of_steps(algebra: str, processes: int, gbits: float) -> dict[str, Any]:
    """Return the median seconds of the parts of a step with a link, and of the whole step."""
    net, link = network(algebra), Link(processes, gbits)
    parallel = DistributedDataParallel(net, bucket_cap_mb=BUCKET_MB)
    parallel.register_comm_hook(None, link.send)
    optimizer, rows = torch.optim.AdamW(net.parameters()), []
    for _ in range(STEPS + 2):
        distributed.barrier()
        rows.append(step(parallel, optimizer))
    forward, backward, update = (median(column) for column in zip(*rows[2:], strict=True))
    return {"forward": forward, "backward": backward, "update": update, "seconds": median(map(sum, rows[2:]))}


def measure(rank: int, processes: int, folder: str) -> None:
    """Measure in one of the processes; the first writes the rows."""
    torch.set_num_threads(1)
    weight.BATCHED = ("cpu",)  # as on a GPU
    batching.BUCKET = int(BUCKET_MB * 1e6)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=processes)
    distributed.device_mesh.init_device_mesh("cpu", (processes,))
    rows = []
    for algebra in ALGEBRAS:
        row = {"algebra": algebra, "processes": processes} | bytes_of_steps(algebra, processes)
        row["alone"] = seconds_of_steps(algebra, processes, 1e9)
        row["links"] = {str(gbits): seconds_of_steps(algebra, processes, gbits) for gbits in LINKS}
        rows.append(row)
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    distributed.destroy_process_group()


def predict(forward: float, backward: float, update: float, sent: float, gbits: float, buckets: float) -> float:
    """Predict the seconds of a step that sends ``sent`` bytes in equal buckets while the backward pass goes on.

    Each bucket is ready after its part of the backward pass, and the link sends one after the other. So either the link waits
    for the last bucket, or the backward pass ends before the link: the step takes forward + update + the larger of
    backward + W / n and backward / n + W, for W = 8 sent / rate and n buckets.
    """
    buckets, link = max(1.0, buckets), 8e-9 * sent / gbits
    return forward + update + max(backward + link / buckets, backward / buckets + link)


def rows_of(processes: int) -> list[dict[str, Any]]:
    """Measure with a number of processes."""
    with TemporaryDirectory() as folder:
        multiprocessing.spawn(measure, (processes, folder), nprocs=processes)
        rows: list[dict[str, Any]] = json.loads(Path(folder, "rows.json").read_text(encoding="utf-8"))
    return rows


# --- page ---


def counted(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of megabytes."""
    for row in rows:
        real = next(other for other in rows if other["algebra"] == "real" and other["processes"] == row["processes"])
        sent = " | ".join(f"{row[key]:.2f} ({row[key] / real[key]:.2f})" for key in ("ddp_mb", "fsdp_mb"))
        yield f"| {row['processes']} | {row['algebra']} | {row['weights']:,} | {sent} |"


def predicted(row: dict[str, Any], gbits: float) -> float:
    """Predict the seconds of a measured step from its parts without a link."""
    parts = [row["alone"][name] for name in ("forward", "backward", "update")]
    buckets = 4 * row["weights"] / (BUCKET_MB * 2**20)
    return predict(*parts, row["ddp_mb"] * 1e6, gbits, buckets)


def checked(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of measured and predicted milliseconds."""
    for row in rows:
        times = [f"{1e3 * row['links'][str(gbits)]['seconds']:.0f} / {1e3 * predicted(row, gbits):.0f}" for gbits in LINKS]
        yield f"| {row['processes']} | {row['algebra']} | {1e3 * row['alone']['seconds']:.0f} | {' | '.join(times)} |"


def gpu_step(spec: str, algebra: str, gpus: int, gbits: float) -> float:
    """Predict the milliseconds of a step on GPUs that each send ``gbits`` gigabits per second."""
    with torch.device("meta"):
        weights = sum(p.numel() for p in zoo.backbone(spec, algebra, **SIZES).parameters())
    step_ms, size = GPU_STEPS[spec][algebra], 4 * weights
    sent = 2 * (gpus - 1) / gpus * size
    return 1e3 * predict((1 - BACKWARD) * step_ms / 1e3, BACKWARD * step_ms / 1e3, 0.0, sent, gbits, size / DDP_BUCKET)


def on_gpus() -> Iterator[str]:
    """Yield the table of steps on several GPUs."""
    for spec in GPU_STEPS:
        for gbits in GPU_LINKS:
            real, *others = ([gpu_step(spec, algebra, gpus, gbits) for gpus in GPUS] for algebra in ALGEBRAS)
            cells = [" / ".join(f"{time:.0f}" for time in real)]
            cells += [" / ".join(f"{time / base:.2f}" for time, base in zip(other, real, strict=True)) for other in others]
            yield f"| `{spec}` | {gbits:g} | {' | '.join(cells)} |"


def draw() -> Figure:
    """Draw the predicted step on 64 GPUs against the speed of the link."""
    figure, links = Figure(figsize=(8.4, 3.4), layout="constrained"), [2.0**k for k in range(11)]
    colors = colors_of(ALGEBRAS)
    for axes, spec in zip(figure.subplots(1, len(GPU_STEPS)), GPU_STEPS, strict=True):
        for algebra in ALGEBRAS:
            times = [gpu_step(spec, algebra, 64, gbits) for gbits in links]
            axes.plot(links, times, color=colors[algebra], label=algebra, linewidth=2.2 if algebra == "real" else 1.4)
        for which in ("x", "y"):
            log_axis(axes, which)
        plain_axes(axes)
        axes.set_title(spec, fontsize=9)
        axes.set_xlabel("link of each GPU, Gbit/s")
        axes.set_ylabel("step on 64 GPUs, ms")
        axes.legend(frameon=False)
    return figure


def text(results: dict[str, Any]) -> str:
    """Return the text of the page."""
    rows = results["rows"]
    about = results["machine"]
    errors = [abs(predicted(row, gbits) / row["links"][str(gbits)]["seconds"] - 1) for row in rows for gbits in LINKS]
    wide = list(GPU_STEPS)[-1]
    ratios = {gbits: gpu_step(wide, "quaternion", 64, gbits) / gpu_step(wide, "real", 64, gbits) for gbits in GPU_LINKS}
    parts = {
        "counted": "\n".join(counted(rows)),
        "checked": "\n".join(checked(rows)),
        "gpus": "\n".join(on_gpus()),
        "typical": f"{100 * median(errors):.0f}",
        "largest": f"{100 * max(errors):.0f}",
        "answer": ", ".join(f"{ratio:.2f} with {gbits:g} Gbit/s" for gbits, ratio in ratios.items()),
        "wide": wide,
        "how": f"{about['date']}, {about['processor']}, {about['cores']} cores, torch {about['torch']}",
    }
    return TEMPLATE.read_text(encoding="utf-8").format_map(parts)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=PROCESSES)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        for processes in arguments.processes:
            stored = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
            rows = [row for row in stored if row["processes"] != processes] + rows_of(processes)
            rows.sort(key=lambda row: row["processes"])
            machine.write_rows(RESULTS, {"machine": machine.info(), "commit": machine.commit(), "rows": rows})
    picture = f"{PICTURE}.png"
    (PAGE.parent / "images" / picture).write_bytes(pictures(PICTURE, draw)[picture])
    PAGE.write_text(text(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
