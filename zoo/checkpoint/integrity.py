"""What comes from a disk or a network is checked before it is used."""

import hashlib
import json
from pathlib import Path
from typing import Any

from zoo.errors import InputError


def describe(path: Path) -> dict[str, Any]:
    """The size in bytes and the SHA-256 of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def verify(folder: Path) -> None:
    """Check every file of a model folder against its manifest.

    Raises:
        InputError: If a listed file is missing or changed.
    """
    if not (folder / "manifest.json").is_file():
        raise InputError(f"{folder / 'manifest.json'} is missing: the folder is damaged, copy it again")
    files = read_json(folder / "manifest.json").get("files")
    if not isinstance(files, dict) or not {"config.json", "model.safetensors"} <= files.keys():
        raise InputError(f"{folder / 'manifest.json'} lists no config.json and model.safetensors: the folder is damaged")
    for name, expected in files.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            raise InputError(f"{path} is missing: the folder is damaged, copy it again")
        if describe(path) != expected:
            raise InputError(f"{path} is not the file that was saved (its checksum differs): copy the folder again")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises:
        InputError: If the file is missing or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} does not hold a JSON object")
    return value
