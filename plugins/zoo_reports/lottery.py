"""The report ``lottery``: a metric against the weights left, the crossing points, and the weights that survive."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import nn

from zoo.checkpoint import ModelConfig, find, load_network, read_config
from zoo.errors import InputError, check_rules
from zoo.pruning import prunable
from zoo.reports import Report
from zoo_reports import page
from zoo_reports.curves import METHOD, Curve, collect, compare_all, crossing_table, gaps, is_wide, lottery_metric, read_runs
from zoo_reports.page import Page, Table, axis_title, percent_text

ALL = "all layers"
"""The name of all layers together."""
BINS = 60
REACH = 99.9
"""Percent of the weights of each round within the axis of a histogram."""
MOST_ROUNDS = 5
"""Maximum number of rounds with histograms."""
DASHES = {None: "-", "random": "--", "reinit": ":"}
"""The line style of each control."""

Arrays = dict[str, NDArray[Any]]


def lottery(runs: Sequence[str], *, split: str = "test", metric: str = "", mode: str = "") -> Report:
    """Lottery tickets: metric against weights left, crossing points, weights and sparsity per layer (png, svg, html, md).

    Args:
        runs: Folders of ``zoo lottery`` with the same metric and data.
        split: ``test`` or ``val``.
        metric: The metric to draw, such as perplexity; by default the one that selected the epochs.
        mode: Whether another metric is to be maximized (``max``) or minimized (``min``).
    """
    check_rules((split in ("val", "test"), f"lottery: split={split!r}: use val or test"))
    read = read_runs(runs)
    metric, mode = lottery_metric(read, metric, mode)
    arms = collect(read, split, metric)
    crossings, notes = compare_all(arms, mode)
    notes = gaps(read, arms) + notes
    tickets: dict[str, dict[str, Layer]] = {}
    for arm in arms:
        tickets[arm.label], problems = read_ticket_weights(arm)
        notes += problems
    backbones = dict.fromkeys(run.results.backbone for run in read)
    title = f"Lottery tickets of {' and '.join(backbones)} on {read[0].results.data}"
    files = page.pictures("lottery", lambda: curves(arms, metric, split, title)) | weight_files(arms, tickets, title)
    findings = [f"{crossing.statement}." for crossing in crossings] or ["No crossing point: no two arms can be compared."]
    values: dict[str, Any] = {"metric": metric, "mode": mode, "split": split}
    values |= {"crossings": [crossing._asdict() for crossing in crossings]}
    values |= {"arms": {arm.label: [point._asdict() for point in arm.points] for arm in arms}, "notes": notes}
    tables = [*([crossing_table(crossings)] if crossings else []), rounds_table(arms, metric, split)]
    result = Page(title, describe_seeds(arms), findings, tables, notes + [METHOD] * bool(crossings))
    return result.report("lottery", values, files)


def describe_seeds(arms: Sequence[Curve]) -> str:
    """Return the line under the title of a report."""
    counts = sorted({len(arm.seeds) for arm in arms})
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    return f"{seeds}; lines are means over seeds, bands one sample standard deviation. Validation chose the epochs."


def rounds_table(arms: Sequence[Curve], metric: str, split: str) -> Table:
    """Tabulate all rounds of all arms."""
    rows = []
    for arm in arms:
        for point in arm.points:
            sizes = percent_text(point.percent), f"{round(point.survivors):,}", str(len(point.seeds))
            rows.append((arm.label, str(point.round), *sizes, page.plus_minus(point.mean, point.spread)))
    head = ("arm", "round", "of the real weights", "weights left", "seeds", axis_title(metric, split))
    return Table("Rounds", head, rows)


# --- surviving weights ---


class Layer(NamedTuple):
    """The surviving weights of a layer, or of all, by round: counts in bins with the same edges [BINS + 1], and in total.

    ``numbers`` is the number of weights when nothing is pruned.
    """

    edges: list[float]
    counts: dict[int, list[int]]
    left: dict[int, int]
    numbers: int


def read_ticket_weights(arm: Curve) -> tuple[dict[str, Layer], list[str]]:
    """Read the models of the first seed of an arm; return its layers by name, ``ALL`` first, and note unreadable models."""
    seed = min(seed for seed, _ in arm.rows)
    rounds: dict[int, Arrays] = {}
    sizes: dict[str, int] = {}
    notes = []
    for number in sorted(number for other, number in arm.rows if other == seed):
        row = arm.rows[seed, number]
        try:
            folder = find(arm.run.folder / row.folder)
            config = read_config(folder)
            sizes = sizes or prunable_sizes(config, folder, arm)
            tensors, sparse = load_file(folder / "model.safetensors"), config.sparse or {}
            values = {name: tensors[name].float().numpy().ravel() for name in sizes if name in tensors}
            # A packed parameter has only survivors.
            arrays = {name: value if name in sparse else value[value != 0] for name, value in values.items()}
            # A survivor may be zero by chance, but there cannot be more of them.
            fits = sum(sizes.values()) == row.weights and sum(map(len, arrays.values())) <= row.survivors
            fits = fits and arrays.keys() == sizes.keys() and all(np.isfinite(value).all() for value in arrays.values())
            check_rules((fits, "the weights of its model differ from lottery.json"), code="mismatch")
            rounds[number] = arrays
        except InputError as error:
            notes.append(f"{arm.label}, seed {seed}: no histogram of round {number}: {error}")
    if not rounds:
        return {}, notes
    names = {name: name.removesuffix(".weight_module.components").removesuffix(".weight") for name in sizes}
    layers = {names[name]: layer({at: arrays[name] for at, arrays in rounds.items()}, size) for name, size in sizes.items()}
    every = layer({at: np.concatenate(list(arrays.values())) for at, arrays in rounds.items()}, sum(sizes.values()))
    return {ALL: every} | layers, notes


def prunable_sizes(config: ModelConfig, folder: Path, arm: Curve) -> dict[str, int]:
    """Return the number of weights of each prunable parameter of a model, under the options of its run."""
    options = arm.run.results.pruning
    patterns = {key: options.get(key, ()) for key in ("include", "exclude")}
    # Patterns apply to the names of the task, which holds the network as ``net``.
    matrices = prunable(nn.ModuleDict({"net": load_network(folder, config)}), options.get("matrices", "all"), **patterns)
    return {name.removeprefix("net."): matrix.parameter.numel() for name, matrix in matrices.items()}


def layer(rounds: dict[int, NDArray[Any]], numbers: int) -> Layer:
    """Count the weights of all rounds in the same bins, symmetric around zero."""
    reach = max((float(np.percentile(np.abs(values), REACH)) for values in rounds.values() if len(values)), default=0.0)
    edges = np.linspace(-1, 1, BINS + 1) * (reach or 1.0)
    counts = {number: np.histogram(values, edges)[0].tolist() for number, values in rounds.items()}
    return Layer(edges.tolist(), counts, {number: len(values) for number, values in rounds.items()}, numbers)


# --- pictures ---


def weight_files(arms: Sequence[Curve], tickets: Mapping[str, dict[str, Layer]], title: str) -> dict[str, bytes]:
    """Draw the weights of all arms together, of the layers of each arm, and the sparsity of each layer."""
    colors = page.colors_of(arm.algebra for arm in arms)
    drawn = {arm.label: (tickets[arm.label], colors[arm.algebra]) for arm in arms if tickets[arm.label]}
    if not drawn:
        return {}
    rows = [(label, layers[ALL], color) for label, (layers, color) in drawn.items()]
    files = page.pictures("weights", lambda: histograms(rows, f"Surviving weights. {title}"))
    files |= page.pictures("sparsity", lambda: sparsity({label: layers for label, (layers, _) in drawn.items()}))
    for label, (layers, color) in drawn.items():
        rows_of_arm = [(part, layer, color) for part, layer in layers.items() if part != ALL]
        name = re.sub(r"[^\w-]+", "-", label).strip("-")
        draw = partial(histograms, rows_of_arm, f"Surviving weights of each layer, {label}")
        files |= page.pictures(f"weights-{name}", draw)
    return files


def curves(arms: Sequence[Curve], metric: str, split: str, title: str) -> Figure:
    """Draw a metric against the remaining percent of the real network's weights: means, and spread over seeds.

    Colors are those of the algebras, dashes those of the controls, and every arm has a marker of its own.
    """
    figure, colors = Figure(figsize=(8, 5.4), layout="constrained"), page.colors_of(arm.algebra for arm in arms)
    axes = figure.subplots()
    for arm, marker in zip(arms, cycle(page.MARKERS), strict=False):
        color, thin = colors[arm.algebra], [point for point in arm.points if point not in arm.complete]
        line: dict[str, Any] = {"color": color, "linewidth": 1.2 if arm.control else 1.8, "zorder": 3}
        line |= {"marker": marker, "markersize": 3.5 if arm.control else 4.5}
        percents, means = [point.percent for point in arm.points], [point.mean for point in arm.points]
        axes.plot(percents, means, linestyle=DASHES[arm.control], label=arm.label, **line)
        hollow = line | {"linewidth": 0, "markerfacecolor": "white", "zorder": 4}
        axes.plot([point.percent for point in thin], [point.mean for point in thin], **hollow)
        low, high = ([point.mean + sign * (point.spread or 0.0) for point in arm.points] for sign in (-1, 1))
        has_spread = [point.spread is not None for point in arm.points]
        axes.fill_between(percents, low, high, where=has_spread, color=color, alpha=0.15, linewidth=0)
        if arm.dense is not None:
            axes.axhline(arm.dense, color=color, linewidth=0.7, linestyle=(0, (1, 2)), label=f"{arm.label}, dense")
    page.log_axis(axes, "x")
    if is_wide(arms):
        page.log_axis(axes, "y")
    axes.invert_xaxis()
    axes.set_xlabel("weights left, percent of the real network's prunable weights")
    axes.set_ylabel(axis_title(metric, split))
    page.plain_axes(axes)
    figure.suptitle(fill(title, 95), fontsize=11, x=0.02, ha="left")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8.5, handlelength=3.4)
    return figure


def histograms(rows: Sequence[tuple[str, Layer, str]], title: str) -> Figure:
    """Draw histograms of surviving weights like Figures 4 and 6 of Mukhopadhyay et al. (2025).

    ``rows`` are name, layer and color; the columns are some of the rounds.
    """
    rounds = sorted({number for _, layer, _ in rows for number in layer.counts})
    if len(rounds) > MOST_ROUNDS:
        rounds = [rounds[round(step * (len(rounds) - 1) / (MOST_ROUNDS - 1))] for step in range(MOST_ROUNDS)]
    figure = Figure(figsize=(2.1 * len(rounds) + 0.4, len(rows) + 0.9), layout="constrained")
    panels = figure.subplots(len(rows), len(rounds), squeeze=False)
    for (name, layer, color), line in zip(rows, panels, strict=True):
        line[0].set_ylabel(name.replace(", ", ",\n"), fontsize=7.5)
        for number, axes in zip(rounds, line, strict=True):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(labelsize=7)
            axes.set_yticks([])
            axes.locator_params(axis="x", nbins=3)
            axes.set_xlim(layer.edges[0], layer.edges[-1])
            if number in layer.counts:
                axes.stairs(layer.counts[number], layer.edges, fill=True, color=color)
                text = f"{layer.left[number]:,}\n{percent_text(100 * layer.left[number] / layer.numbers)}"
                axes.text(0.99, 1, text, transform=axes.transAxes, ha="right", va="top", fontsize=6.5)
    for number, axes in zip(rounds, panels[0], strict=True):
        axes.set_title(f"round {number}", fontsize=9)
    figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
    figure.supxlabel("weight", fontsize=8.5)
    return figure


def sparsity(tickets: Mapping[str, dict[str, Layer]]) -> Figure:
    """Draw the remaining share of each layer's weights against the round, a heat map for each arm."""
    rounds = range(1 + max(number for layers in tickets.values() for number in layers[ALL].left))
    most = max(len(layers) for layers in tickets.values())
    figure = Figure(figsize=(4.6, len(tickets) * (0.8 + 0.16 * most)), layout="constrained")
    panels = figure.subplots(len(tickets), 1, squeeze=False).ravel()
    colors = colormaps["viridis_r"].with_extremes(bad="#d0d0d0")  # zero has no logarithm
    for (label, layers), axes in zip(tickets.items(), panels, strict=True):
        _, *parts = layers.values()
        shares = [[100 * part.left.get(number, float("nan")) / part.numbers for number in rounds] for part in parts]
        image = axes.imshow(shares, norm=LogNorm(0.1, 100), cmap=colors, aspect="auto")
        axes.set_title(label, fontsize=9)
        axes.set_yticks(range(len(parts)), list(layers)[1:], fontsize=6.5)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("round")
    bar = figure.colorbar(image, ax=list(panels), aspect=30)
    bar.set_label("percent of the layer's weights left (grey: none)", fontsize=8)
    figure.suptitle("Weights left in each layer", fontsize=10.5, x=0.01, ha="left")
    return figure
