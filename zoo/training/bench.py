"""``zoo bench`` and ``zoo info --kernels``: time a network against its real twin, and list the kernels of its layers."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from statistics import median, quantiles
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from zoo.backbones.build import count
from zoo.data import ready
from zoo.kernels.base import gpu_status, plan, real_cost
from zoo.kernels.compiled import status
from zoo.nn import Linear
from zoo.nn.kernel_choice import describe_work
from zoo.reports import plain_console, plain_table
from zoo.tasks.base import Task
from zoo.training.network import build_network, build_task, read_data
from zoo.training.options import Bench, Fit
from zoo.training.resolve import plan_run

Call = Callable[[], Any]


def side_by_side(calls: Mapping[str, Call], rounds: int, warmup: int = 3) -> dict[str, dict[str, float]]:
    """Time calls in turn, in a random order in every round, and compare them with the first.

    Returns the median milliseconds (``ms``) of each call, and the median (``ratio``) and quartiles (``low``, ``high``) over
    rounds of its ratio to the first call.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffled = list(calls), random.Random(0)
    for number in range(warmup + rounds):
        shuffled.shuffle(order)
        for name in order:
            start = time.perf_counter()
            calls[name]()
            if number >= warmup:
                times[name].append(time.perf_counter() - start)
    reference = times[next(iter(calls))]
    result = {}
    for name, durations in times.items():
        ratios = [duration / baseline for duration, baseline in zip(durations, reference, strict=True)]
        low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else 3 * ratios
        result[name] = {"ms": round(1000 * median(durations), 4), "ratio": round(middle, 3)}
        result[name] |= {"low": round(low, 3), "high": round(high, 3)}
    return result


def bench(options: Bench) -> dict[str, Any]:
    """Time training steps and evaluations of a network and its real twin on a batch of its data, see `side_by_side`."""
    given = {key: value for key, value in asdict(options).items() if key != "rounds"}
    tasks = {algebra: first_batch(Fit(**given | {"algebra": algebra})) for algebra in dict.fromkeys(("real", options.algebra))}
    training = side_by_side({name: training_step(*pair) for name, pair in tasks.items()}, options.rounds)
    evaluation = side_by_side({name: evaluation_step(*pair) for name, pair in tasks.items()}, options.rounds)
    rows = []
    for name, (task, batch) in tasks.items():
        with FlopCounterMode(display=False) as counter:
            training_step(task, batch)()
        setting = {"algebra": name, "parameters": count(task.net)["total"], "flops": counter.get_total_flops()}
        rows.append(setting | {"training": training[name], "evaluation": evaluation[name]})
    setting = {
        "backbone": options.backbone,
        "batch_size": batch_length(batch),
        "threads": torch.get_num_threads(),
        "kernel": status(),
        "gpu": gpu_status(),
    }
    return setting | {"rows": rows}


def first_batch(options: Fit) -> tuple[Task, Any]:
    """Build the task of a run and load the first batch of its training data."""
    torch.manual_seed(options.seed)
    planned = plan_run(options)
    ready(planned.data)
    data = read_data(planned)
    task = build_task(planned, data, build_network(planned, data))
    return task, next(iter(data.module.train_dataloader()))


def batch_length(batch: Any) -> int:
    """Return the number of rows of the first tensor of a batch, which may be less than ``batch_size``."""
    while not isinstance(batch, torch.Tensor):
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch))
    return len(batch)


def training_step(task: Task, batch: object) -> Call:
    """Return a function that takes one training step: forward, backward, optimizer."""
    optimizer = torch.optim.AdamW([p for p in task.parameters() if p.requires_grad], lr=1e-4)

    def step() -> None:
        task.train()
        task.step(batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def evaluation_step(task: Task, batch: object) -> Call:
    """Return a function that evaluates a batch."""

    def step() -> None:
        task.eval()
        with torch.inference_mode():
            task.step(batch)

    return step


def kernel_table(options: Fit) -> list[dict[str, Any]]:
    """List the kernels that are chosen for the hypercomplex linear layers of a network, on a batch of its data.

    Each size of layer and input has a row, with the kernels for training, evaluation and decoding (evaluation of one row), and
    for training on a GPU in bfloat16, and the ratio of their predicted time to that of the real layer.
    """
    task, batch = first_batch(options)
    groups: dict[tuple[Any, ...], list[Any]] = {}

    def record(layer: nn.Module, args: tuple[Any, ...]) -> None:
        if isinstance(layer, Linear) and layer.algebra.n > 1:
            key = layer.in_features, layer.out_features, args[0].numel() // layer.in_features
            groups.setdefault(key, []).append((layer, args[0].detach()))

    hooks = [layer.register_forward_pre_hook(record) for layer in task.modules() if isinstance(layer, Linear)]
    with torch.no_grad():
        task.step(batch)
    for hook in hooks:
        hook.remove()
    rows = []
    for (inp, out, batch_rows), layers in groups.items():
        layer, x = layers[0]
        modes = {"training": (batch_rows, True), "evaluation": (batch_rows, False), "decoding": (1, False)}
        choices = {name: _choice(layer, x, *mode) for name, mode in modes.items()}
        choices["gpu"] = _choice(layer, x, batch_rows, True, device="cuda", dtype=torch.bfloat16)
        rows.append({"layers": len(layers), "features": f"{inp} -> {out}", "rows": batch_rows, **choices})
    return rows


def _choice(layer: Linear, x: torch.Tensor, rows: int, training: bool, **elsewhere: Any) -> dict[str, Any]:
    work = describe_work(layer.weight_module, x, training, prepared=not training)._replace(rows=rows, **elsewhere)
    kernel = plan(work, layer.weight_module.kernel, elsewhere=bool(elsewhere))
    return {"kernel": kernel.name, "ratio": round(kernel.cost(work) / real_cost(work), 2)}


def print_kernels(rows: list[dict[str, Any]]) -> None:
    """Print the result of `kernel_table`."""
    view = plain_table("features", "layers", "rows", "training", "evaluation", "one row", "training on a GPU")
    for row in rows:
        modes = [f"{row[mode]['kernel']} {row[mode]['ratio']:.2f}" for mode in ("training", "evaluation", "decoding", "gpu")]
        view.add_row(row["features"], str(row["layers"]), f"{row['rows']:,}", *modes)
    console = plain_console()
    console.print(view)
    console.print("kernels, and their predicted time on the reference machine relative to the real layer")
    console.print("the last column: bfloat16 on an H100 with all kernels; zoo doctor names the kernels of this machine")


def print_bench(result: dict[str, Any]) -> None:
    """Print the result of `bench`."""
    view = plain_table("algebra", "parameters", "training", "ratio", "evaluation", "ratio")
    for row in result["rows"]:
        cells = [f"{row['parameters']:,}"]
        for mode in (row["training"], row["evaluation"]):
            cells += [f"{mode['ms']:.1f} ms", f"{mode['ratio']:.2f}+-{(mode['high'] - mode['low']) / 2:.2f}"]
        view.add_row(row["algebra"], *cells)
    console = plain_console()
    console.print(f"\n{result['backbone']}, batches of {result['batch_size']}, {result['threads']} threads")
    console.print(f"CPU kernel: {result['kernel']}", soft_wrap=True)
    console.print(f"on a GPU: {result['gpu']}\n", soft_wrap=True)
    console.print(view)
    console.print("ratios: median over interleaved steps +- half the interquartile range; operations of a training step:")
    console.print(", ".join(f"{row['algebra']} {row['flops'] / 1e9:.3g} GFLOP" for row in result["rows"]))
