"""``zoo list``, ``completion`` and ``doctor``: installed plugins, from package metadata, and checks of the installation."""

import inspect
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.cli.commands import COMMANDS, command_names, load_command
from zoo.cli.parser import Parser
from zoo.cli.result import Result
from zoo.errors import InputError, one_line
from zoo.registry.resolution import Signature
from zoo.training.options import SPECS

KINDS = (*registry.GROUPS, "checkpoints")
SHELLS = ("bash", "zsh")
PASSED = {
    "backbones": "in_channels image_size in_features out_features vocab_size max_length num_classes pair seq2seq",
    "datasets": "batch_size num_workers seed stream",
    "embeddings": "vocab_size dim max_length vectors",
    "tasks": "vocab_size num_classes num_labels num_targets tokenizer optimizer schedule",
}
"""Keyword arguments that are not options of a spec, because the data or other options of a command set them."""
SCRIPT = """\
_zoo() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" choices=""
    if [ "$COMP_CWORD" -eq 1 ]; then choices="{commands}"; else
    case "$before" in
{names}
    *) case "$word" in -*) case "${{COMP_WORDS[1]}}" in
{flags}
        esac ;; esac ;;
    esac; fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o bashdefault -o default -F _zoo zoo
"""


def completion(shell: str) -> None:
    """Print a shell script that completes commands, flags and installed names.

    Args:
        shell: bash or zsh: eval "$(zoo completion bash)".
    """
    if shell not in SHELLS:
        raise InputError(f"shell '{shell}' is not supported: use {' or '.join(SHELLS)}", code="unsupported")
    print(("autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else "") + script(), end="")


def list_plugins(kind: str | None = None, name: str | None = None) -> Result:
    """List the installed algebras, backbones, data sets and so on.

    Args:
        kind: algebras, backbones, datasets, embeddings, tasks and so on, or checkpoints; by default all but checkpoints.
        name: The name of a plugin, to show its options.
    """
    if kind not in (None, *KINDS):
        close = get_close_matches(str(kind), KINDS, 1)
        hint = f"did you mean '{close[0]}'?" if close else f"use {', '.join(KINDS)}"
        raise InputError(f"unknown kind '{kind}': {hint}", code="unknown")
    if name and kind in ("checkpoints", "commands"):
        raise InputError(f"use zoo info {name}" if kind == "checkpoints" else f"use zoo {name} --help")
    if kind == "checkpoints":
        from zoo.cli.models import list_checkpoints

        return list_checkpoints()
    if kind and name:
        row = options_of(kind, name)
        return Result(row, f"{row['usage']}\n\n{row['doc']}".strip())
    rows = {name: list(map(_row_of, registry.entries(name))) for name in ([kind] if kind else registry.GROUPS)}
    text = "\n\n".join(table(name, plugins) for name, plugins in rows.items() if plugins or kind)
    return Result(rows[kind] if kind else rows, text)


def options_of(kind: str, name: str) -> dict[str, str]:
    """Return the row of a plugin, with its ``usage`` and the part of its docstring that describes options of a spec."""
    entry, _ = registry.resolve(f"zoo.{kind}", name)
    if "(" in name:
        raise InputError(f"'{name}': use the name without options, {entry.name}")
    factory: Any = registry.load(entry)
    row, passed = _row_of(entry), PASSED.get(kind, "").split()
    takes_only_options = kind in ("algebras", "datasets", "catalogues", "commands", "kernels")
    form = Signature.of(entry.name, factory, () if takes_only_options else (None,))
    text = inspect.getdoc(getattr(factory, "func", factory)) or ""
    first, *lines = re.split(r"\n(?:Returns|Raises|Yields):", text)[0].splitlines() or [""]
    doc, shown = [row["summary"] or first], True
    for line in lines:
        if match := re.match(r"    \*{0,2}(\w+)(?: \(.*?\))?: ", line):
            shown = match[1] not in passed and match[1] not in form.bound
        doc += [line] if shown or not line.startswith("    ") else []
    without_empty_args = re.sub(r"\n\nArgs:(?=\n\n|$)", "", "\n".join(doc).strip())
    return row | {"usage": form.usage(passed), "doc": without_empty_args}


def _row_of(entry: registry.Entry) -> dict[str, str]:
    return {**{key: str(value) for key, value in asdict(entry).items()}, "summary": registry.summary(entry)}


def table(kind: str, rows: list[dict[str, str]]) -> str:
    """Format names, summaries and third-party distributions, truncated to the width of the terminal."""
    width = shutil.get_terminal_size((120, 24)).columns
    longest = max((len(row["name"]) for row in rows), default=0)
    lines = [kind]
    for row in rows:
        origin = "" if row["distribution"] == "hypercomplex-zoo" else f" [{row['distribution']} {row['version']}]"
        limit = max(20, width - longest - 4 - len(origin))
        text = row["summary"] if len(row["summary"]) <= limit else row["summary"][: limit - 3] + "..."
        lines.append(f"  {row['name']:<{longest}}  {text}{origin}".rstrip())
    return "\n".join(lines if rows else [f"{kind}: none installed"])


def script() -> str:
    """Return the completion script for bash."""
    names = {key: " ".join(entry.name for entry in registry.entries(group)) for key, group in SPECS.items()}
    flags = {command: " ".join(_flags_of(command)) for command in command_names()}
    return SCRIPT.format(
        commands=" ".join(flags),
        names="\n".join(f'    --{key}) choices="{choices}" ;;' for key, choices in names.items()),
        flags="\n".join(f'        {command}) choices="{choices}" ;;' for command, choices in flags.items()),
    )


def _flags_of(command: str) -> list[str]:
    """Return the flags of a command, or [] for a plugin that fails."""
    try:
        return Parser(command, load_command(command)).flags
    except Exception:
        if command in COMMANDS:
            raise
        return []


PACKAGES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "datasets", "safetensors", "scikit-learn")


def doctor() -> Result:
    """Check Python, torch, devices, plugins and folders."""
    rows = [_run_check(*arguments) for arguments in _checks()]
    broken = [row["name"] for row in rows if row["status"] == "broken"]
    lines = [f"{row['status']:<7} {row['kind']:<9} {row['name']:<28} {row['ms']:>6} ms  {row['note']}" for row in rows]
    lines.append(f"\n{len(broken)} broken: {', '.join(broken)}" if broken else "\nno problems found")
    return Result(rows, "\n".join(lines), 1 if broken else 0)


def _run_check(kind: str, name: str, probe: Callable[[], str]) -> dict[str, Any]:
    """Run a check, which returns a note or raises, and return its row."""
    start = time.perf_counter()
    try:
        status, note = "ok", probe()
    except Exception as error:
        status, note = "broken", one_line(error)
    return {"kind": kind, "name": name, "status": status, "ms": round(1000 * (time.perf_counter() - start)), "note": note}


def _checks() -> Iterator[tuple[str, str, Callable[[], str]]]:
    for fault in registry.faults():  # unreadable metadata of any package makes torch and Lightning fail
        yield "metadata", Path(fault.path).name, partial(_fail, f"{fault.path}: {fault.reason}")
    yield "python", platform.python_version(), lambda: sys.executable
    for name in PACKAGES:
        yield "package", name, partial(version, name)
    yield "device", "cpu", _cpu
    yield "device", "accelerators", _accelerators
    yield "kernel", "products on the CPU", _kernel
    yield "kernel", "products on a GPU", _gpu_kernel
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

    from zoo.training.threads import RULE

    return f"{torch.get_num_threads()} threads of {os.cpu_count()} cores; training takes {RULE}"


def _kernel() -> str:
    from zoo.kernels.compiled import status

    return status()


def _gpu_kernel() -> str:
    from zoo.kernels.base import gpu_status

    return gpu_status()


def _accelerators() -> str:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ", ".join(names + (["mps"] if torch.backends.mps.is_available() else [])) or "none: runs use the CPU"


def _loaded(entry: registry.Entry) -> str:
    """Load a plugin, and return its distribution and version; an integration is loaded only for an installed package."""
    if entry.group == registry.GROUPS["integrations"] and find_spec(entry.name) is None:
        return f"{entry.name} is not installed"
    registry.load(entry)
    return f"{entry.distribution} {entry.version}"


def _write(path: Path) -> str:
    """Check that a folder is writable, and return its absolute path."""
    with tempfile.TemporaryFile(dir=path):
        return str(path.resolve())
