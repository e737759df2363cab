"""Checks of a model folder beyond its manifest: the header of the weights, and the product of the algebra."""

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

DTYPES = {
    **{f"F{8 * d.itemsize}": d for d in (torch.float64, torch.float32, torch.float16)},
    **{f"I{8 * d.itemsize}": d for d in (torch.int64, torch.int32, torch.int16, torch.int8)},
    **{"BF16": torch.bfloat16, "U8": torch.uint8, "BOOL": torch.bool, "C64": torch.complex64},
}
"""Kinds of numbers in a weights file, by the names of its format."""
Header = dict[str, tuple[list[int], torch.dtype]]
"""Shape and dtype of each tensor by its name."""


def check_header(path: Path, net: nn.Module, name: str, header: Header) -> None:
    """Compare the header of a weights file with a network, which may be on the meta device: names, shapes, kinds of numbers."""
    message = f"the weights in {path.parent} do not fit {name}"
    expected = {key: (list(tensor.shape), tensor.dtype) for key, tensor in net.state_dict(keep_vars=True).items()}
    for key, (shape, dtype) in header.items():
        if key not in expected:
            raise InputError(f"{message}: {shorten(key)} of shape {shape} is not in the network")
        if shape != expected[key][0]:
            raise InputError(f"{message}: {shorten(key)} of shape {shape} has shape {expected[key][0]} in the network")
        if dtype != expected[key][1] and not (dtype.is_floating_point and expected[key][1].is_floating_point):
            raise InputError(f"{message}: {shorten(key)} holds {dtype}, the network {expected[key][1]}")


def read_header(path: Path) -> Header:
    """Return shape and dtype of each tensor in a weights file by its name."""
    message = f"the weights in {path.parent} do not fit: {path.name}"
    try:
        with path.open("rb") as file:
            if (length := int.from_bytes(file.read(8), "little")) > HEADER_BYTES:
                raise InputError(f"{message} has a header of {length:,} bytes, at most {HEADER_BYTES:,} are read")
        with safe_open(str(path), "pt") as tensors:
            slices = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118 (it is no mapping)
            return {key: (part.get_shape(), DTYPES[part.get_dtype()]) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{message} is no safetensors file: {one_line(error)}") from error
    except KeyError as error:
        raise InputError(f"{message} holds numbers of the kind {error}, which no network has") from error


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
    table = (
        (product.action(torch.empty(0, dtype=torch.float64, device="cpu")).detach().double().cpu() + 0.0).numpy().astype("<f8")
    )
    return hashlib.sha256(repr(table.shape).encode() + table.tobytes()).hexdigest()


def fingerprint_of(spec: str) -> str | None:
    """Return the fingerprint of an algebra whose table is not among the weights, or None."""
    with torch.random.fork_rng(devices=[]):
        product = algebra(spec)
    return fingerprint(product) if product.known else None


def check_algebra(config: Mapping[str, Any], product: Algebra | None = None) -> str | Algebra:
    """Return the algebra of a model, its spec or the given one, if its product is the one that the model was trained over."""
    spec, expected = config["algebra"], config.get("algebra_sha256")
    if spec is None:
        if product is None:
            raise InputError("the algebra of this model has no spec: zoo.load(FOLDER, algebra=THE_ALGEBRA)")
        if product.known and fingerprint(product) != expected:  # any other is among the weights
            raise InputError("this is not the algebra that the model was trained over: its table differs")
        return product
    if expected != fingerprint_of(spec):
        entry, _ = resolve("zoo.algebras", spec)
        recorded = config["versions"].get(entry.distribution, "another version")
        text = f"'{spec}' of {entry.distribution} {entry.version} is not the algebra this model was trained over"
        raise InputError(f"{text} (its table differs): it was made with {recorded}")
    return str(spec)
