"""Write docs/speed.md from the measurements in benchmarks/results: ``python -m benchmarks.speed_page``."""

import json
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks import fused, growth, machine, memory, papers_times, peers
from zoo.kernels import base
from zoo.kernels import fused as operator

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
WIDTH = 120
SECTIONS = {
    "layers": (
        "Layers in training",
        "Forward and backward. *Limit*: R / n^2, the share of the real layer's multiplications; the gradient of a learned "
        "product needs the forward products again. What lies between is combining the components.",
    ),
    "networks": (
        "Training steps",
        "Forward, backward and AdamW: 16 images of 64 x 64, or 4 texts of 256 tokens. Attention scores, norms, the embedding "
        "and the head are those of the real network, so narrow networks gain less. *Limit*, an estimate: the measured share of "
        "the linear layers in the real step shrinks to R / n^2; everything else stays, the optimizer too.",
    ),
    "adamw": (
        "AdamW(fused=True)",
        "The same training steps with torch's fused optimizer, divided by those with its default. It is not the zoo's default: "
        "it saves little, and would change the last digits of every stored result. "
        "`torch.optim.AdamW(fused=True)` works in your own loop.",
    ),
    "recurrent": (
        "LSTM: the limit of a kernel",
        "The products of a training step of a quaternion LSTM and nothing else, divided by a whole step of torch's real LSTM; "
        "batch x steps x features. The products with the inputs of all steps are one factored product, and so is the gradient "
        "of the recurrent weight; those with the states use the real matrix, step by step. A kernel of our own would add the "
        "gates and the loop to that, so an LSTM over an algebra assembles its real matrices and runs torch's kernel.",
    ),
    "compiled": ("Compiled", "Both networks under `torch.compile` with its defaults; compilation is not counted."),
    "evaluation": (
        "Evaluation of a layer",
        "Quaternions. Inside `zoo.keep_matrices` the combinations of the components are cached; outside nothing is.",
    ),
    "decoding": (
        "Decoding",
        "One text, quaternions. A step reads every weight once, so a quarter of the numbers is the limit: 0.25. "
        "Hugging Face's `generate` opens no scope.",
    ),
    "busy": ("Beside busy processes", "The same training steps while four other processes compute without end."),
}
CONSTANTS = {
    "SPEED": "operations per second of one thread in large products of matrices",
    "HALF_WIDTH": "width of a matrix at which that speed is half",
    "TRAFFIC": "bytes per second of one thread that combines components",
    "READING": "bytes per second of all threads that read a matrix for one row",
    "CALL": "seconds of an operation that does almost nothing",
}
MULTIPLICATIONS = {
    "quaternion": 8 / 16,
    "octonion": 30 / 64,
    "complex": 3 / 4,
    "phm-4": 1.0,
    "phm(n=4, rank=8)": 4 / 3 * 8 / 16,
}


def text() -> str:
    """Return the whole page."""
    rows = read(fused.RESULTS)
    measured = {row["section"] for row in rows.values()}
    parts = [INTRODUCTION, *(section(key, rows) for key in SECTIONS if key in measured), *losses(rows), plan()]
    parts.append("\n".join(attention()))
    sections = (memory.table, memory), (growth.section, growth), (peers.section, peers), (papers_times.section, papers_times)
    parts += ["\n".join(write(read(module.RESULTS))) for write, module in sections]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """# Speed

Made by `python -m benchmarks.speed_page` from `benchmarks/results`; do not edit. [Kernels](kernels.md) explains how a product
is computed and chosen.

Each ratio is a time divided by that of the same layer or network over the reals, measured in turns in one process
(`python -m benchmarks.fused`, float32 unless stated): the median, and the quartiles in brackets. Below 1 is faster than the
real network. **Bold** ratios reach the goal that was set beforehand. The script is a plain one and sets no environment
variables. `zoo bench` measures your own network on your own machine."""


def section(key: str, rows: dict[str, Any]) -> str:
    """Write the cases of one section as a table."""
    title, words = SECTIONS[key]
    chosen = {name.removeprefix(f"{key}: "): row for name, row in rows.items() if row["section"] == key}
    if key == "evaluation":
        return "\n".join([f"## {title}", "", fill(words, WIDTH), "", *evaluation(chosen), "", *caption(chosen)])
    limits = {name: limit(name, rows) for name in chosen}
    columns: dict[str, Any] = {"goal": {name: row["goal"] for name, row in chosen.items()}, "limit": limits}
    columns = {title: values for title, values in columns.items() if any(values.values())}
    lines = [f"| {' | '.join(('work', 'ratio', *columns))} |", "|---|---:|" + "---:|" * len(columns)]
    for name, row in chosen.items():
        numbers = [f"{values[name]:.2f}" if values[name] else "" for values in columns.values()]
        lines.append(f"| {' | '.join((name, cell(row), *numbers))} |")
    return "\n".join([f"## {title}", "", fill(words, WIDTH), "", *lines, "", *caption(chosen)])


def evaluation(rows: dict[str, Any]) -> list[str]:
    """Write the table of evaluation, a line for each width and a column for each number of rows."""
    counts = (*fused.EVALUATED,)
    head = " | ".join("1 row" if n == 1 else f"{n} rows" for n in counts)
    lines = [f"| features | | {head} |", f"|---:|---|{'---:|' * len(counts)}"]
    for size in dict.fromkeys(name.split()[0] for name in rows):
        for where in ("inside the scope", "outside"):
            found = [rows.get(f"{size} features, batch {n}, {where}") for n in counts]
            lines.append(f"| {size} | {where} | {' | '.join(cell(row) if row else '' for row in found)} |")
    return lines


def limit(name: str, rows: dict[str, Any]) -> float | None:
    """Return the least ratio that a layer's products allow, or that of a network for the share of its linear layers."""
    share: dict[str, float] | None = rows.get(f"shares: {name}")
    if share:
        return round(1 - share["ratio"] * (1 - MULTIPLICATIONS["quaternion"]), 2)
    layer = [products for algebra, products in MULTIPLICATIONS.items() if f", {algebra}," in name]
    return round(layer[0], 2) if layer and not name.startswith("LSTM") else None


def cell(row: dict[str, Any]) -> str:
    """Write a ratio and its quartiles."""
    ratio = f"**{row['ratio']:.2f}**" if row["goal"] and row["ratio"] <= row["goal"] else f"{row['ratio']:.2f}"
    return f"{ratio} ({row['low']:.2f} to {row['high']:.2f})"


def caption(rows: dict[str, Any]) -> list[str]:
    """Name the machines, dates and commits that a table was measured on."""
    groups = {
        f"{row['date']}, {row['threads']} threads of {row['processor']}, torch {row['torch']}, "
        f"commit {machine.short(row['commit'])}."
        for row in rows.values()
    }
    return sorted(groups)


def losses(rows: dict[str, Any]) -> list[str]:
    """List what is not faster than the real network."""
    found = [f"- {name}: {cell(row)}" for name, row in rows.items() if row["ratio"] > 1 and row["section"] != "busy"]
    reasons = (
        "Small layers cannot gain: the time to combine components grows with the features, that of products with their square. "
        "A learned product without a given rank (`phm-4`) has no factors, so its layers assemble the real matrix and multiply "
        "by it. An LSTM runs torch's kernel on real matrices, see above. 1 x 1 "
        "convolutions, and 3 x 3 convolutions of few channels, spend as long on combining as they save."
    )
    return ["## What does not gain", fill(reasons, WIDTH), *(["Measured above 1:\n\n" + "\n".join(found)] if found else [])]


def plan() -> str:
    """Explain the prediction that chooses a kernel, with the constants of the code."""
    words = (
        "Every kernel predicts its time from shapes, with constants of one reference machine (2 cores with AVX-512, float32): "
        "the products it computes, the bytes it combines and reads, and its calls. The plan takes the least. The constants are "
        "not measured where the zoo runs, so that the choice, and with it the last bits of a result, depends on the shapes "
        "alone. Only their proportions matter: a machine that is twice as fast in everything chooses alike."
    )
    lines = [
        "## How the plan predicts times",
        "",
        fill(words, WIDTH),
        "",
        "| constant | value | meaning |",
        "|---|---:|---|",
        *(f"| `{name}` | {getattr(base, name):g} | {meaning} |" for name, meaning in CONSTANTS.items()),
        f"| `FEWEST_ELEMENTS` | {operator.FEWEST_ELEMENTS} | elements of a weight below which the operator is not used |",
        f"| `FEW_ROWS` | {operator.FEW_ROWS} | rows up to which the thin product takes less time than combining the weight |",
        f"| `HALF_SPEED` | {operator.HALF_SPEED} | how much faster products are in bfloat16; combining is not |",
    ]
    return "\n".join(lines)


def attention() -> list[str]:
    """Write what `benchmarks.attention_products` measured."""
    found = read(fused.RESULTS.parent / "attention_products.json")
    lines = [
        "## Attention whose scores are products",
        "",
        "1,024 tokens, forward and backward on one thread: the time beside plain attention by torch, and time and peak memory",
        "beside the same scores saved for the backward pass (`python -m benchmarks.attention_products`, commit",
        f"{machine.short(found['commit'])}). Over n components a product score is n heads of torch's kernel, so n times plain",
        "attention is its limit.",
        "",
        "| score | algebra | causal | time to plain | time to saved | memory to saved |",
        "|---|---|---|---:|---:|---:|",
    ]
    for row in found["rows"]:
        memory = f"{row['memory_to_kept']:.2f}" if "memory_to_kept" in row else ""
        name = f"| {row['score']} | {row['algebra']} | {'yes' if row['causal'] else 'no'} |"
        lines.append(f"{name} {row['time_to_dot']:.2f} | {row['time_to_kept']:.2f} | {memory} |")
    return lines


def read(path: Path) -> Any:
    """Read a result."""
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
