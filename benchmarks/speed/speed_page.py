"""Write docs/speed.md and the CSV files that it links to from the stored results: ``python -m benchmarks.speed.speed_page``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from zoo_reports.page import Table

from benchmarks.machine import RESULTS, ROOT, read, short
from benchmarks.speed import fused, gpu, memory, papers_times, peers, speed_tables

PAGE = ROOT / "docs" / "speed.md"
TEMPLATE = Path(__file__).parent / "speed_template.md"
FOLDER = RESULTS / "speed"
Results = dict[str, dict[str, Any]]
"""The rows of results/fused.json by instruction set and case."""
STEP = "step: "
"""How the names of training steps begin in the table of `benchmarks.speed.gpu`."""


def text() -> str:
    """Return the text of the page."""
    sets = read(fused.RESULTS)
    parts = {"steps": "\n".join(steps(sets)), "measured": "\n".join(measured(sets)), "gpu": "\n".join(on_gpu())}
    parts |= {"wide": span(sets, "networks", "dim=384", "dim=768", "dim=1024"), "decoding": span(sets, "decoding", "a step")}
    parts |= {"layers": span(sets, "layers", "Linear, quaternion, 4,096"), "compiled": span(sets, "compiled", "dim=")}
    parts |= {"busy": span(sets, "busy", "vit"), "fused_adamw": span(sets, "adamw", "vit")}
    parts |= {"slower": slower(sets), "peers": of_peers(), "memory": of_memory(), "papers": of_papers()}
    return TEMPLATE.read_text(encoding="utf-8").format_map(parts)


def rows_of(sets: Results, section: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of a section by case and instruction set."""
    cases: dict[str, dict[str, dict[str, Any]]] = {}
    for instructions, rows in sets.items():
        for name, row in rows.items():
            if row["section"] == section:
                cases.setdefault(name.removeprefix(f"{section}: "), {})[instructions] = row
    return cases


def span(sets: Results, section: str, *parts: str) -> str:
    """Return the lowest and highest ratio of the cases of a section whose names contain one of the parts."""
    found = [
        row["ratio"] for case, rows in rows_of(sets, section).items() for row in rows.values() if any(p in case for p in parts)
    ]
    low, high = f"{min(found):.2f}", f"{max(found):.2f}"
    return low if low == high else f"{low} to {high}"


def steps(sets: Results) -> list[str]:
    """Tabulate the training steps with their quartiles."""
    cases = rows_of(sets, "networks")
    lines = []
    for case, rows in cases.items():
        lines.append([f"`{case}`", *(cell(rows[name]) if name in rows else "" for name in sets)])
    return Table("", ["training step, quaternion / real", *sets], lines).as_markdown()


def cell(row: dict[str, Any]) -> str:
    """Format a ratio and its quartiles."""
    return f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def measured(sets: Results) -> list[str]:
    """List where the training steps were measured."""
    lines = []
    for name, rows in sets.items():
        found = [row for row in rows.values() if row["section"] == "networks"]
        dates, speed = sorted({row["date"] for row in found}), median(row["gflops"] for row in found)
        first = found[0]
        lines.append(
            f"- {name}: {first['threads']} threads of {first['processor']}, {dates[-1]}, torch {first['torch']}; torch's "
            f"product of 1024 x 1024 runs at {speed:.0f} GFLOP/s."
        )
    return lines


def slower(sets: Results) -> str:
    """Count the cases that are slower than the real one."""
    rows = [row for found in sets.values() for row in found.values() if row["section"] not in ("busy", "shares", "adamw")]
    return f"{sum(row['ratio'] > 1 for row in rows)} of {len(rows)}"


def on_gpu() -> list[str]:
    """Tabulate training steps on a GPU, or describe those of earlier kernels."""
    results = read(gpu.RESULTS)
    rows = [row for row in results.get("table", []) if "calls" in row]
    return gpu_steps(rows) if rows else ["Not measured yet for the current kernels. " + earlier_kernels(results["speed"])]


def gpu_steps(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Tabulate the training steps of `benchmarks.speed.gpu`, with the machines of its rows."""
    lines = []
    for row in rows:
        if row["case"].startswith(STEP):
            (_, first), *others = row["calls"].items()
            ratios = [f"{name} {call['ratio']:.2f}" if "ratio" in call else f"{name} failed" for name, call in others]
            lines.append([row["case"].removeprefix(STEP), f"{first.get('ms', 0):.3g}", ", ".join(ratios)])
    keys = "device", "date", "torch", "cuda"
    where = {(*(row["machine"][key] for key in keys), short(row["commit"])) for row in rows if "machine" in row}
    made = ["Measured on {}, {}, torch {}, CUDA {}, commit {}.".format(*parts) for parts in sorted(where)]
    return [*Table("", ["training step", "real, ms", "ratio to it"], lines).as_markdown(), "", *made]


def earlier_kernels(results: dict[str, Any]) -> str:
    """Give the range of ratios of training steps with earlier kernels."""
    ratios = [
        call["ratio"]
        for row in results["rows"]
        for name, call in row.get("calls", {}).items()
        if row["case"].startswith(("vit", "gpt")) and name != "real"
    ]
    where = results["machine"]
    return (
        f"With those of {where['date']}, which assembled each matrix on its own, training steps took {min(ratios):.2f} to "
        f"{max(ratios):.2f} times as long as over the reals ({where['device']}, bfloat16)."
    )


def of_memory() -> str:
    """Compare the memory of a training step of a ViT over the quaternions with that of the real one."""
    rows = read(memory.RESULTS)["works"]["vit(dim=768, depth=4, heads=8, patch=8)"]
    ours = {name: value / rows["real"][name] for name, value in rows["quaternion"].items() if name != "kernels"}
    return (
        f"matrices with gradients and Adam's state {ours['matrices']:.2f}, saved activations {ours['kept']:.2f}, the peak of "
        f"all tensors {ours['peak']:.2f}"
    )


def of_peers() -> str:
    """Compare quaternion layers of the zoo and of other libraries with torch's real layer."""
    rows = [row for shape in read(peers.RESULTS)["shapes"] for row in shape["rows"] if row["algebra"] == "quaternion"]
    ours, others = ([row["ratio"] for row in rows if row["layer"].startswith("zoo") is kind] for kind in (True, False))
    return f"{ends(ours)} times the time of torch's real layer, other libraries {ends(others)} times"


def ends(values: Iterable[float]) -> str:
    """Format the lowest and highest value."""
    low, *_, high = sorted(values)
    return f"{low:.2f} to {high:.2f}"


def of_papers() -> str:
    """Give the ratios of training steps and of decoding in the setting of Zhang et al. 2021, Table 3."""
    rows = read(papers_times.RESULTS)["translation"]
    ratios = {work: [row["ratio"] for name, row in rows[work].items() if name != "real"] for work in ("training", "decoding")}
    return f"training {ends(ratios['training'])}, decoding {ends(ratios['decoding'])}"


def write(page: Path = PAGE, folder: Path = FOLDER) -> None:
    """Write the page and the CSV files."""
    folder.mkdir(exist_ok=True)
    for name, table in speed_tables.tables().items():
        (folder / name).write_text(table.as_csv(), encoding="utf-8")
    page.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    write()
