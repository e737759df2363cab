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
        "Forward and backward. *Products* is R / n^2, the share of the real layer's multiplications: the limit where nothing "
        "else takes time. What lies between is combining the components.",
    ),
    "networks": (
        "Training steps",
        "Forward, backward and AdamW: 16 images of 64 x 64, or 4 texts of 256 tokens. Attention scores, norms, the embedding "
        "and the head are those of the real network, so narrow networks gain less.",
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
MULTIPLICATIONS = {"quaternion": 8 / 16, "octonion": 30 / 64, "complex": 3 / 4, "phm-4": 1.0, "phm(n=4, rank=8)": 8 / 16}


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
    shares = {name: multiplications(name) for name in chosen}
    extra = key == "layers"
    lines = ["| work | ratio | goal |" + " products |" * extra, "|---|---:|---:|" + "---:|" * extra]
    for name, row in chosen.items():
        share = "" if shares[name] is None else f"{shares[name]:.2f}"
        lines.append(f"| {name} | {cell(row)} | {row['goal'] or ''} |" + f" {share} |" * extra)
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


def multiplications(name: str) -> float | None:
    """Return R / n^2 of the algebra in the name of a case, if it is a linear layer or a convolution."""
    known = [share for algebra, share in MULTIPLICATIONS.items() if f", {algebra}," in name]
    return known[0] if known and not name.startswith("LSTM") else None


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
        "by it. An LSTM runs torch's kernel on real matrices, since a loop over time in Python takes longer. 1 x 1 "
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
