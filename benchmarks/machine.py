"""Describe the machine and the commit of a measurement, and write results and tables."""

import json
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from zoo.atomic import write_text

ROOT = Path(__file__).parents[1]
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images"
END = "<!-- end of table -->"


def info() -> dict[str, Any]:
    """Return the date, the processor, its instruction set in torch and speed, the threads, the device, and library versions."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "gflops": product_speed(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "python": platform.python_version(),
        **{name: version(name) for name in ("hypercomplex-zoo", "torch", "lightning", "timm")},
    }


@cache
def product_speed(size: int = 1024) -> float:
    """Return the GFLOP/s of torch's product of two square float32 matrices on all threads (median of 20)."""
    import torch

    matrix, out, seconds = torch.randn(size, size), torch.empty(size, size), []
    for _ in range(23):
        start = time.perf_counter()
        torch.mm(matrix, matrix, out=out)
        seconds.append(time.perf_counter() - start)
    return round(2e-9 * size**3 / median(seconds[3:]), 1)


def processor() -> str:
    """Return the name of the processor, from /proc/cpuinfo if possible."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str | None:
    """Return the last commit that changed zoo/, with ``-changed`` appended if it has local changes; None outside of git."""
    commands = ("git", "log", "-1", "--format=%H", "--", "zoo"), ("git", "status", "--porcelain", "--", "zoo")
    results = [subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False) for line in commands]
    if any(result.returncode for result in results):
        return None
    return results[0].stdout.strip() + ("-changed" if results[1].stdout else "")


def short(name: str | None) -> str:
    """Shorten a commit returned by `commit` for display.

    >>> short("0123456789abcdef"), short("0123456789abcdef-changed"), short(None)
    ('0123456789', '0123456789-changed', 'none')
    """
    digest, *changed = (name or "none").split("-")
    return "-".join([digest[:10], *changed])


def replace_table(text: str, begin: str, table: str) -> str:
    """Replace the table between the comment ``begin`` and `END` on a page."""
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{table}\n{END}{rest.partition(END)[2]}"


def write(path: Path, results: dict[str, Any]) -> None:
    """Write results as indented JSON, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(results, indent=1) + "\n")


def write_rows(path: Path, results: dict[str, Any]) -> None:
    """Write results as indented JSON with one line for each of its ``rows``, which come last, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _with_rows(results) + "\n")


def write_sets(path: Path, results: dict[str, dict[str, Any]]) -> None:
    """Write the results of several instruction sets like `write_rows`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sets = ",\n".join(f"{json.dumps(name)}: {_with_rows(entry)}" for name, entry in results.items())
    write_text(path, f"{{\n{sets}\n}}\n")


def _with_rows(results: dict[str, Any]) -> str:
    head = json.dumps({key: value for key, value in results.items() if key != "rows"}, indent=1)
    lines = ",\n  ".join(json.dumps(row) for row in results["rows"])
    return f'{head[:-2]},\n "rows": [\n  {lines}\n ]\n}}'
