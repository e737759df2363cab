"""Read the surviving weights of each layer from the models of a lottery run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from zoo.checkpoint import find, load_network, read_config
from zoo.errors import InputError, check_rules
from zoo.pruning import prunable
from zoo_reports.rows import Curve

ALL = "all layers"
BINS = 60
REACH = 99.9
"""Percent of the weights of each round within the axis of a histogram."""

Arrays = dict[str, NDArray[Any]]


class Layer(NamedTuple):
    """The surviving weights of a layer, or of all.

    Attributes:
        edges: Edges of the bins, the same in all rounds, [BINS + 1].
        counts: Surviving weights in each bin, by round.
        left: Number of surviving weights by round.
        numbers: Number of weights when nothing is pruned.
    """

    edges: list[float]
    counts: dict[int, list[int]]
    left: dict[int, int]
    numbers: int


class Ticket(NamedTuple):
    """The layers of an arm, of one seed, by name; ``ALL`` is the first."""

    seed: int
    layers: dict[str, Layer]

    @property
    def rounds(self) -> list[int]:
        """The rounds whose models could be read."""
        return list(self.layers[ALL].left)

    def shares(self, rounds: Sequence[int]) -> list[list[float]]:
        """Return the percent of the weights left of each layer by round; NaN for a round without a model."""
        layers = [layer for name, layer in self.layers.items() if name != ALL]
        return [[100 * layer.left.get(number, float("nan")) / layer.numbers for number in rounds] for layer in layers]


def read_ticket_weights(arm: Curve) -> tuple[Ticket | None, list[str]]:
    """Read the models of the first seed of an arm; note those that cannot be read."""
    seed = min(seed for seed, _ in arm.rows)
    rounds: dict[int, Arrays] = {}
    sizes: dict[str, int] = {}
    notes = []
    for number in sorted(number for other, number in arm.rows if other == seed):
        row = arm.rows[seed, number]
        try:
            folder = find(arm.run.folder / row["folder"])
            config = read_config(folder)
            sizes = sizes or prunable_sizes(config, folder, arm)
            arrays = survivors(load_file(folder / "model.safetensors"), config["sparse"] or {}, sizes)
            # A survivor may be zero by chance, but there cannot be more of them.
            fits = sum(sizes.values()) == row["weights"] and sum(map(len, arrays.values())) <= row["survivors"]
            check_rules((fits, "the weights of its model differ from lottery.json"), code="mismatch")
            rounds[number] = arrays
        except InputError as error:
            notes.append(f"{arm.label}, seed {seed}: no histogram of round {number}: {error}")
    if not rounds:
        return None, notes
    names = {name: name.removesuffix(".weight_module.components").removesuffix(".weight") for name in sizes}
    layers = {names[name]: layer({at: arrays[name] for at, arrays in rounds.items()}, size) for name, size in sizes.items()}
    every = layer({at: np.concatenate(list(arrays.values())) for at, arrays in rounds.items()}, sum(sizes.values()))
    return Ticket(seed, {ALL: every} | layers), notes


def prunable_sizes(config: dict[str, Any], folder: Any, arm: Curve) -> dict[str, int]:
    """Return the number of weights of each prunable parameter of a model, under the options of its run."""
    options = arm.run.record["pruning"]
    patterns = {key: options.get(key, ()) for key in ("include", "exclude")}
    # Patterns apply to the names of the task, which holds the network as ``net``.
    matrices = prunable(nn.ModuleDict({"net": load_network(folder, config)}), options.get("matrices", "all"), **patterns)
    return {name.removeprefix("net."): matrix.parameter.numel() for name, matrix in matrices.items()}


def survivors(tensors: dict[str, Tensor], sparse: dict[str, Any], sizes: dict[str, int]) -> Arrays:
    """Return the surviving weights of each prunable parameter; a packed parameter has no others."""
    fits = set(sizes) <= set(tensors) and all(bool(tensors[name].isfinite().all()) for name in sizes)
    check_rules((fits, "its model has NaN or infinity, or other weights"), code="corrupt")
    values = {name: tensors[name].float().numpy().ravel() for name in sizes}
    return {name: value if name in sparse else value[value != 0] for name, value in values.items()}


def layer(rounds: dict[int, NDArray[Any]], numbers: int) -> Layer:
    """Count the weights of all rounds in the same bins, symmetric around zero."""
    reach = max((float(np.percentile(np.abs(values), REACH)) for values in rounds.values() if len(values)), default=0.0)
    edges = np.linspace(-1, 1, BINS + 1) * (reach or 1.0)
    counts = {number: np.histogram(values, edges)[0].tolist() for number, values in rounds.items()}
    return Layer(edges.tolist(), counts, {number: len(values) for number, values in rounds.items()}, numbers)
