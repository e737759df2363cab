"""Read what survives of each layer from the model folders of a lottery run: histograms, and the share that is left."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from zoo.checkpoint import find, load_network, read_config
from zoo.errors import InputError
from zoo.pruning import prunable
from zoo_reports.rows import Arm

ALL = "all layers"
BINS = 60
REACH = 99.9
"""Percent of the weights of each round that the axis of a histogram reaches; the others lie beyond it."""

Arrays = dict[str, NDArray[Any]]


class Layer(NamedTuple):
    """The surviving weights of a layer, or of all.

    Attributes:
        edges: Limits of the bins, the same in all rounds, [BINS + 1].
        counts: Surviving weights in each bin, by round.
        left: All surviving weights, by round.
        numbers: Weights that the layer has when nothing is pruned.
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


def read_ticket(arm: Arm) -> tuple[Ticket | None, list[str]]:
    """Read the models of the first seed of an arm; say which could not be read."""
    seed = min(seed for seed, _ in arm.rows)
    rounds: dict[int, Arrays] = {}
    sizes: dict[str, int] = {}
    failed: dict[int, InputError] = {}
    for number in sorted(at for of, at in arm.rows if of == seed):
        row = arm.rows[seed, number]
        try:
            folder = find(arm.run.folder / row["folder"])
            config = read_config(folder)
            sizes = sizes or prunable_sizes(config, folder, arm)
            rounds[number] = survivors(load_file(folder / "model.safetensors"), config["sparse"] or {}, sizes)
            check(row, rounds[number], sizes)
        except InputError as error:
            rounds.pop(number, None)
            failed[number] = error
    said = []
    if failed:
        rounds_text = f"round{'s' if len(failed) > 1 else ''} {', '.join(map(str, failed))}"
        said.append(f"{arm.label}, seed {seed}: no histogram of {rounds_text}: {next(iter(failed.values()))}")
    if not rounds:
        return None, said
    names = {name: name.removesuffix(".weight_module.components").removesuffix(".weight") for name in sizes}
    layers = {
        names[name]: layer({at: arrays[name] for at, arrays in rounds.items()}, numbers) for name, numbers in sizes.items()
    }
    every = layer({at: np.concatenate(list(arrays.values())) for at, arrays in rounds.items()}, sum(sizes.values()))
    return Ticket(seed, {ALL: every} | layers), said


def prunable_sizes(config: dict[str, Any], folder: Any, arm: Arm) -> dict[str, int]:
    """Return how many numbers each prunable parameter of a model has, as its run chose them."""
    chosen = arm.run.record["pruning"]
    options = {key: chosen.get(key, ()) for key in ("include", "exclude")}
    # The names that patterns are compared with are those of the task, which holds the network as ``net``.
    found = prunable(nn.ModuleDict({"net": load_network(folder, config)}), chosen.get("matrices", "all"), **options)
    return {name.removeprefix("net."): one.parameter.numel() for name, one in found.items()}


def survivors(tensors: dict[str, Tensor], sparse: dict[str, Any], sizes: dict[str, int]) -> Arrays:
    """Return the weights that survive of each prunable parameter; a packed one has no others."""
    missing = sorted(set(sizes) - set(tensors))
    if missing:
        raise InputError(f"its model has no {missing[0]}")
    values = {name: tensors[name].float().numpy().ravel() for name in sizes}
    if wrong := next((name for name, value in values.items() if not np.isfinite(value).all()), None):
        raise InputError(f"its model holds NaN or infinity in {wrong}")
    return {name: value if name in sparse else value[value != 0] for name, value in values.items()}


def check(row: dict[str, Any], arrays: Arrays, sizes: dict[str, int]) -> None:
    """Compare a model with the row of its round; a survivor may be zero by chance, but there cannot be more of them.

    Raises:
        InputError: If they are of different networks or rounds.
    """
    if sum(sizes.values()) != row["weights"]:
        raise InputError(f"its model has {sum(sizes.values()):,} prunable weights, lottery.json says {row['weights']:,}")
    if (left := sum(map(len, arrays.values()))) > row["survivors"]:
        raise InputError(f"its model has {left:,} weights left, lottery.json says {row['survivors']:,}")


def layer(rounds: dict[int, NDArray[Any]], numbers: int) -> Layer:
    """Count the weights of all rounds in the same bins, symmetric about zero."""
    reach = max((float(np.percentile(np.abs(values), REACH)) for values in rounds.values() if len(values)), default=0.0)
    edges = np.linspace(-1, 1, BINS + 1) * (reach or 1.0)
    counts = {number: np.histogram(values, edges)[0].tolist() for number, values in rounds.items()}
    return Layer(edges.tolist(), counts, {number: len(values) for number, values in rounds.items()}, numbers)
