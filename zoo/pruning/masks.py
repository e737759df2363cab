"""Prunable parameters of a module, scores and masks as pure functions, and files of masked weights."""

import hashlib
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, save_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from zoo.conversion.attention_layout import vectors_written
from zoo.conversion.torch_layers import is_conv1d_of_transformers
from zoo.errors import InputError, check_choice, shorten
from zoo.nn.weight import Weight

SCORES = ("magnitude", "random", "movement", "snip")
SCOPES = ("tensor", "component", "global")
UNITS = ("number", "element")
MATRICES = ("all", "qkv")
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by their size in bytes."""
_MASK = ".mask"
"""Suffix of the name of a bit mask in a file, uint8 [ceil(numel / 8)], in little-endian bit order."""

Tensors = Mapping[str, Tensor]
Masks = dict[str, Tensor]
"""For each prunable parameter a bool tensor of its shape: True where a weight survives."""
Header = dict[str, tuple[list[int], str]]
"""The shape and dtype of each tensor of a safetensors file."""


class Prunable(NamedTuple):
    """A parameter that can be pruned.

    Attributes:
        parameter: [out, in, *kernel], or the components of a `zoo.nn.weight.Weight` [m, out, in, *kernel].
        components: Whether its first axis is the components of algebra elements.
        parts: Matrices stacked on the output axis, which are ranked separately: 3 for a fused qkv.
        out_axis: The axis of the output channels.
        in_axis: The axis of the input channels.
    """

    parameter: nn.Parameter
    components: bool = False
    parts: int = 1
    out_axis: int = 0
    in_axis: int = -1


@dataclass(frozen=True)
class Pruning:
    """The options of a pruning step.

    Args:
        rate: Fraction of the surviving units to prune in a round, in [0, 1). Of r survivors, exactly rate * r are pruned,
            rounded half to even; ties by position.
        score: The units with the lowest scores are pruned: ``magnitude`` |w| of the trained weights; ``random``; ``movement``
            -sum w dL/dw over the steps of a round (Sanh et al. 2020, Eq. 7); ``snip`` |w dL/dw| in the first step of a round
            (Lee et al. 2019, Eq. 5).
        scope: Which units are ranked together: those of each ``tensor`` (q, k and v of a fused qkv separately), of each
            ``component`` matrix (Mukhopadhyay et al. 2025, Algorithm 1), or ``global`` for all.
        unit: ``number``, or ``element`` for algebra elements with all their components. The magnitude of an element is the
            root mean square and other scores are means, so that ``global`` treats elements and real numbers alike.
        pattern: (N, M) for at most N survivors of every M consecutive units along the input axis; the rate is ignored.
    """

    rate: float = 0.2
    score: str = "magnitude"
    scope: str = "tensor"
    unit: str = "number"
    pattern: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if not isinstance(self.rate, int | float) or not 0 <= self.rate < 1:  # a schedule may return 0
            raise InputError(f"rate={self.rate!r}: the fraction to prune must be in [0, 1), such as 0.4")
        for name, choices in (("score", SCORES), ("scope", SCOPES), ("unit", UNITS)):
            check_choice(name, getattr(self, name), choices)
        n, m = self.pattern or (1, 2)
        if not 0 < n < m:
            raise InputError(f"pattern={self.pattern}: use (N, M) with 0 < N < M, such as (2, 4)")
        if self.unit != "number" and self.scope == "component":
            raise InputError("unit=element prunes all components: use another scope", code="conflict")
        if self.pattern is not None and self.scope != "tensor":
            raise InputError(f"scope={self.scope}: a pattern requires scope=tensor", code="conflict")


# --- prunable parameters ---


def prunable(
    model: nn.Module, matrices: str = "all", *, include: Iterable[str] = (), exclude: Iterable[str] = ()
) -> dict[str, Prunable]:
    """Return the prunable parameters of a module by name.

    These are the trained matrices of linear, convolutional, recurrent and attention layers of torch, of Hugging Face's GPT-2,
    and over any algebra. Norms, biases, embedding tables (and layers tied to one), class tokens, positions and learned products
    are prunable only with ``include``.

    Args:
        model: A module.
        matrices: ``all``, or ``qkv`` for queries, keys and values only, as in Algorithm 1 of Mukhopadhyay et al. (2025).
        include: Shell patterns of names of parameters to add.
        exclude: Shell patterns of names of parameters to leave out.

    Raises:
        InputError: If no parameter remains, a pattern matches no parameter, or ``matrices`` is unknown.

    Example:
        >>> list(prunable(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))))
        ['0.weight']
    """
    check_choice("matrices", matrices, MATRICES)
    candidates, tables = _matrices_and_tables(model)
    names = {name: p for name, p in model.named_parameters() if not is_lazy(p)}
    trained = {name: p for name, p in names.items() if id(p) in candidates and id(p) not in tables and p.requires_grad}
    parameters = {name: candidates[id(p)] for name, p in trained.items()}
    if matrices == "qkv":
        parameters = {name: matrix for name, matrix in parameters.items() if matrix.parts}
    parameters = {name: matrix._replace(parts=max(matrix.parts, 1)) for name, matrix in parameters.items()}
    for pattern in include:
        for name in _matching(pattern, names):
            parameters.setdefault(name, candidates.get(id(names[name]), Prunable(names[name]))._replace(parts=1))
    for pattern in exclude:
        for name in _matching(pattern, names):
            parameters.pop(name, None)
    kind = "queries, keys or values" if matrices == "qkv" else "matrices"
    if not parameters:
        raise InputError(f"nothing to prune: {type(model).__name__} has no trained {kind}")
    return {name: parameters[name] for name in names if name in parameters}


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    matching = [name for name in names if fnmatchcase(name, pattern)]
    if not matching:
        raise InputError(f"'{pattern}' matches no parameter of this module", code="unknown")
    return matching


def _matrices_and_tables(model: nn.Module) -> tuple[dict[int, Prunable], set[int]]:
    """Return matrices by the ids of their parameters, with ``parts`` 0 unless they are q, k or v, and the ids of tables."""
    modules = dict(model.named_modules())
    matrices: dict[int, Prunable] = {}
    tables: set[int] = set()
    for name, module in modules.items():
        parent, _, child = name.removesuffix(".weight_module").rpartition(".")
        parts = vectors_written(modules[parent], child) if child else 0
        for key, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) or (isinstance(module, Weight) and module.transposed):
                tables.add(id(parameter))
            if (matrix := _matrix(module, key, parameter, parts)) is not None:
                matrices[id(parameter)] = matrix
    return matrices, tables


def _matrix(module: nn.Module, key: str, parameter: nn.Parameter, parts: int) -> Prunable | None:
    """Return a parameter of a module as `Prunable` if it is a matrix."""
    if isinstance(module, Weight):
        axis = int(module.inp.n > 1)
        return Prunable(parameter, bool(axis), parts, axis, axis + 1)
    if isinstance(module, nn.MultiheadAttention):
        parts = 3 if key == "in_proj_weight" else 1
        return Prunable(parameter, False, parts, 0, 1) if key.endswith("proj_weight") else None
    if isinstance(module, nn.RNNBase):
        return Prunable(parameter, False, 0, 0, 1) if key.startswith("weight") else None
    if key == "weight" and (isinstance(module, nn.modules.conv._ConvTransposeNd) or is_conv1d_of_transformers(module)):
        return Prunable(parameter, False, parts, 1, 0)
    is_matrix = key == "weight" and isinstance(module, nn.Linear | nn.Bilinear | nn.modules.conv._ConvNd)
    return Prunable(parameter, False, parts, 0, 1) if is_matrix else None


# --- scores ---


def random_values(parameters: Mapping[str, Prunable], seed: int, step: int) -> dict[str, Tensor]:
    """Return random numbers in [0, 1) for all weights, which depend on seed and step but not on the device."""
    generator = torch.Generator().manual_seed(random.Random(f"masks {seed} {step}").randrange(2**63))
    return {
        name: torch.rand(matrix.parameter.shape, generator=generator, dtype=torch.float64).to(matrix.parameter.device)
        for name, matrix in parameters.items()
    }


def check_finite(values: Tensor, name: str) -> None:
    """Raise `InputError` if weights or scores contain NaN or infinity."""
    if not values.isfinite().all():
        raise InputError(f"{name} contains NaN or infinity: training diverged, weights cannot be ranked")


def _scores(name: str, values: Tensor, matrix: Prunable, pruning: Pruning) -> Tensor:
    """Return the scores of the units, [1, out, in, *kernel] for elements; see `next_masks` for ``values``."""
    check_finite(values, name)
    if pruning.unit == "element" and matrix.components:
        values = values.double()  # for the same ranking on all devices
        values = values.square().mean(0, keepdim=True).sqrt() if pruning.score == "magnitude" else values.mean(0, keepdim=True)
    return values.abs() if pruning.score in ("magnitude", "snip") else values


# --- masks ---


def full_masks(parameters: Mapping[str, Prunable]) -> Masks:
    """Return masks that prune nothing."""
    return {name: torch.ones_like(matrix.parameter, dtype=torch.bool) for name, matrix in parameters.items()}


def next_masks(parameters: Mapping[str, Prunable], values: Tensors, masks: Tensors, pruning: Pruning) -> Masks:
    """Return the masks after pruning once more.

    Scores are computed from ``values``: the weights (``magnitude``), `random_values`, or sums of -w dL/dw (``movement``) or
    w dL/dw (``snip``).

    Raises:
        InputError: If a value is not finite, or a pattern does not divide an input axis.

    Example:
        >>> net = nn.Linear(5, 1, bias=False)
        >>> values = {"weight": torch.tensor([[3.0, -1.0, 2.0, -5.0, 1.0]])}
        >>> next_masks(prunable(net), values, full_masks(prunable(net)), Pruning(rate=0.4))["weight"]
        tensor([[ True, False,  True,  True, False]])
    """
    new = {name: masks[name].clone() for name in parameters}
    groups: list[list[tuple[Tensor, Tensor]]] = []
    for name, matrix in parameters.items():
        scores, alive = _scores(name, values[name].detach(), matrix, pruning), new[name]
        if scores.shape != alive.shape:  # scores of whole elements
            alive = new[name] = alive.any(0, keepdim=True)
        if pruning.pattern is not None:
            _prune_pattern(name, scores, alive, matrix, *pruning.pattern)
            continue
        parts = 1 if pruning.scope == "global" else matrix.parts
        pairs = zip(scores.chunk(parts, matrix.out_axis), alive.chunk(parts, matrix.out_axis), strict=True)
        for pair in pairs:
            by_component = pruning.scope == "component" and matrix.components
            groups += [[(s, a)] for s, a in zip(*pair, strict=True)] if by_component else [[pair]]
    if pruning.scope == "global":
        groups = [[pair for group in groups for pair in group]]
    for group in groups:
        _prune_lowest(group, pruning.rate)
    return {name: new[name] & masks[name] for name in parameters}


def _prune_lowest(group: list[tuple[Tensor, Tensor]], rate: float) -> None:
    """Prune a fraction of the survivors of a group of scores and masks, those with the lowest scores, in place."""
    flat = [alive.flatten().clone() for _, alive in group]
    device = flat[0].device
    values = torch.cat([scores.flatten()[alive].to(device) for (scores, _), alive in zip(group, flat, strict=True)])
    count = round(Fraction(str(rate)) * len(values))  # of the decimal number: 0.57 of 50 is 28.5
    survives = torch.ones_like(values, dtype=torch.bool)
    survives[values.argsort(stable=True)[:count]] = False
    parts = survives.split([int(alive.sum()) for alive in flat])
    for (_, target), alive, part in zip(group, flat, parts, strict=True):
        alive[alive.clone()] = part.to(alive.device)
        target.copy_(alive.view(target.shape))


def _prune_pattern(name: str, scores: Tensor, alive: Tensor, matrix: Prunable, n: int, m: int) -> None:
    """Prune all but the n highest scores of every m along the input axis, in place."""
    size = scores.shape[matrix.in_axis]
    if size % m != 0:
        raise InputError(f"{name} has {size} input channels, not a multiple of {m}: exclude it, or use a rate")
    rows, survives = (t.movedim(matrix.in_axis, -1).unflatten(-1, (-1, m)) for t in (scores, alive))
    order = rows.masked_fill(~survives, -torch.inf).argsort(dim=-1, stable=True)
    survives.masked_fill_(torch.zeros_like(survives).scatter_(-1, order[..., : m - n], True), False)


def bit_mask(mask: Tensor, tensor: Tensor) -> Tensor:
    """Convert a mask to integers of the width of a tensor, on its device, with all bits set where a weight survives."""
    return mask.to(tensor.device, _INTEGERS[tensor.element_size()]).neg_()


def clear_bits(tensor: Tensor, bits: Tensor) -> None:
    """Set pruned weights to zero in place.

    Multiplication would turn infinity into NaN; `torch.Tensor.masked_fill_` takes ten times as long on a CPU.
    """
    tensor.detach().view(bits.dtype).bitwise_and_(bits)


def remaining(masks: Tensors) -> int:
    """Count the surviving weights."""
    return sum(int(mask.sum()) for mask in masks.values())


def tensor_digest(tensors: Tensors) -> str:
    """Return the SHA-256 of names, shapes, dtypes and values of tensors, independent of the device."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name} {list(tensor.shape)} {tensor.dtype};".encode())
        sha.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


# --- files: nonzero values and bit masks of pruned tensors, in safetensors ---


def pack_file(path: Path) -> dict[str, list[int]]:
    """Pack those tensors of a safetensors file that become smaller, in place; return their shapes by name.

    Numbers are stored if one of their bits is set, so unpacking is bit-for-bit exact.
    """
    with safe_open(str(path), "pt") as file:
        metadata = file.metadata()
    tensors, sparse = load(path.read_bytes()), {}
    for name, tensor in list(tensors.items()):
        alive = tensor.flatten().view(_INTEGERS[tensor.element_size()]) != 0
        bits = np.packbits(alive.numpy(), bitorder="little")
        if tensor.ndim and int(alive.sum()) * tensor.element_size() + len(bits) < tensor.nbytes:
            sparse[name] = list(tensor.shape)
            tensors[name], tensors[name + _MASK] = tensor.flatten()[alive], torch.from_numpy(bits)
    save_file(tensors, str(path), metadata)
    return sparse


def unpack_header(path: Path, header: Header, sparse: Mapping[str, Any]) -> tuple[Header, Masks]:
    """Return the header of a sparse weights file after unpacking, and its flat masks, without unpacking values."""
    dense, masks = dict(header), Masks()
    with safe_open(str(path), "pt") as file:
        for name, shape in sparse.items():
            try:
                size, (values, dtype) = math.prod(shape), header[name]
                is_packed = min(shape) > 0 and dense.pop(name + _MASK) == ([-(-size // 8)], "U8")
                mask = file.get_tensor(name + _MASK).numpy() if is_packed else np.zeros(0, np.uint8)
                bits = np.unpackbits(mask, bitorder="little")
                is_packed = is_packed and [int(bits.sum())] == values and not bits[size:].any()
            except (KeyError, TypeError, ValueError):
                is_packed = False
            _check(is_packed, path, name, f"and its mask are not those of the shape in config.json, {shape!s:.60}")
            dense[name], masks[name] = (shape, dtype), torch.from_numpy(bits[:size]).bool()
    return dense, masks


def load_packed(net: nn.Module, path: Path, sparse: Mapping[str, Any], masks: Tensors) -> None:
    """Load a sparse weights file into a network, like `safetensors.torch.load_model` for dense files."""
    tensors = load_file(path)
    for name, mask in masks.items():
        del tensors[name + _MASK]
        dense = torch.zeros(mask.shape, dtype=tensors[name].dtype)
        dense[mask] = tensors[name]
        tensors[name] = dense.view(sparse[name])
    missing, _ = net.load_state_dict(tensors, strict=False)
    state = net.state_dict()
    loaded = {state[name].data_ptr() for name in tensors}
    for name in missing:  # the file has only one of several tensors that share memory
        _check(state[name].data_ptr() in loaded, path, name, "is missing")


def _check(is_valid: bool, path: Path, name: str, text: str) -> None:
    if not is_valid:
        raise InputError(f"the weights in {path.parent} do not fit: {shorten(name)} {text}", code="corrupt")
