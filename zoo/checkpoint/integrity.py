"""Checks of what comes from a disk or a network: the files, the header of the weights, and the product of the algebra."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from zoo.algebras import Algebra, algebra
from zoo.errors import InputError
from zoo.registry import resolve


def file_record(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
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
        if file_record(path) != expected:
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


def check_header(path: Path, net: nn.Module, name: str) -> None:
    """Compare names and shapes in the header of a weights file with a network, which may be on the meta device.

    Args:
        path: The file.
        net: The network.
        name: Its name, for the message.

    Raises:
        InputError: If the file is no safetensors file, or a tensor of it is not one of the network's.
    """
    message = f"the weights in {path.parent} do not fit {name}"
    try:
        with safe_open(str(path), "pt") as file:
            shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{message}: {error}") from error
    expected = {key: list(tensor.shape) for key, tensor in net.state_dict(keep_vars=True).items()}
    for key, shape in shapes.items():
        if expected.get(key) != shape:
            theirs = f"has shape {expected[key]} in the network" if key in expected else "is not in the network"
            raise InputError(f"{message}: '{key}' of shape {shape} {theirs}")


# --- the algebra ---


def fingerprint(product: Algebra) -> str:
    """Return the SHA-256 of what weights of an algebra do: shape and numbers of `Algebra.action` (little-endian float64).

    A checkpoint of a fixed product holds its spec, not its table; this tells whether the spec still makes the same product.
    Take it of an algebra as its spec makes it: a copy that was moved to another dtype has other numbers.

    >>> from zoo.algebras import reals
    >>> fingerprint(reals())[:16]
    '871510ab4df18906'
    """
    # Adding zero turns -0.0 into 0.0: they are the same product.
    table = (product.action.detach().double().cpu() + 0.0).numpy().astype("<f8")
    return hashlib.sha256(repr(table.shape).encode() + table.tobytes()).hexdigest()


def spec_fingerprint(spec: str) -> str | None:
    """Return the fingerprint of an algebra whose table is not among the weights, or None."""
    with torch.random.fork_rng(devices=[]):
        product = algebra(spec)
    return fingerprint(product) if product.known else None


def check_algebra(config: Mapping[str, Any], product: Algebra | None = None) -> str | Algebra:
    """Return the algebra of a model, its spec or the given one, if its product is the one that the model was trained over.

    Raises:
        InputError: If it is another product: the installed plugin gives the name to another table, or there is no name and
            another algebra, or none, was given.
    """
    spec, expected = config["algebra"], config.get("algebra_sha256")
    if spec is None:
        if product is None:
            raise InputError("the algebra of this model has no spec: zoo.load(FOLDER, algebra=THE_ALGEBRA)")
        if fingerprint(product) != expected:
            raise InputError("this is not the algebra that the model was trained over: its table differs")
        return product
    if expected != spec_fingerprint(spec):
        entry, _ = resolve("zoo.algebras", spec)
        there = config["versions"].get(entry.distribution, "another version")
        text = f"'{spec}' of {entry.distribution} {entry.version} is not the algebra this model was trained over"
        raise InputError(f"{text} (its table differs): it was made with {there}")
    return str(spec)
