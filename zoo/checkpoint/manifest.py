"""The manifest (size and SHA-256 of every file) and the model card of a model folder. This module does not import torch."""

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from zoo.atomic import to_json
from zoo.errors import InputError, one_line, shorten

MOST = 1e300
"""Largest number: whole numbers in JSON may exceed the range of a float."""
HEADER_BYTES = 2**22
"""Size limit of JSON files and of the headers of weights files; 20,000 tensors need less."""
TEXT_BYTES = 2**26
"""Size limit of the files of a model folder other than its weights, such as the tokenizer."""
WEIGHTS = "model.safetensors"
NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
"""File names that are valid on every file system."""
RUNS = ("*", "runs/*", "runs/*/fold-*", "seed-*/round-*", "*/seed-*/round-*")
"""Patterns of run folders inside runs/, a cross-validation, a sweep (perhaps of folds) and a lottery."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SHA256 = re.compile(r"[0-9a-f]{64}")
_TRAINING = ("validation", "averaged", "parameters", "pruned", "projected", "epochs", "seed")
MEASURED = ("metrics", "undefined", "spread", *_TRAINING, "pipeline_tag", "exports")
"""Keys of a manifest that describe the training and exported files, from which the card can be regenerated."""


def find(path: str | Path) -> Path:
    """Return the model folder of a path, which is a run folder or a model folder."""
    path = Path(path).expanduser()
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file():
            return folder
    check_single(path, "model/config.json")
    if path.is_dir():
        raise InputError(f"'{path}' has no model/config.json: the run is unfinished, or this is not a run", code="missing")
    raise InputError(f"there is no folder '{path}': use a run (runs/...) or a model folder", code="missing")


def check_single(path: Path, file: str) -> None:
    """Raise `InputError` if a folder contains run folders with this file, a pattern such as ``checkpoints/*.ckpt``."""
    if runs := sorted(str(found.parent.parent) for pattern in RUNS for found in path.glob(f"{pattern}/{file}")):
        raise InputError(f"'{path}' contains several runs: use one of them, such as {runs[0]}")


def file_record(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def is_record(value: object, limit: int = sys.maxsize) -> bool:
    """Return whether a JSON value is a `file_record` of a file up to a size limit."""
    if not isinstance(value, dict) or value.keys() != {"size", "sha256"}:
        return False
    size, digest = value["size"], value["sha256"]
    return type(size) is int and 0 <= size <= limit and isinstance(digest, str) and SHA256.fullmatch(digest) is not None


def is_intact(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a path is a regular file of this size and SHA-256; the content is read only if the size agrees."""
    return path.is_file() and path.stat().st_size == record["size"] and file_record(path) == record


def sealed(manifest: Mapping[str, object]) -> dict[str, Any]:
    """Return a manifest with the digest of its other entries appended."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return rest | {"sha256": hashlib.sha256(to_json(rest).encode()).hexdigest()}


def verify(folder: Path, digest: str | None = None) -> dict[str, dict[str, Any]]:
    """Check every file of a model folder against its manifest; return size and SHA-256 of each by name.

    With ``digest``, the SHA-256 of manifest.json is compared too, and symbolic links are refused.
    """
    files: dict[str, dict[str, Any]] = read_manifest(folder)["files"]
    path = folder / "manifest.json"
    if digest is not None and digest_of(path) != digest:
        raise InputError(f"{path}: the checksum differs from that of the release", code="mismatch")
    for name, expected in files.items():
        path = folder / name
        if not path.is_file() or (digest is not None and path.is_symlink()):
            raise InputError(f"{path} is missing: the folder is damaged, copy it again", code="corrupt")
        if not is_intact(path, expected):
            raise InputError(f"{path} has changed (its checksum differs): copy the folder again", code="corrupt")
    return files


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and validate the manifest of a model folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InputError(f"{path} is missing: the folder is damaged, copy it again", code="corrupt")
    manifest = read_json(path)
    files = manifest.get("files")
    if not isinstance(files, dict) or not {"config.json", WEIGHTS} <= files.keys():
        raise InputError(f"{path} must list config.json and model.safetensors: the folder is damaged", code="corrupt")
    if read_small(path) != to_json(sealed(manifest)).encode():
        raise InputError(f"{path} has changed (its checksum differs): copy the folder again", code="corrupt")
    seen = {"manifest.json"}
    for name, record in files.items():
        is_valid = is_record(record, sys.maxsize if name == WEIGHTS else TEXT_BYTES)
        if not is_valid or not NAME.fullmatch(name) or name.lower() in seen:
            raise InputError(f"{path} has a malformed entry for {shorten(name)}: do not use the folder", code="corrupt")
        seen.add(name.lower())
    if not has_figures(manifest):
        raise InputError(f"{path} has malformed metrics, counts or text: do not use the folder", code="corrupt")
    return manifest


def has_figures(facts: Mapping[str, Any]) -> bool:
    """Return whether metrics, their spread and counts are numbers or None, and all values are plain, see `is_plain`."""
    spread, exports = facts.get("spread") or {}, facts.get("exports") or {}
    if not (isinstance(spread, dict) and isinstance(exports, dict) and is_plain(facts)):
        return False
    tables = [facts.get("metrics") or {}, facts.get("parameters") or {}, spread.get("mean") or {}, spread.get("std") or {}]
    tables += exports.values()
    return all(
        isinstance(table, dict) and all(type(number) in (int, float, NoneType) for number in table.values()) for table in tables
    )


def is_plain(value: Any) -> bool:
    """Return whether a JSON value has no control characters, such as terminal sequences, and no number over `MOST`."""
    values = [value]
    for each in values:  # grows
        if isinstance(each, dict):
            values += [*each, *each.values()]
        elif isinstance(each, list):
            values += each
        elif CONTROL.search(each) if isinstance(each, str) else abs(each or 0) > MOST:
            return False
    return True


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file, refusing numbers that are not finite."""
    return parse_json(read_small(path), path)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a manifest."""
    return hashlib.sha256(read_small(path)).hexdigest()


def read_small(path: Path, limit: int = HEADER_BYTES) -> bytes:
    """Read a regular file up to a size limit; `InputError` for larger files, devices and pipes."""
    try:
        if (size := path.stat().st_size) > limit:
            raise InputError(f"{path} has {size:,} bytes: the limit is {limit:,}", code="corrupt")
        if not path.is_file():
            raise InputError(f"{path} is not a regular file", code="corrupt")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {one_line(error)}", code="failed") from error


def parse_json(data: bytes, origin: object) -> dict[str, Any]:
    """Parse a JSON object, see `read_json`; errors name the origin."""
    try:
        value = json.loads(data.decode(), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InputError(f"cannot read {origin}: {one_line(error)}", code="corrupt") from error
    if not isinstance(value, dict):
        raise InputError(f"{origin} is not a JSON object", code="corrupt")
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value


def number(value: float | None) -> str:
    """Format a metric, with an exponent below 0.001.

    Example:
        >>> number(0.98765), number(3.2e-7), number(None), number(float("inf"))
        ('0.9877', '3.20e-07', 'undefined', 'inf')
    """
    if value is None or math.isnan(value):
        return "undefined"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"
