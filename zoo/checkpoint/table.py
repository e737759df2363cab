"""Whether the name of an algebra still means the product that a model was trained over."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from zoo.algebras import Algebra, algebra
from zoo.errors import InputError
from zoo.registry import resolve


def fingerprint(product: Algebra) -> str:
    """Return the SHA-256 of what weights of an algebra do: shape and numbers of `Algebra.action` (little-endian float64).

    A checkpoint of a fixed rule holds its spec, not its table; this tells whether the spec still makes the same product. Take
    it of an algebra as its spec makes it: a copy that was moved to another dtype has other numbers.

    >>> from zoo.algebras import reals
    >>> fingerprint(reals())[:16]
    '871510ab4df18906'
    """
    # Adding zero turns -0.0 into 0.0: they are the same product.
    table = (product.action.detach().double().cpu() + 0.0).numpy().astype("<f8")
    return hashlib.sha256(repr(table.shape).encode() + table.tobytes()).hexdigest()


def table_of(spec: str) -> str | None:
    """The fingerprint of an algebra whose table is not among the weights, or None."""
    with torch.random.fork_rng(devices=[]):
        product = algebra(spec)
    return fingerprint(product) if product.known else None


def check_table(config: Mapping[str, Any]) -> None:
    """Refuse to compute with another product than the one a model was trained over.

    Raises:
        InputError: If the installed plugin gives the name of the algebra to another table.
    """
    if config.get("algebra_sha256") != table_of(config["algebra"]):
        entry, _ = resolve("zoo.algebras", config["algebra"])
        there = config.get("versions", {}).get(entry.distribution, "another version")
        text = f"'{config['algebra']}' of {entry.distribution} {entry.version} is not the algebra this model was trained over"
        raise InputError(f"{text} (its table differs): it was made with {there}")
