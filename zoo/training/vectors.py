"""Pretrained word vectors, from a file into a network."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from zoo.data.vectors import read_vectors
from zoo.errors import InputError

Vectors = tuple[Tensor, Tensor]


def vectors_for(data: Any, path: str | None) -> Vectors | None:
    """Read the vectors of the words that the data know, and note their width among the info of the data.

    Returns:
        The matrix [V, width] and which rows were found [V]; None without a path.

    Raises:
        InputError: If the file is wrong, or holds none of the words.
    """
    if path is None:
        return None
    matrix, found = read_vectors(path, data.tokenizer.tokens)
    data.info = replace(data.info, vectors=matrix.shape[1])
    return matrix, found


def share_of(vectors: Vectors | None) -> dict[str, int] | None:
    """How many of the words that the data know have a pretrained vector."""
    return None if vectors is None else {"found": int(vectors[1].sum()), "words": len(vectors[1])}


def load_into(net: nn.Module, vectors: Vectors | None) -> None:
    """Give the vectors to the word embedding of a network.

    Raises:
        InputError: If no module of it takes any.
    """
    if vectors is None:
        return
    takers: list[Any] = [module for module in net.modules() if hasattr(module, "load_vectors")]
    if not takers:
        raise InputError("the word embedding of this network takes no pretrained vectors: leave --vectors out")
    for module in takers:
        module.load_vectors(*vectors)
