"""``zoo doctor``: check that everything is installed that a run needs."""

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.cli.parser import Parser
from zoo.errors import InputError

PACKAGES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "datasets", "safetensors", "scikit-learn")


def make_parser(command: str) -> Parser:
    """Return the command's parser."""
    parser = Parser(command, "Check Python, torch, devices, plugins and folders.")
    parser.switch("--json", "print JSON")
    parser.switch("--isolate", "load each plugin in a process of its own (slow; survives crashes)")
    return parser


def run(command: str, values: dict[str, Any]) -> int:
    """Check and print; exit 1 if anything is broken."""
    rows = [*metadata(), *packages(), *devices(), *plugins(values["isolate"]), *folders()]
    if values["json"]:
        print(json.dumps(rows, indent=2))
    else:
        print("\n".join(line(row) for row in rows))
    broken = [row["name"] for row in rows if row["status"] == "broken"]
    if not values["json"]:
        print(f"\n{len(broken)} broken: {', '.join(broken)}" if broken else "\nall is well")
    return 1 if broken else 0


def row(kind: str, name: str, check: Callable[[], str]) -> dict[str, Any]:
    """Run one check; it returns what to show, or raises."""
    start = time.perf_counter()
    try:
        status, note = "ok", check()
    except Exception as error:  # Any failure is a finding of this check.
        status, note = "broken", " ".join(str(error).split()) or type(error).__name__
    return {"kind": kind, "name": name, "status": status, "ms": round(1000 * (time.perf_counter() - start)), "note": note}


def line(found: dict[str, Any]) -> str:
    """Write one check as a line."""
    return f"{found['status']:<7} {found['kind']:<9} {found['name']:<28} {found['ms']:>6} ms  {found['note']}"


def packages() -> list[dict[str, Any]]:
    """Check Python and the packages that a run imports."""
    python = row("python", platform.python_version(), lambda: sys.executable)
    return [python, *(row("package", name, partial(version, name)) for name in PACKAGES)]


def devices() -> list[dict[str, Any]]:
    """List the devices that torch can compute on."""

    def cpu() -> str:
        import torch

        return f"{torch.get_num_threads()} threads of {os.cpu_count()} cores"

    def accelerators() -> str:
        import torch

        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return ", ".join(names + (["mps"] if torch.backends.mps.is_available() else [])) or "none: runs use the CPU"

    return [row("device", "cpu", cpu), row("device", "accelerators", accelerators)]


def load_plugin(entry: registry.Entry, isolate: bool) -> str:
    """Load one plugin and return whose it is."""
    if not isolate:
        registry.load(entry)
    elif error := registry.probe(entry):
        raise InputError(error)
    return f"{entry.distribution} {entry.version}"


def plugins(isolate: bool) -> list[dict[str, Any]]:
    """Load every plugin and note how long it took."""
    return [
        row(kind.removesuffix("s"), entry.name, partial(load_plugin, entry, isolate))
        for kind in registry.GROUPS
        for entry in registry.entries(kind)
    ]


def metadata() -> list[dict[str, Any]]:
    """List installed packages whose metadata cannot be read; torch and Lightning fail beside them, so they come first."""
    return [
        {"kind": "metadata", "name": fault.distribution, "status": "broken", "ms": 0, "note": f"{fault.path}: {fault.reason}"}
        for fault in registry.faults()
    ]


def writable(path: Path) -> str:
    """Write a temporary file to a folder and return its full path."""
    with tempfile.TemporaryFile(dir=path):
        return str(path.resolve())


def folders() -> list[dict[str, Any]]:
    """Check the folders that a run writes to."""
    cache = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    while not cache.exists():
        cache = cache.parent
    return [row("folder", "here (runs/)", partial(writable, Path())), row("folder", "hub cache", partial(writable, cache))]
