"""Sparse weights files: the surviving values of a pruned tensor and one bit per number, in safetensors."""

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
"""Suffix of the name of a mask, uint8 [ceil(numbers / 8)], the first number in the lowest bit."""

Header = dict[str, tuple[list[int], torch.dtype]]
Sparse = Mapping[str, Any]
"""The shapes of packed tensors by name, as in config.json."""
_POPCOUNT = np.array([value.bit_count() for value in range(256)], np.uint8)


def pack_file(path: Path) -> dict[str, list[int]]:
    """Pack the tensors of a safetensors file that become smaller, in place; return their shapes by name.

    A number survives if one of its bits is set, so unpacking restores the same bits.
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
    """Return the header that a sparse weights file would have without packing, and its masks; nothing is unpacked yet."""
    dense, masks = dict(header), {}
    with safe_open(str(path), "pt") as file:
        for name, shape in sparse.items():
            numbers = math.prod(shape) if isinstance(shape, list) and all(type(x) is int and x > 0 for x in shape) else 0
            values, dtype = header.get(name, ([], torch.uint8))
            fits = numbers > 0 and len(values) == 1 and dense.pop(name + MASK, None) == ([-(-numbers // 8)], torch.uint8)
            _check(fits, path, name, f"is not packed as config.json says, {shape!s:.60}")
            mask = masks[name] = file.get_tensor(name + MASK).numpy()
            count = int(_POPCOUNT[mask].sum(dtype=np.int64))
            fits = count == values[0] and not int(mask[-1]) >> ((numbers - 1) % 8 + 1)
            _check(fits, path, name, f"has {values[0]} values, and a mask of {count} bits for {numbers} numbers")
            dense[name] = shape, dtype
    return dense, masks


def load_packed(net: nn.Module, path: Path, sparse: Sparse, masks: Mapping[str, Any]) -> None:
    """Load a sparse weights file into a network, as `safetensors.torch.load_model` loads a dense one."""
    tensors = {
        name: tensor for name, tensor in load_file(path).items() if name.removesuffix(MASK) not in masks or name in masks
    }
    for name, mask in masks.items():
        numbers = math.prod(sparse[name])
        alive = torch.from_numpy(np.unpackbits(mask, count=numbers, bitorder="little")).bool()
        dense: Tensor = torch.zeros(numbers, dtype=tensors[name].dtype)
        dense[alive] = tensors[name]
        tensors[name] = dense.view(sparse[name])
    missing, _ = net.load_state_dict(tensors, strict=False)
    state = net.state_dict()
    loaded = {state[name].data_ptr() for name in tensors}
    for name in missing:  # of tensors that share memory, only one is in the file
        _check(state[name].data_ptr() in loaded, path, name, "is missing")


def _check(fits: bool, path: Path, name: str, text: str) -> None:
    check_rules((fits, f"the weights in {path.parent} do not fit: {shorten(name)} {text}"), code="corrupt")
