"""The manifest of a model folder: size and SHA-256 of every file. Nothing here imports torch."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from zoo.checkpoint.atomic import to_json
from zoo.errors import InputError, one_line, shorten

MOST = 1e300
"""Figures are smaller: whole numbers may have more digits than a float."""
HEADER_BYTES = 2**22
"""Largest header of a weights file, and largest JSON file, that is read: 20,000 tensors have less."""
NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
"""Names of files that every file system can hold."""
SEVERAL = ("*", "seed-*/round-*", "*/seed-*/round-*")
"""Where the runs of a folder are: of runs/, and of an experiment with lottery tickets."""
SHA256 = re.compile(r"[0-9a-f]{64}")


def find(path: str | Path) -> Path:
    """Return the model folder of a run folder, or the path itself if it is one.

    Raises:
        InputError: If there is none.
    """
    if not str(path):
        raise InputError("the path of the model is empty: give a run (runs/...) or a model folder")
    path = Path(path).expanduser()
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file():
            return folder
    if not path.exists():
        raise InputError(f"there is no folder '{path}': give a run (runs/...) or a model folder")
    if path.is_file():
        raise InputError(f"'{path}' is a file: give the run's folder (runs/...) or its model folder")
    runs = sorted(str(file.parent.parent) for some in SEVERAL for file in path.glob(f"{some}/model/config.json"))
    if runs:
        raise InputError(f"'{path}' is a folder of runs: give one of them, such as {runs[0]}")
    raise InputError(f"'{path}' holds no finished model (no model/config.json): was the run stopped before its end?")


def file_record(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the digest of its other entries as its last one."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return rest | {"sha256": hashlib.sha256(to_json(rest).encode()).hexdigest()}


def verify(folder: Path, digest: str | None = None) -> dict[str, dict[str, Any]]:
    """Check every file of a model folder against its manifest; return size and SHA-256 of each by name.

    Args:
        folder: The folder.
        digest: The SHA-256 that its manifest.json must have, if that is known; then no file may be a symbolic link either.

    Raises:
        InputError: If a listed file is missing or changed, or the manifest is.
    """
    files: dict[str, dict[str, Any]] = read_manifest(folder)["files"]
    path = folder / "manifest.json"
    if digest is not None and file_record(path)["sha256"] != digest:
        raise InputError(f"{path} is not that of the release (its checksum differs)")
    for name, expected in files.items():
        path = folder / name
        if not path.is_file() or (digest is not None and path.is_symlink()):
            raise InputError(f"{path} is missing: the folder is damaged, copy it again")
        if file_record(path) != expected:
            raise InputError(f"{path} is not the file that was saved (its checksum differs): copy the folder again")
    return files


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a model folder; it must be as it was written, and list nothing that could not be a file beside it.

    Raises:
        InputError: If it is missing or changed, or names a file outside the folder, one file twice, or no size and SHA-256.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise InputError(f"{path} is missing: the folder is damaged, copy it again")
    manifest = read_json(path)
    files = manifest.get("files")
    if not isinstance(files, dict) or not {"config.json", "model.safetensors"} <= files.keys():
        raise InputError(f"{path} lists no config.json and model.safetensors: the folder is damaged")
    if path.read_bytes() != to_json(sealed(manifest)).encode():
        raise InputError(f"{path} is not the file that was saved (its checksum differs): copy the folder again")
    seen = {"manifest.json"}
    for name, record in files.items():
        if not NAME.fullmatch(name) or name.lower() in seen:
            raise InputError(
                f"{path} lists {shorten(name)}, which is no plain file name, or another file's: do not use the folder"
            )
        seen.add(name.lower())
        size, digest = (record.get("size"), record.get("sha256")) if isinstance(record, dict) else (None, None)
        if type(size) is not int or size < 0 or not isinstance(digest, str) or not SHA256.fullmatch(digest):
            raise InputError(f"{path} has no size and SHA-256 of {name}: the folder is damaged")
    if not has_figures(manifest):
        raise InputError(f"{path} has metrics or counts that are no numbers by printable names: do not use the folder")
    return manifest


def has_figures(facts: Mapping[str, Any]) -> bool:
    """Tell whether a stranger's metrics, their spread and the counts are numbers, or None, by names that can be printed."""
    spread = facts.get("spread") or {}
    found = [facts.get(key) or {} for key in ("metrics", "parameters")]
    found += [spread.get(key) or {} for key in ("mean", "std")] if isinstance(spread, dict) else [None]
    if not all(isinstance(values, dict) and all(map(str.isprintable, values)) for values in found):
        return False
    numbers = [value for values in found for value in values.values()]
    return all(type(one) in (int, float, NoneType) and abs(one or 0) < MOST for one in numbers)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; names that stand twice and numbers that are not finite are refused.

    Raises:
        InputError: If the file is missing, larger than `HEADER_BYTES`, or holds something else.
    """
    try:
        if (size := path.stat().st_size) > HEADER_BYTES:
            raise InputError(f"{path} has {size:,} bytes: at most {HEADER_BYTES:,} are read")
        return parse_json(path.read_bytes(), path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {one_line(error)}") from error


def parse_json(data: bytes, place: object) -> dict[str, Any]:
    """Return the JSON object that a file or an answer holds, see `read_json`; errors name the place."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InputError(f"cannot read {place}: {one_line(error)}") from error
    if not isinstance(value, dict):
        raise InputError(f"{place} does not hold a JSON object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(value := dict(pairs)) < len(pairs):
        raise ValueError(f"a name stands twice among {shorten(', '.join(key for key, _ in pairs))}")
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value
