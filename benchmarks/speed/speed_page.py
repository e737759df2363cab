"""Write docs/speed.md from the stored results: ``python -m benchmarks.speed.speed_page``."""

import itertools
import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import machine
from benchmarks.speed import convnets, fused, gpu, growth, memory, papers_times, peers, plan, threads
from zoo.kernels import base
from zoo.kernels import fused as operator

PAGE = machine.ROOT / "docs" / "speed.md"
TEMPLATE = Path(__file__).parent / "speed_template.md"
CONSTANTS = {
    "multiply": "operations per second of one thread in large matrix products",
    "half_width": "matrix width at which this speed is halved",
    "traffic": "bytes per second of one thread when combining components",
    "reading": "bytes per second of all threads when reading a matrix for one row",
    "copied_width": "width of products at which the fused operator copies as long as it multiplies",
    "call": "seconds of overhead per operation",
}
Results = dict[str, dict[str, Any]]
"""The rows of results/fused.json by instruction set and case."""
MULTIPLICATIONS = {
    "quaternion": 8 / 16,
    "octonion": 30 / 64,
    "complex": 3 / 4,
    "phm-4": 1.0,
    "phm(n=4, rank=8)": 4 / 3 * 8 / 16,
}


def text() -> str:
    """Return the text of the page: the template with its tables."""
    sets, used, attended = read(fused.RESULTS), read(memory.RESULTS), read(fused.RESULTS.parent / "attention_products.json")
    grown, others, layouts = read(growth.RESULTS), read(peers.RESULTS), read(convnets.RESULTS)
    slower = [
        f"- {key}, {name}: {cell(row)}"
        for key, rows in sets.items()
        for name, row in rows.items()
        if row["ratio"] > 1 and row["section"] != "busy"
    ]
    libraries = ", ".join(f"{name} {note}" for name, note in others["libraries"].items())
    sections = dict.fromkeys(row["section"] for rows in sets.values() for row in rows.values())
    parts: dict[str, object] = {key: "\n".join(section(key, sets)) for key in sections}
    parts |= {"slower": "\n".join(slower), "constants": "\n".join(constants()), "plan": "\n".join(planned(read(plan.RESULTS)))}
    parts |= {"attention": "\n".join(attention(attended)), "attention_commit": machine.short(attended["commit"])}
    parts |= {"convnets": "\n".join(convnets.table(layouts)), "convnets_made": made(layouts)}
    parts |= {"memory": "\n".join(memory.table(used)), "memory_made": made(used)}
    parts |= {"growth": "\n".join(growth.section(grown)), "growth_threads": grown["features"]["ms"]["machine"]["threads"]}
    parts |= {"peers": "\n".join(peers.section(others)), "peers_made": made(others), "peers_libraries": libraries}
    parts |= {"threads": "\n".join(threads.table(read(threads.RESULTS)))} | gpu_parts(read(gpu.RESULTS))
    parts |= papers_times.parts(read(papers_times.RESULTS))
    return TEMPLATE.read_text(encoding="utf-8").format_map(parts)


def gpu_parts(results: dict[str, Any]) -> dict[str, str]:
    """Format the results of `benchmarks.speed.gpu`: times, and a summary of what was trained."""
    speed, trained = results["speed"], results["train"]["rows"]
    lines, failed = [], []
    for row in speed["rows"]:
        if "error" in row:
            failed.append(row["case"])
            continue
        (_, first), *others = row["calls"].items()
        for name, call in others:
            memory = f"{call['peak_mb'] / first['peak_mb']:.2f}" if first["peak_mb"] >= 1 else ""
            ratio = f"{call['ratio']:.2f} ({call['low']:.2f} to {call['high']:.2f})"
            lines.append(f"| {row['case']} | {name} | {first['ms']:.3g} | {ratio} | {memory} |")
    failed += [row["layer"] for row in trained if "layer" in row and "failed" in row]
    errors = [(row["layer"].rpartition(", ")[2], row["error"]) for row in trained if "error" in row]
    largest = {dtype: max(error for other, error in errors if other == dtype) for dtype, _ in errors}
    networks = [row for row in trained if "backbone" in row]
    kinds = [len({row[key] for row in networks}) for key in ("backbone", "algebra")]
    where = [speed["machine"][key] for key in ("device", "date", "torch", "cuda")]
    return {
        "gpu_steps": "\n".join(gpu_steps(results.get("table", []))),
        "gpu": "\n".join(lines),
        "gpu_failed": "; ".join(failed),
        "gpu_made": "{}, {}, torch {}, CUDA {}, commit {}".format(*where, machine.short(speed["commit"])),
        "gpu_trained": f"{sum('seconds' in row for row in networks)} of {len(networks)} runs ({kinds[0]} backbones, "
        f"{kinds[1]} algebras, float32 and bfloat16, {sum(row['compiled'] for row in networks)} of them compiled)",
        "gpu_error": f"{len(errors)} layers and kernels, compared with float64 on a CPU, is "
        + " and ".join(f"{error:.1e} in {dtype}" for dtype, error in largest.items()),
        "gpu_note": results["train"].get("note", ""),
    }


def gpu_steps(rows: list[dict[str, Any]]) -> list[str]:
    """Format the table of `benchmarks.speed.gpu`, with the machines of its rows."""
    timed = [row for row in rows if "calls" in row]
    if not timed:
        return ["Not measured yet for the current kernels."]
    lines = ["| case | network | reference, ms | ratio | goal | memory |", "|---|---|---:|---:|---:|---:|"]
    for row in timed:
        (_, first), *others = row["calls"].items()
        for name, call in others:
            goal = row["goals"].get(name, "")
            if "ratio" not in call:
                lines.append(f"| {row['case']} | {name} | | failed | {goal} | |")
                continue
            ratio = f"{call['ratio']:.2f} ({call['low']:.2f} to {call['high']:.2f})"
            memory = f"{call['peak_mb'] / first['peak_mb']:.2f}" if first["peak_mb"] >= 1 else ""
            lines.append(f"| {row['case']} | {name} | {first['ms']:.3g} | {ratio} | {goal} | {memory} |")
    keys = "device", "date", "torch", "cuda"
    where = {(*(row["machine"][key] for key in keys), machine.short(row["commit"])) for row in timed}
    return [*lines, "", *("Measured on {}, {}, torch {}, CUDA {}, commit {}.".format(*parts) for parts in sorted(where))]


def made(results: dict[str, Any]) -> str:
    """Describe when results were measured."""
    return f"{results['machine']['date']}, commit {machine.short(results['commit'])}"


def section(key: str, sets: Results) -> list[str]:
    """Format the cases of one section as a table, with a column for every instruction set."""
    chosen = {
        instructions: {name.removeprefix(f"{key}: "): row for name, row in rows.items() if row["section"] == key}
        for instructions, rows in sets.items()
    }
    chosen = {instructions: rows for instructions, rows in chosen.items() if rows}
    if key == "evaluation":
        return [*caption(chosen), "", *evaluation(chosen)]
    names = dict.fromkeys(name for rows in chosen.values() for name in rows)
    goals = {name: row["goal"] for rows in chosen.values() for name, row in rows.items()}
    columns: dict[str, Any] = {"goal": goals, "limit": {name: limit(name, sets) for name in names}}
    columns = {title: values for title, values in columns.items() if any(values.values())}
    lines = [f"| {' | '.join(('case', *chosen, *columns))} |", f"|---|{'---:|' * (len(chosen) + len(columns))}"]
    for name in names:
        cells = [cell(rows[name]) if name in rows else "" for rows in chosen.values()]
        cells += [f"{values[name]:.2f}" if values[name] else "" for values in columns.values()]
        lines.append(f"| {' | '.join((name, *cells))} |")
    return [*caption(chosen), "", *lines]


def evaluation(sets: Results) -> list[str]:
    """Format the table of evaluation, with one line per width and instruction set and one column per number of rows."""
    counts = (*fused.EVALUATED,)
    head = " | ".join("1 row" if n == 1 else f"{n} rows" for n in counts)
    lines = [f"| features | | | {head} |", f"|---:|---|---|{'---:|' * len(counts)}"]
    for size in dict.fromkeys(name.split()[0] for rows in sets.values() for name in rows):
        for where, (instructions, rows) in itertools.product(("inside the scope", "outside"), sets.items()):
            cases = [rows.get(f"{size} features, batch {n}, {where}") for n in counts]
            cells = " | ".join(cell(row) if row else "" for row in cases)
            lines.append(f"| {size} | {where} | {instructions} | {cells} |")
    return lines


def limit(name: str, sets: Results) -> float | None:
    """Return the lowest possible ratio of a layer (multiplications) or of a network (share of its linear layers)."""
    for rows in sets.values():
        if share := rows.get(f"shares: {name}"):
            return round(1 - float(share["ratio"]) * (1 - MULTIPLICATIONS["quaternion"]), 2)
    layer = [products for algebra, products in MULTIPLICATIONS.items() if f", {algebra}," in name]
    return round(layer[0], 2) if layer and not name.startswith("LSTM") else None


def cell(row: dict[str, Any]) -> str:
    """Format a ratio and its quartiles."""
    ratio = f"**{row['ratio']:.2f}**" if row["goal"] and row["ratio"] <= row["goal"] else f"{row['ratio']:.2f}"
    return f"{ratio} ({row['low']:.2f} to {row['high']:.2f})"


def caption(sets: Results) -> list[str]:
    """List the machines, dates and commits of a table."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for instructions, rows in sets.items():
        for row in rows.values():
            where = (
                f"{row['threads']} threads of {row['processor']}, torch {row['torch']}, commit {machine.short(row['commit'])}"
            )
            speeds = groups.setdefault((instructions, row["date"], where), [])
            speeds += [row["gflops"]] if "gflops" in row else []
    return [
        f"- {instructions}: measured {date} on {where}"
        + (f"; torch's product of 1024 x 1024 runs at {median(speeds):.0f} GFLOP/s." if speeds else ".")
        for (instructions, date, where), speeds in sorted(groups.items())
    ]


def constants() -> list[str]:
    """List the constants of the code by which the plan predicts times."""
    lines = [f"| constant | {' | '.join(base.SPEEDS)} | meaning |", f"|---|{'---:|' * len(base.SPEEDS)}---|"]
    for name, meaning in CONSTANTS.items():
        lines.append(
            f"| `{name}` | {' | '.join(f'{getattr(speeds, name):g}' for speeds in base.SPEEDS.values())} | {meaning} |"
        )
    others = {
        "FEWEST_ELEMENTS": "minimum number of elements of a weight for the fused operator",
        "FEW_ROWS": "maximum number of rows for products that do not combine the weight",
        "HALF_SPEED": "speedup of products in bfloat16; combining is not faster",
    }
    return lines + [
        f"| `{name}` | {getattr(operator, name)} | {getattr(operator, name)} | {text} |" for name, text in others.items()
    ]


def planned(results: dict[str, Any]) -> list[str]:
    """Format the kernels that the plan chooses for the shapes of `benchmarks.speed.plan`, and where they were measured."""
    made = [
        f"- {name}: measured {entry['machine']['date']} on {entry['machine']['processor']}; torch's product runs at "
        f"{entry['machine']['gflops']:.0f} GFLOP/s."
        for name, entry in results.items()
    ]
    return [*made, "", *plan.table(results)]


def attention(results: dict[str, Any]) -> list[str]:
    """Format the results of `benchmarks.speed.attention_products`."""
    lines = []
    for row in results["rows"]:
        saved = f"{row['memory_to_kept']:.2f}" if "memory_to_kept" in row else ""
        name = f"| {row['score']} | {row['algebra']} | {'yes' if row['causal'] else 'no'} |"
        lines.append(f"{name} {row['time_to_dot']:.2f} | {row['time_to_kept']:.2f} | {saved} |")
    return lines


def read(path: Path) -> Any:
    """Read a file of results."""
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
