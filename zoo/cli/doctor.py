"""``zoo doctor``: check the installation."""

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.cli.result import Result
from zoo.errors import InputError, one_line

PACKAGES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "datasets", "safetensors", "scikit-learn")


def doctor() -> Result:
    """Check Python, torch, devices, plugins and folders."""
    rows = [run_check(*arguments) for arguments in checks()]
    broken = [row["name"] for row in rows if row["status"] == "broken"]
    lines = [f"{row['status']:<7} {row['kind']:<9} {row['name']:<28} {row['ms']:>6} ms  {row['note']}" for row in rows]
    lines.append(f"\n{len(broken)} broken: {', '.join(broken)}" if broken else "\nno problems found")
    return Result(rows, "\n".join(lines), 1 if broken else 0)


def run_check(kind: str, name: str, probe: Callable[[], str]) -> dict[str, Any]:
    """Run a check, which returns a note or raises, and return its row."""
    start = time.perf_counter()
    try:
        status, note = "ok", probe()
    except Exception as error:
        status, note = "broken", one_line(error)
    return {"kind": kind, "name": name, "status": status, "ms": round(1000 * (time.perf_counter() - start)), "note": note}


def checks() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Yield the kind, the name and the function of each check."""
    for fault in registry.faults():  # unreadable metadata of any package makes torch and Lightning fail
        yield "metadata", Path(fault.path).name, partial(_fail, f"{fault.path}: {fault.reason}")
    yield "python", platform.python_version(), lambda: sys.executable
    for name in PACKAGES:
        yield "package", name, partial(version, name)
    yield "device", "cpu", _cpu
    yield "device", "accelerators", _accelerators
    yield "kernel", "products on the CPU", _kernel
    for kind in registry.GROUPS:
        for entry in registry.entries(kind):
            yield kind.removesuffix("s"), entry.name, partial(_loaded, entry)
    cache = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    while not cache.exists():
        cache = cache.parent
    yield "folder", "here (runs/)", partial(_write, Path())
    yield "folder", "hub cache", partial(_write, cache)


def _fail(reason: str) -> str:
    raise InputError(reason)


def _cpu() -> str:
    import torch

    return f"{torch.get_num_threads()} threads of {os.cpu_count()} cores"


def _kernel() -> str:
    from zoo.kernels.compiled import status

    return status()


def _accelerators() -> str:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ", ".join(names + (["mps"] if torch.backends.mps.is_available() else [])) or "none: runs use the CPU"


def _loaded(entry: registry.Entry) -> str:
    """Load a plugin, and return its distribution and version."""
    registry.load(entry)
    return f"{entry.distribution} {entry.version}"


def _write(path: Path) -> str:
    """Check that a folder is writable, and return its absolute path."""
    with tempfile.TemporaryFile(dir=path):
        return str(path.resolve())
