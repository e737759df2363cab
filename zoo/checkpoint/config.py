"""The configuration of a model folder: the values that rebuild its network. This module does not import torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.checkpoint.manifest import MOST, NAME, find, is_plain, read_json, verify
from zoo.errors import InputError

FORMAT = 2
KINDS: dict[str, Any] = dict.fromkeys(("backbone", "algebra", "embedding", "task", "data"), str | None)
KINDS |= {"scope": str, "init": str, "versions": dict}
KINDS |= dict.fromkeys(("info", "model_kwargs", "conversion", "decoding", "sparse"), dict | None)
"""The types of the values of config.json; those that may be None may be missing."""
MAX_PACKAGES = 100
"""Maximum number of versions in a configuration; each one that is not installed is looked up."""


def read_config(path: str | Path) -> dict[str, Any]:
    """Verify a run or model folder and return the configuration of the model."""
    folder = find(path)
    verify(folder)
    file = folder / "config.json"
    config = dict.fromkeys((*KINDS, "format")) | read_json(file)
    if config["format"] != FORMAT:
        raise InputError(f"{folder} has format {config['format']}, expected {FORMAT}: update hypercomplex-zoo")
    if wrong := _invalid_values(config):
        raise InputError(f"{file} has missing or invalid values: {', '.join(wrong)}")
    if not is_plain(config):
        raise InputError(f"{file} has text with control characters, or numbers beyond {MOST:g}: do not use the folder")
    return config


def _invalid_values(config: Mapping[str, Any]) -> list[str]:
    """Return the keys of a configuration whose values are missing or invalid."""
    if wrong := [key for key, kind in KINDS.items() if not isinstance(config[key], kind)]:
        return wrong
    versions, converted = config["versions"], (config["conversion"] or {}).get("converted", [])
    are_versions = len(versions) <= MAX_PACKAGES and all(isinstance(version, str) for version in versions.values())
    are_names = isinstance(converted, list) and all(isinstance(name, str) for name in converted)
    valid = {"versions": are_versions and all(map(NAME.fullmatch, versions)), "conversion": are_names}
    return [key for key, is_valid in valid.items() if not is_valid]
