"""config.yaml of a run folder: the options of its training. This module does not import torch."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from zoo.checkpoint.manifest import read_small
from zoo.errors import InputError

FREE = {"num_workers", "ddp_timeout", "checkpoint_every", "trainer.enable_progress_bar", "jobs", "on", "cpus", "gpus"}
FREE |= {"max_parameters"}
"""Flags of options that do not affect results."""


def read_run_config(run: Path) -> dict[str, Any]:
    """Read config.yaml of a run."""
    path = run / "config.yaml"
    if not path.is_file():
        raise InputError(f"'{run}' is not a run folder: it has no file {path}", code="missing")
    content = read_small(path)
    try:
        values = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        text = f"'{path}' is damaged: restore it from the output of zoo fit --print-config"
        raise InputError(text, code="corrupt")
    return values


def changed_options(folder: Path, config: Mapping[str, object], free: Collection[str] = FREE) -> list[tuple[str, Any, Any]]:
    """List the options that differ from config.yaml of a folder, except free ones, as (name, old value, new value)."""
    old, new = flat(read_run_config(folder)), flat(config)
    names = sorted((old.keys() | new.keys()) - set(free))
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def flat(values: Mapping[str, object]) -> dict[str, Any]:
    """Return nested options by the names of their flags."""
    flags: dict[str, Any] = {}
    for name, value in values.items():
        flags |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, Mapping) else {name: value}
    return flags
