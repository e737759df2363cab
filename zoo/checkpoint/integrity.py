"""Check the header of a weights file, and the multiplication table of the algebra."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from zoo.algebras import Algebra, algebra
from zoo.checkpoint.manifest import HEADER_BYTES
from zoo.errors import InputError, one_line, shorten
from zoo.registry import resolve

Header = dict[str, tuple[list[int], str]]
"""Shape and dtype, as safetensors calls it, of each tensor by name."""


def check_header(path: Path, net: nn.Module, name: str, header: Header) -> None:
    """Compare names and shapes in a header with those of a network, which may be on the meta device."""
    expected = {key: list(tensor.shape) for key, tensor in net.state_dict(keep_vars=True).items()}
    for key, (shape, _) in header.items():
        if shape != expected.get(key):
            text = f"{shorten(key)} has shape {shape}, expected {expected.get(key, 'no such tensor')}"
            raise InputError(f"the weights in {path.parent} do not fit {name}: {text}")


def read_header(path: Path) -> Header:
    """Read shapes and dtypes from the header of a weights file."""
    message = f"cannot read {path}"
    try:
        with path.open("rb") as file:
            if (length := int.from_bytes(file.read(8), "little")) > HEADER_BYTES:
                raise InputError(f"{message}: its header has {length:,} bytes, the limit is {HEADER_BYTES:,}")
        with safe_open(str(path), "pt") as tensors:
            slices = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118 (not iterable)
            return {key: (part.get_shape(), part.get_dtype()) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{message}: not a safetensors file ({one_line(error)})") from error


def fingerprint(product: Algebra) -> str:
    """Return the SHA-256 of the shape and values (little-endian float64) of `Algebra.action`.

    A checkpoint stores the spec of a fixed algebra, not its table; the fingerprint detects a spec that builds another table.
    Compute it before the algebra is moved to another dtype, which rounds the table.

    >>> from zoo.algebras import reals
    >>> fingerprint(reals())[:16]
    '871510ab4df18906'
    """
    action = product.action(torch.empty(0, dtype=torch.float64, device="cpu")).detach().double().cpu()
    table = (action + 0.0).numpy().astype("<f8")  # adding zero turns -0.0 into 0.0
    return hashlib.sha256(repr(table.shape).encode() + table.tobytes()).hexdigest()


def fingerprint_of(spec: str) -> str | None:
    """Return the fingerprint of the algebra of a spec; None if its table is learned and stored with the weights."""
    with torch.random.fork_rng(devices=[]):
        product = algebra(spec)
    return fingerprint(product) if product.known else None


def check_algebra(config: Mapping[str, Any], product: Algebra | None = None) -> str | Algebra:
    """Return the spec of the algebra of a model, or else the given algebra, after comparing its fingerprint."""
    spec, expected = config["algebra"], config.get("algebra_sha256")
    if spec is None:
        if product is None:
            raise InputError("the algebra of this model has no spec: use zoo.load(FOLDER, algebra=THE_ALGEBRA)")
        if product.known and fingerprint(product) != expected:  # an unknown table is stored with the weights
            raise InputError("this is not the algebra that the model was trained over: its table differs")
        return product
    if expected != fingerprint_of(spec):
        entry, _ = resolve("zoo.algebras", spec)
        recorded = config["versions"].get(entry.distribution, "another version")
        text = f"'{spec}' of {entry.distribution} {entry.version} is not the algebra this model was trained over"
        raise InputError(f"{text} (its table differs): install {recorded}, with which it was saved")
    return str(spec)
