"""What a result was measured on."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


def info() -> dict[str, Any]:
    """Return the date, the processor, its cores, the device, and the versions of what computes."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "python": platform.python_version(),
        **{name: version(name) for name in ("hypercomplex-zoo", "torch", "lightning", "timm")},
    }


def processor() -> str:
    """Return the processor's own name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def short(commit: str | None) -> str:
    """Shorten a commit, as `benchmarks.papers.commit` names it, for a page.

    >>> short("0123456789abcdef"), short("0123456789abcdef-changed"), short(None)
    ('0123456789', '0123456789-changed', 'none')
    """
    name, *changed = (commit or "none").split("-")
    return "-".join([name[:10], *changed])
