"""Compare the speed of layers and networks over algebras with the reals: ``python -m benchmarks.speed.fused [--minutes 8]``.

Each result is the ratio of a time to that of the same layer or network over the reals (median and quartiles), measured
alternately in one process. Torch's threads spin between operations, because torch is imported before zoo. Cases that were
measured at the current commit are skipped unless ``--again`` is given; ``--only WORD`` selects cases by name. Results belong to
the instruction set of torch; to measure AVX2 on a processor with AVX-512, see `benchmarks.speed.plan`. Writes
results/fused.json; ``python -m benchmarks.speed.speed_page`` writes docs/speed.md from it.
"""

import os

os.environ.pop("OMP_WAIT_POLICY", None)  # benchmarks/__init__.py sets it

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from benchmarks import machine
from zoo.algebras import Algebra, factors_of
from zoo.kernels import compiled
from zoo.nn import LSTM, Conv2d, Linear
from zoo.nn.weight import Weight
from zoo.tasks.decoding import Decoding, Prompts, generate
from zoo.training.bench import Call, side_by_side

RESULTS = machine.RESULTS / "fused.json"
LINEAR: dict[str, list[tuple[int, int, int, float]]] = {  # rows, inputs, outputs, goal
    "quaternion": [
        (4096, 256, 256, 0.68),
        (4096, 512, 512, 0.58),
        (4096, 1024, 1024, 0.55),
        (4096, 2048, 2048, 0.53),
        (1024, 192, 768, 0.66),
        (1024, 384, 1536, 0.58),
    ],
    "octonion": [(4096, 256, 256, 1.0), (4096, 512, 512, 0.65), (4096, 1024, 1024, 0.56)],
    "complex": [(4096, 256, 256, 0.84), (4096, 512, 512, 0.80), (4096, 1024, 1024, 0.78)],
    "phm-4": [(4096, 1024, 1024, 1.0)],
    "phm(n=4, rank=8)": [(4096, 1024, 1024, 0.60)],
}
BFLOAT16 = {512: 0.90, 1024: 0.70, 2048: 0.60}
CONVOLUTIONS = [(32, 32, 32, 1.0), (32, 64, 32, 0.85), (32, 128, 16, 0.70), (16, 256, 14, 0.60)]  # images, channels, size, goal
NETWORKS = [
    ("vit(dim=192, depth=2, heads=3, patch=8)", 0.80),
    ("vit(dim=384, depth=2, heads=6, patch=8)", 0.65),
    ("vit(dim=768, depth=2, heads=12, patch=8)", 0.57),
    ("gpt(dim=128, depth=2, heads=2)", 0.88),
    ("gpt(dim=384, depth=2, heads=6)", 0.64),
    ("gpt(dim=1024, depth=2, heads=16)", 0.56),
]
EVALUATED = {  # rows: goals inside and outside the scope, for 1024 features
    1: (0.60, 0.80),
    8: (0.50, 0.90),
    64: (0.42, 0.65),
    512: (0.50, 0.55),
}
PAIR = ("real", "quaternion")
WHERE = ("date", "processor", "gflops", "threads", "torch")
"""The keys of `machine.info` that are stored with a result."""


class Case(NamedTuple):
    """A measurement of a section of the page: ``calls`` creates the calls, the real one first."""

    section: str
    name: str
    calls: Callable[[], dict[str, Call]]
    rounds: int
    goal: float | None = None
    busy: int = 0
    """Number of other processes that keep cores busy."""


def linear(algebra: str, inp: int, out: int) -> nn.Module:
    """Create a linear layer; over the reals, torch's."""
    return nn.Linear(inp, out) if algebra == "real" else Linear(inp, out, algebra=zoo.algebra(algebra))


def trained(layer: nn.Module, *shape: int, **where: Any) -> Call:
    """Return a call that runs the forward and backward pass of a layer; ``where`` are the device and dtype of the input."""
    x, g = torch.randn(shape, requires_grad=True, **where), None

    def call() -> None:
        nonlocal g
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        g = torch.randn_like(y) if g is None else g
        y.backward(g)
        x.grad = None
        layer.zero_grad(set_to_none=True)

    return call


def autocast(call: Call) -> Call:
    """Run a call in bfloat16."""

    def cast() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            call()

    return cast


def evaluated(layer: nn.Module, x: Tensor, is_cached: bool) -> Call:
    """Return a call that evaluates a layer, with ``is_cached`` in an open scope of `zoo.keep_matrices`."""
    scope = zoo.keep_matrices(layer) if is_cached else nullcontext()
    scope.__enter__()

    def call(scope: object = scope) -> None:  # the reference keeps the scope open
        with torch.inference_mode():
            layer(x)

    return call


def recurrent_products(algebra: Algebra, batch: int, steps: int, size: int) -> Call:
    """Return a call that computes only the matrix products in a training step of an LSTM.

    The products of the inputs, their gradients and the gradient of the recurrent weight are computed for all steps at once by
    the kernel of a linear layer. The products of the states and their gradients use the real matrix, step by step.
    """
    inputs = trained(Linear(size, 4 * size, algebra=algebra, bias=False), batch * steps, size)
    states, gates = torch.randn(batch * steps, size), torch.randn(batch * steps, 4 * size)
    matrix, weight = torch.randn(4 * size, size), Weight(algebra, size, 4 * size)
    factors = factors_of(weight.algebra, weight.components)
    assert factors is not None
    needs = [False, True, False, False, False, False]
    gradient = partial(torch.ops.zoo.fused_backward, gates, states, weight.components.detach(), *factors)

    def call() -> None:
        inputs()
        with torch.no_grad():
            for step in range(steps):
                rows = slice(step * batch, (step + 1) * batch)
                F.linear(states[rows], matrix)
                gates[rows] @ matrix
            gradient(weight.out, weight.inp, needs)

    return call


def build(algebra: str, spec: str) -> tuple[Any, Tensor, Tensor]:
    """Create a network, inputs and targets: 16 images of 64 x 64, or 4 texts of 256 tokens."""
    torch.manual_seed(0)
    if spec.startswith("vit"):
        net = zoo.backbone(spec, algebra, in_channels=3, image_size=64, num_classes=10)
        return net, torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
    net = zoo.backbone(spec, algebra, vocab_size=256, max_length=256)
    return net, torch.randint(1, 256, (4, 256)), torch.randint(1, 256, (4, 256))


def linear_layers(spec: str) -> Call:
    """Return a call that runs only the linear layers of a real network, forward and backward."""
    net, x, _ = build("real", spec)
    calls: list[Call] = []
    hooks = [
        layer.register_forward_hook(lambda layer, args, _: calls.append(trained(layer, *args[0].shape)))
        for layer in net.modules()
        if isinstance(layer, nn.Linear | Linear) and layer.in_features >= 64 and layer.out_features >= 64
    ]
    net(x)
    for hook in hooks:
        hook.remove()
    return lambda: [call() for call in calls]


def network(algebra: str, spec: str, is_compiled: bool = False, is_fused: bool | None = None) -> Call:
    """Return a call that takes a training step with AdamW."""
    net, x, target = build(algebra, spec)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=is_fused)
    net = torch.compile(net) if is_compiled else net

    def call() -> None:
        F.cross_entropy(net(x).flatten(0, -2), target.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return call


def two_compiled(algebra: str) -> Call:
    """Return a call that trains two compiled linear layers."""
    net: Any = torch.compile(nn.Sequential(linear(algebra, 1024, 1024), nn.GELU(), linear(algebra, 1024, 1024)))
    return trained(net, 4096, 1024)


def decoding(algebra: str, spec: str, prompt: int, steps: int) -> Call:
    """Return a call that decodes a prompt and ``steps`` tokens with a cache; without a prompt, it continues after 64 tokens."""
    torch.manual_seed(0)
    net: Any = zoo.backbone(spec, algebra, vocab_size=256, max_length=256).eval()
    scope = zoo.keep_matrices(net)
    scope.__enter__()
    state: Any = None

    @torch.inference_mode()
    def call(scope: object = scope) -> None:
        nonlocal state
        if prompt or state is None or state[1] == 128:
            tokens = torch.randint(1, 256, (1, prompt or 64))
            state = net.init_cache(), tokens.shape[1]
            net.decode_step(tokens, state[0])
        for _ in range(steps):
            net.decode_step(torch.ones(1, 1, dtype=torch.long), state[0])
            state = state[0], state[1] + 1

    return call


def generating(algebra: str) -> Call:
    """Return a call that generates 64 tokens with the zoo's `generate`, which opens the scope itself."""
    torch.manual_seed(0)
    net: Any = zoo.backbone("gpt/micro", algebra, vocab_size=256, max_length=128).eval()
    prompts = Prompts(torch.randint(4, 256, (1, 16)))
    return lambda: generate(net, prompts, Decoding(length=64))


def hugging_face(algebra: str) -> Call:
    """Return a call of Hugging Face's ``generate`` for a GPT-2 with random weights, a prompt of 64 tokens and 16 new tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    net: Any = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None)).eval()  # type: ignore[no-untyped-call]
    net = net if algebra == "real" else zoo.convert(net, algebra)
    tokens = torch.randint(256, (1, 64))
    options: dict[str, Any] = {"attention_mask": torch.ones_like(tokens), "pad_token_id": 0, "do_sample": False}
    return lambda: net.generate(tokens, max_new_tokens=16, **options)


def pair(make: Callable[..., Call], *args: Any) -> Callable[[], dict[str, Call]]:
    """Return a function that creates the calls over the reals and the quaternions."""
    return lambda: {algebra: make(algebra, *args) for algebra in PAIR}


def layer_cases() -> Iterator[Case]:
    """Yield the cases of training single layers."""

    def both(algebra: str, rows: int, i: int, o: int, change: Callable[[Call], Call] = lambda call: call) -> dict[str, Call]:
        return {a: change(trained(linear(a, i, o), rows, i)) for a in ("real", algebra)}

    for algebra, shapes in LINEAR.items():
        for rows, i, o, goal in shapes:
            shape = algebra, rows, i, o
            yield Case("layers", f"Linear, {algebra}, {rows:,} x {i} to {o}", partial(both, *shape), 25, goal)
    for size, goal in BFLOAT16.items():
        name = f"Linear, quaternion, bfloat16, 4,096 x {size} to {size}"
        yield Case("layers", name, partial(both, "quaternion", 4096, size, size, autocast), 25, goal)

    def convolution(algebra: str, count: int, channels: int, size: int) -> Call:
        args: dict[str, Any] = {"kernel_size": 3, "padding": 1}
        is_real = algebra == "real"
        layer = nn.Conv2d(channels, channels, **args) if is_real else Conv2d(channels, channels, algebra=algebra, **args)
        return trained(layer, count, channels, size, size)

    for count, channels, size, goal in CONVOLUTIONS:
        name = f"Conv2d 3 x 3, quaternion, {count} images, {channels} channels, {size} x {size}"
        yield Case("layers", name, pair(convolution, count, channels, size), 25, goal)

    def recurrent(algebra: str) -> Call:
        is_real = algebra == "real"
        return trained(
            nn.LSTM(304, 304, batch_first=True) if is_real else LSTM(304, 304, batch_first=True, algebra=zoo.algebra(algebra)),
            64,
            40,
            304,
        )

    yield Case("layers", "LSTM, quaternion, 64 x 40 x 304", pair(recurrent), 15, 0.90)
    for size in (304, 1024):

        def bound(size: int = size) -> dict[str, Call]:
            shape = 64, 40, size
            return {
                "real": trained(nn.LSTM(size, size, batch_first=True), *shape),
                "products": recurrent_products(zoo.algebra("quaternion"), *shape),
            }

        yield Case("recurrent", f"64 x 40 x {size}", bound, 15)


def evaluation_cases() -> Iterator[Case]:
    """Yield the cases of evaluating layers, inside and outside the scope of `zoo.keep_matrices`."""
    for size, (rows, goals), is_cached in itertools.product((256, 1024, 4096), EVALUATED.items(), (True, False)):

        def make(size: int = size, rows: int = rows, is_cached: bool = is_cached) -> dict[str, Call]:
            x = torch.randn(rows, size)
            return {a: evaluated(linear(a, size, size), x, is_cached and a != "real") for a in PAIR}

        goal = goals[not is_cached] if size == 1024 else None
        where = "inside the scope" if is_cached else "outside"
        yield Case("evaluation", f"{size} features, batch {rows}, {where}", make, 51 if size == 4096 else 201, goal)


def network_cases() -> Iterator[Case]:
    """Yield the cases of training steps, compiled networks, decoding, and a busy machine."""
    for spec, goal in NETWORKS:
        yield Case("networks", spec, pair(network, spec), 15, goal)
        parts = {"step": partial(network, "real", spec), "linear layers": partial(linear_layers, spec)}
        yield Case("shares", spec, lambda parts=parts: {name: make() for name, make in parts.items()}, 15)  # type: ignore[misc]
    for algebra, (spec, _) in itertools.product(PAIR, (NETWORKS[1], NETWORKS[4])):

        def optimized(algebra: str = algebra, spec: str = spec) -> dict[str, Call]:
            return {"default": network(algebra, spec), "fused": network(algebra, spec, is_fused=True)}

        yield Case("adamw", f"{spec}, {algebra}", optimized, 15)
    yield Case("compiled", "two Linear, 4,096 x 1024 to 1024", pair(two_compiled), 15, 0.62)
    for (spec, _), goal in zip(NETWORKS, (0.88, 0.72, 0.60, None, 0.72, None), strict=True):
        if goal is not None:
            yield Case("compiled", spec, pair(network, spec, True), 15, goal)
    large = "gpt(dim=1024, depth=12, heads=16)"
    for name, prompt, steps, rounds, goal in (("a step", 0, 1, 31, 0.30), ("a prompt of 64 and 16 steps", 64, 16, 9, 0.40)):
        yield Case("decoding", f"{large}, {name}", pair(decoding, large, prompt, steps), rounds, goal)
    yield Case("decoding", "gpt/micro, generate, 64 tokens", pair(generating), 15)
    yield Case("decoding", "GPT-2 of Hugging Face, its own generate, a prompt of 64 and 16 tokens", pair(hugging_face), 9)
    yield Case("busy", NETWORKS[1][0], pair(network, NETWORKS[1][0]), 15, 1.1, busy=4)
    for size in (256, 1024):
        name = f"Linear, 4,096 x {size} to {size}"
        yield Case("busy", name, pair(lambda a, s: trained(linear(a, s, s), 4096, s), size), 15, 1.1, busy=4)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that keep cores busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(case: Case, rounds: int | None) -> dict[str, Any]:
    """Measure a case; return the ratio, the machine and the load."""
    with busy_processes(case.busy):
        real, row = side_by_side(case.calls(), rounds or case.rounds).values()
    where = machine.info()
    about = {"section": case.section, "goal": case.goal, "commit": machine.commit(), "load": round(os.getloadavg()[0], 1)}
    return row | {"real_ms": real["ms"]} | about | {key: where[key] for key in WHERE}


def main() -> None:
    """Measure the selected cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="measure only cases with this word in their section or name")
    parser.add_argument("--again", action="store_true", help="also measure cases that were measured at this commit")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no case after this time")
    parser.add_argument("--rounds", type=int, help="rounds of each case, for a trial")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not compiled.is_available():
        raise SystemExit(compiled.status())
    stored: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    instructions = torch.backends.cpu.get_cpu_capability()
    cases = {f"{c.section}: {c.name}": c for c in (*layer_cases(), *evaluation_cases(), *network_cases())}
    rows = {name: row for name, row in stored.get(instructions, {}).items() if name in cases}
    now, start = machine.commit(), time.monotonic()
    due = [name for name in cases if options.only in name and (options.again or rows.get(name, {}).get("commit") != now)]
    for number, name in enumerate(due):
        if time.monotonic() - start > 60 * options.minutes:
            print(f"{len(due) - number} of {len(due)} cases are left: run this command again")
            return
        before = time.monotonic()
        row = rows[name] = measure(cases[name], options.rounds)
        seconds = time.monotonic() - before
        print(f"{name}: {row['ratio']} ({row['low']} to {row['high']}), {seconds:.0f} s", flush=True)
        machine.write(options.out, stored | {instructions: {key: rows[key] for key in cases if key in rows}})
    print("all cases are measured")


if __name__ == "__main__":
    main()
