"""Sparse weights files: nonzero values and bit masks of pruned tensors, in safetensors."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, save_file
from torch import Tensor, nn

from zoo.errors import check_rules, shorten
from zoo.pruning.masks import INTEGERS

MASK = ".mask"
"""Suffix of the name of a bit mask, uint8 [ceil(numel / 8)], in little-endian bit order."""

Header = dict[str, tuple[list[int], str]]
Sparse = Mapping[str, Any]
"""The shapes of packed tensors by name, as in config.json."""


def pack_file(path: Path) -> dict[str, list[int]]:
    """Pack those tensors of a safetensors file that become smaller, in place; return their shapes by name.

    Numbers are stored if one of their bits is set, so unpacking is bit-for-bit exact.
    """
    with safe_open(str(path), "pt") as file:
        metadata = file.metadata()
    tensors, sparse = load(path.read_bytes()), {}
    for name, tensor in list(tensors.items()):
        alive = tensor.flatten().view(INTEGERS[tensor.element_size()]) != 0
        bits = np.packbits(alive.numpy(), bitorder="little")
        if tensor.ndim and int(alive.sum()) * tensor.element_size() + len(bits) < tensor.nbytes:
            sparse[name] = list(tensor.shape)
            tensors[name], tensors[name + MASK] = tensor.flatten()[alive], torch.from_numpy(bits)
    save_file(tensors, str(path), metadata)
    return sparse


def unpack_header(path: Path, header: Header, sparse: Sparse) -> tuple[Header, dict[str, Any]]:
    """Return the header of a sparse weights file after unpacking, and its masks, without unpacking values."""
    dense, masks = dict(header), {}
    with safe_open(str(path), "pt") as file:
        for name, shape in sparse.items():
            try:
                size, (values, dtype) = math.prod(shape), header[name]
                is_packed = min(shape) > 0 and dense.pop(name + MASK) == ([-(-size // 8)], "U8")
                mask = file.get_tensor(name + MASK).numpy() if is_packed else np.zeros(0, np.uint8)
                bits = np.unpackbits(mask, bitorder="little")
                is_packed = is_packed and [int(bits.sum())] == values and not bits[size:].any()
            except (KeyError, TypeError, ValueError):
                is_packed = False
            _check(is_packed, path, name, f"and its mask are not those of the shape in config.json, {shape!s:.60}")
            dense[name], masks[name] = (shape, dtype), mask
    return dense, masks


def load_packed(net: nn.Module, path: Path, sparse: Sparse, masks: Mapping[str, Any]) -> None:
    """Load a sparse weights file into a network, like `safetensors.torch.load_model` for dense files."""
    tensors = load_file(path)
    for name, mask in masks.items():
        del tensors[name + MASK]
        size = math.prod(sparse[name])
        alive = torch.from_numpy(np.unpackbits(mask, count=size, bitorder="little")).bool()
        dense: Tensor = torch.zeros(size, dtype=tensors[name].dtype)
        dense[alive] = tensors[name]
        tensors[name] = dense.view(sparse[name])
    missing, _ = net.load_state_dict(tensors, strict=False)
    state = net.state_dict()
    loaded = {state[name].data_ptr() for name in tensors}
    for name in missing:  # the file has only one of several tensors that share memory
        _check(state[name].data_ptr() in loaded, path, name, "is missing")


def _check(is_valid: bool, path: Path, name: str, text: str) -> None:
    check_rules((is_valid, f"the weights in {path.parent} do not fit: {shorten(name)} {text}"), code="corrupt")
