"""Measure layers and networks over algebras beside the real ones: ``python -m benchmarks.kernels [--only WORD]``.

Each figure is the ratio to the same layer or network over the reals, in turns in one process, median of many with quartiles;
with it the operations (`torch.utils.flop_counter`), and the bytes that a training step keeps for its backward pass. Waiting
threads sleep, as in the command line. Writes results/kernels.json and docs/speed.md; ``--only`` measures the cases with a word
in their name anew, ``--page`` writes the page alone.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import zoo
from benchmarks import growth, machine, memory, papers_times, peers, roofline
from benchmarks.papers import commit
from zoo.layers import LSTM, Linear
from zoo.training.bench import side_by_side

RESULTS = Path(__file__).parent / "results" / "kernels.json"
PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
ALGEBRAS = ("quaternion", "octonion", "complex", "phm-4")
Call = Callable[[], Any]
Asked = tuple[float | None, ...]
Bound = Callable[[float, float], dict[str, dict[str, float]]]
"""From bytes a second and the milliseconds of the real network, what bounds the ratio over every algebra."""

TRAINED = [  # rows, inputs, outputs, and the ratios that were aimed at
    (4096, 512, 512, (0.76, 0.95, 0.92, 1.05)),
    (4096, 1024, 1024, (0.68, 0.75, 0.86, 1.02)),
    (4096, 2048, 2048, (0.64, 0.70, 0.84, 1.02)),
    (1024, 192, 768, (0.85, 1.0, 1.0, 1.05)),
]
EVALUATED = [
    (1, 4096, (0.36, 0.40, 0.65, 0.45)),
    (8, 4096, (0.38, 0.45, 0.65, 0.50)),
    (1, 1024, (1.05, None, None, None)),
    (8, 1024, (0.6, None, None, None)),
]
NETWORKS = [
    ("ViT training step, dim 192", "vit(dim=192, depth=4, heads=4, patch=8)", "image", (0.95, 1.05)),
    ("ViT training step, dim 768", "vit(dim=768, depth=2, heads=8, patch=8)", "image", (0.72, 0.80)),
    ("GPT training step, dim 384, block 256", "gpt(dim=384, depth=2, heads=8)", "tokens", (0.90, None)),
    ("GPT training step, dim 1024, block 256", "gpt(dim=1024, depth=2, heads=8)", "tokens", (0.72, None)),
]


def of(net: nn.Module, call: Call) -> Call:
    """Note whose parameters a call uses."""
    call.net = net  # type: ignore[attr-defined]
    return call


def trained(layer: nn.Module, *shape: int) -> Call:
    """Return a call that goes forward and backward through a layer."""
    x, g = torch.randn(*shape, requires_grad=True), None

    def call() -> None:
        nonlocal g
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        g = torch.randn_like(y) if g is None else g
        y.backward(g)
        x.grad = None
        layer.zero_grad(set_to_none=True)

    return of(layer, call)


def evaluated(layer: nn.Module, x: Tensor) -> Call:
    """Return a call that evaluates a layer."""
    layer.eval()

    def call() -> None:
        with torch.inference_mode():
            layer(x)

    return call


def network(spec: str, kind: str, algebra: str) -> Call:
    """Return a training step of a network: 16 images of 64 x 64, or 4 texts of 256 tokens."""
    torch.manual_seed(0)
    if kind == "image":
        net = zoo.backbone(spec, algebra, in_channels=3, image_size=64, num_classes=10)
        x, target = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
    else:
        net = zoo.backbone(spec, algebra, vocab_size=256, max_length=256)
        x, target = torch.randint(1, 256, (4, 256)), torch.randint(1, 256, (4, 256))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def call() -> None:
        F.cross_entropy(net(x).flatten(0, -2), target.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return of(net, call)


def decoded(algebra: str) -> Call:
    """Return a call that decodes 8 tokens with a cache after a prompt of 8, batch 1, in a GPT of 12 layers of 1024."""
    torch.manual_seed(0)
    net: Any = zoo.backbone("gpt(dim=1024, depth=12, heads=8)", algebra, vocab_size=256, max_length=64).eval()

    @torch.inference_mode()
    def call() -> None:
        cache, tokens = net.init_cache(), torch.randint(1, 256, (1, 8))
        for _ in range(8):
            tokens = net.decode_step(tokens, cache)[:, -1:].argmax(-1)

    return call


def cases() -> Iterator[tuple[str, dict[str, Callable[[], Call]], Asked, int, Bound]]:
    """Yield the name of every case, how its calls are made (the real one first), the ratios aimed at, rounds and bounds."""
    for rows, inp, out, asked in TRAINED:
        made: dict[str, Callable[[], Call]] = {"real": lambda r=rows, i=inp, o=out: trained(nn.Linear(i, o), r, i)}
        made |= {a: lambda a=a, r=rows, i=inp, o=out: trained(Linear(zoo.algebra(a), i, o), r, i) for a in ALGEBRAS}
        bound: Bound = lambda rate, _, r=rows, i=inp, o=out: roofline.floors(r, i, o, rate)  # type: ignore[misc]  # noqa: E731
        yield f"Linear, forward and backward, {rows:,} rows, {inp} to {out} features", made, asked, 15, bound
    for rows, size, wanted in EVALUATED:
        made = {"real": lambda r=rows, s=size: evaluated(nn.Linear(s, s), torch.randn(r, s))}
        made |= {a: lambda a=a, r=rows, s=size: evaluated(Linear(zoo.algebra(a), s, s), torch.randn(r, s)) for a in ALGEBRAS}
        bound = lambda _, __, r=rows, s=size: roofline.evaluation_floors(s, r, ALGEBRAS)  # type: ignore[misc]  # noqa: E731
        yield f"Linear, evaluation, {size} features, {rows} row{'s' * (rows > 1)}", made, wanted, 41, bound
    made = {"real": lambda: trained(nn.LSTM(304, 304, batch_first=True), 64, 40, 304)}
    made |= {a: lambda a=a: trained(LSTM(zoo.algebra(a), 304, 304), 64, 40, 304) for a in ALGEBRAS}
    yield "LSTM, forward and backward, 64 x 40 steps, 304 features", made, (1.05, 1.05, 1.05, 1.10), 9, lambda _, __: {}
    for name, spec, kind, few in NETWORKS:
        made = {a: lambda a=a, s=spec, k=kind: network(s, k, a) for a in ("real", "quaternion", "octonion")}
        bound = lambda rate, ms, s=spec, k=kind: network_bounds(s, k, ms, rate)  # type: ignore[misc]  # noqa: E731
        yield name, made, few, 9, bound
    made = {a: lambda a=a: decoded(a) for a in ("real", "quaternion")}
    yield (
        "GPT, decoding with a cache, dim 1024, 12 layers, batch 1",
        made,
        (0.5,),
        7,
        lambda _, ms: {"quaternion": roofline.decoding_floor(ms, 7)},
    )


def network_bounds(spec: str, kind: str, ms: float, rate: float) -> dict[str, dict[str, float]]:
    """Bound the ratios of a network by those of its linear layers, for a step of the real one that takes so long."""
    found = {}
    for algebra in ("quaternion", "octonion"):
        call: Any = network(spec, kind, algebra)
        found[algebra] = roofline.network_floor(call.net, call, algebra, ms, rate)
    return found


def kept_bytes(call: Call) -> int:
    """Count the bytes that a call keeps for its backward pass, each memory once and without parameters."""
    found: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in call.net.parameters()}  # type: ignore[attr-defined]

    def note(t: Tensor) -> Tensor:
        if t.untyped_storage().data_ptr() not in parameters:
            found[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        call()
    return sum(found.values())


def measure(made: dict[str, Callable[[], Call]], asked: Asked, rounds: int, trains: bool) -> list[dict[str, Any]]:
    """Time the calls of a case, and count their operations and what they keep."""
    calls = {algebra: make() for algebra, make in made.items()}
    times = side_by_side(calls, rounds)
    rows = []
    for (algebra, call), aim in zip(calls.items(), (None, *asked), strict=False):
        rows.append({"algebra": algebra, **times[algebra], "asked": aim})
        if trains:
            with FlopCounterMode(display=False) as counter:
                call()
            rows[-1] |= {"gflop": round(counter.get_total_flops() / 1e9, 4), "kept_mb": round(kept_bytes(call) / 2**20, 3)}
    return rows


def write_page(found: dict[str, Any]) -> None:
    """Write the page from what was measured."""
    where = found["machine"]
    lines = [
        "# Speed: what was measured",
        "",
        "Made by `python -m benchmarks.kernels` from `benchmarks/results/kernels.json`; do not edit. How a kernel is chosen is",
        "in [kernels.md](kernels.md). Each figure is a time divided by that of the same layer or network over the reals, in",
        "turns in one process: median, and in brackets the quartiles. Below 1 is faster. In *italics* what was aimed at;",
        "**bold** where it was reached.",
        "",
        f"{where['date']}, {where['cores']} cores of {where['processor']}, {where['threads']} threads, torch {where['torch']},",
        f"float32, commit {machine.short(found['commit'])}.",
        "",
        f"| work | {' | '.join(ALGEBRAS)} |",
        f"|---|{'---:|' * len(ALGEBRAS)}",
    ]
    for name, rows in found["cases"].items():
        by_algebra = {row["algebra"]: row for row in rows}
        cells = [cell(by_algebra[algebra]) if algebra in by_algebra else "" for algebra in ALGEBRAS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        *bounds_of_what_was_missed(found),
        "",
        "Operations of a step, and what it keeps for its backward pass beside the parameters:",
        "",
        "| work | algebra | GFLOP | kept, MiB |",
        "|---|---|---:|---:|",
    ]
    for name, rows in found["cases"].items():
        kept = [row for row in rows if "kept_mb" in row]
        lines += [f"| {name} | {row['algebra']} | {row['gflop']:.2f} | {row['kept_mb']:.1f} |" for row in kept]
    lines += ["", *memory.table(read(memory.RESULTS))]
    lines += ["", *attention()]
    lines += ["", *peers.section(read(peers.RESULTS)), "", *growth.section(read(growth.RESULTS))]
    lines += ["", *papers_times.section(read(papers_times.RESULTS))]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def bounds_of_what_was_missed(found: dict[str, Any]) -> list[str]:
    """Write the roofline beside every ratio that missed its aim."""
    roof = found["roofline"]
    lines = [
        "### What bounds the figures that miss their aim",
        "",
        f"Products of 4,096 rows with a matrix of 512 x 512 ran at {roof['gflops_512']} G operations a second, 8 with",
        f"128 x 128 at {roof['gflops_8_parts_of_128']} G; numbers in the caches were copied at {roof['copy_gb_per_s']} GB a",
        "second, read and written. All columns are ratios to the real work. *Products*: those of the factored kernel in its",
        "tiles (in evaluation, of the thin one), measured without anything else. *Bound*: with them, what has to be combined,",
        "moved at the rate of copying. *Combined*: moved at the rate at which torch combines components, as the",
        "plan assumes. *Shared out*: with what it takes to share out work to threads, four times a step. With a",
        "learned rule it is the real products, and the real matrix that is assembled twice and whose gradient is summed once.",
        "For a network: its step with nothing but its linear layers, down to their bounds, and their part of AdamW faster",
        "(*share*: their part of the real step). For decoding: with nothing faster than its matrices, by their products alone,",
        "and by our layers one after the other (*combined*). What lies between the last column and the measured ratio was not",
        "measured apart: calls into torch, waking its threads, and combining the weight and its gradient.",
        "",
        "| work | algebra | aimed at | measured | products | share | bound | combined | shared out |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    keys = ("products", "share", "bound", "combined", "shared")
    for name, rows in found["cases"].items():
        for row in rows:
            if row["asked"] is not None and row["ratio"] > row["asked"] and row.get("bound"):
                cells = [f"{row['bound'][key]:.2f}" if key in row["bound"] else "" for key in keys]
                own = f"| {name} | {row['algebra']} | {row['asked']} | {row['ratio']:.2f} |"
                lines.append(f"{own} {' | '.join(cells)} |")
    return lines


def attention() -> list[str]:
    """Write what `benchmarks.attention_products` measured."""
    found = read(RESULTS.parent / "attention_products.json")
    lines = [
        "Attention whose scores are products of algebra elements, 1,024 tokens, forward and backward on one thread: its time",
        "beside plain attention by torch, and time and peak memory beside the same scores kept for the backward pass",
        "(aimed at 3.0, 0.45 and 0.35; `python -m benchmarks.attention_products`, commit",
        f"{machine.short(found['commit'])}). Over n components a product score is n heads of torch's kernel, so n times plain",
        "attention is its floor.",
        "",
        "| score | algebra | causal | time to plain | time to kept | memory to kept |",
        "|---|---|---|---:|---:|---:|",
    ]
    for row in found["rows"]:
        memory = f"{row['memory_to_kept']:.2f}" if "memory_to_kept" in row else ""
        own = f"| {row['score']} | {row['algebra']} | {'yes' if row['causal'] else 'no'} |"
        lines.append(f"{own} {row['time_to_dot']:.2f} | {row['time_to_kept']:.2f} | {memory} |")
    return lines


def read(path: Path) -> Any:
    """Read what was measured."""
    return json.loads(path.read_text(encoding="utf-8"))


def cell(row: dict[str, Any]) -> str:
    """Write a ratio, its quartiles and what was aimed at."""
    asked = row["asked"]
    text = f"{row['ratio']:.2f}"
    text = f"**{text}**" if asked is not None and row["ratio"] <= asked else text
    return f"{text} ({row['low']:.2f} to {row['high']:.2f})" + (f" *{asked}*" if asked is not None else "")


def main() -> None:
    """Measure all cases, or some of them anew, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="measure the cases with this word in their names")
    parser.add_argument("--bounds", action="store_true", help="measure only what bounds the ratios")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    given = parser.parse_args()
    found: dict[str, Any] = read(RESULTS) if RESULTS.exists() else {"cases": {}}
    if not given.page:
        found |= {
            "machine": machine.info(),
            "commit": found["commit"] if given.bounds else commit(),
            "roofline": roofline.machine_rates(),
        }
        rate = 1e9 * found["roofline"]["copy_gb_per_s"]
        for name, made, asked, rounds, bound in cases():
            if given.only in name:
                rows = found["cases"].get(name, [])
                if not given.bounds:
                    rows = measure(made, asked, rounds, "training" in name or "backward" in name)
                    print(name, {row["algebra"]: row["ratio"] for row in rows}, flush=True)
                bounds = bound(rate, rows[0]["ms"])
                found["cases"][name] = [row | {"bound": bounds.get(row["algebra"])} for row in rows]
                RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_page(found)


if __name__ == "__main__":
    main()
