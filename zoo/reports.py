"""Reports: tables and pictures of networks and trained models, and the tables of parameters of `zoo.report` and ``zoo info``.

An entry point of the group ``zoo.reports`` is a function ``report(model: zoo.Model, **options) -> Report``; ``zoo report
"NAME(option=value)" RUN`` calls it, prints the text and writes the files to the run folder. If its first parameter is named
``runs``, it receives the folders of one or more runs instead, ``report(runs: Sequence[str], **options)``.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


class Report(NamedTuple):
    """The result of a report.

    Attributes:
        values: JSON values, for ``--json``.
        text: Output for the terminal.
        files: File contents by name.
    """

    values: dict[str, Any]
    text: str
    files: dict[str, bytes]


def takes_runs(report: Callable[..., Report]) -> bool:
    """Return whether a report takes the folders of runs instead of a model."""
    return next(iter(signature(report).parameters), "") == "runs"


def plain_console(**options: Any) -> Console:
    """Return a rich console that does not wrap, truncate or color its output."""
    return Console(soft_wrap=True, highlight=False, markup=False, width=1000, **options)


def plain_table(first: str, *columns: str, **options: Any) -> Table:
    """Return a table with a left-aligned first column and right-aligned further columns."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, **options)
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def by_layer(net: Any) -> dict[str, int]:
    """Count trainable parameters by layer; parameters of a learned algebra belong to its layer."""
    counts: dict[str, int] = {}
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            layer = _layer(name.rpartition(".")[0])
            counts[layer] = counts.get(layer, 0) + parameter.numel()
    return counts


class LayerSize(NamedTuple):
    """Trainable parameters of a layer and of the same layer over the reals, and why it is real, if it could be converted."""

    layer: str
    real: int
    parameters: int
    reason: str


@dataclass(frozen=True, repr=False)
class NetworkReport:
    """The layers of a network; printed as a table."""

    algebra: str
    layers: tuple[LayerSize, ...]

    def __repr__(self) -> str:
        rows = [(row.layer, row.real, row.parameters, row.reason) for row in self.layers]
        real, ours = (sum(numbers) for numbers in zip(*((row[1], row[2]) for row in rows), strict=True)) if rows else (0, 0)
        view = plain_table("layer", "real", f"over {self.algebra}", "", "why it is real", show_footer=True)
        footers = "total", f"{real:,}", f"{ours:,}", f"{ours / real:.1%}" if real else "", ""
        for column, text in zip(view.columns, footers, strict=True):
            column.footer = text
        view.columns[-1].justify = "left"
        for name, theirs, count, reason in rows:
            view.add_row(name, f"{theirs:,}", f"{count:,}", f"{count / theirs:.1%}" if theirs else "", reason)
        console = plain_console()
        with console.capture() as captured:
            console.print(view)
        return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def report(net: Any) -> NetworkReport:
    """Compare the trainable parameters of every layer of a network with those of the same layer over the reals.

    Layers that `zoo.convert` left real are shown with the reason. Printing the result shows a table.

    Example:
        >>> import torch
        >>> from zoo.algebras import Algebra
        >>> from zoo.nn import Linear
        >>> report(torch.nn.Sequential(Linear(8, 6, algebra=Algebra(torch.ones(2, 2, 2))), torch.nn.ReLU())).layers
        (LayerSize(layer='0', real=54, parameters=30, reason=''),)
    """
    from zoo.conversion import Conversion
    from zoo.nn.weight import Weight

    ours, extra = by_layer(net), Counter[str]()
    names, counted = [], set[int]()  # layers may share a learned product, which the first one counts
    for path, module in net.named_modules():
        if isinstance(module, Weight) and module.components.requires_grad:
            matrix = module.out.channels * module.inp.channels * math.prod(module.elements.shape[3:])
            own = [p for p in module.parameters() if p.requires_grad and id(p) not in counted]
            extra[_layer(path)] += matrix - sum(p.numel() for p in own)
            counted |= {id(p) for p in own}
            names += [module.algebra.spec or f"n={module.algebra.n}"] if module.inp.n > 1 else []
    conversion = getattr(net, "conversion", None)
    reasons = conversion.real if isinstance(conversion, Conversion) else {}
    rows = (LayerSize(name, count + extra[name], count, reasons.get(name, "")) for name, count in ours.items())
    return NetworkReport(", ".join(dict.fromkeys(names)) or "the reals", tuple(rows))


def _layer(path: str) -> str:
    """Return the name of the layer that a weight or a product belongs to."""
    return path.removesuffix(".algebra").removesuffix("weight_module").removesuffix(".") or "(network)"


def layer_table(options: Any, info: dict[str, Any]) -> dict[str, Any]:
    """Return a row per layer, the totals, and the layers that stayed real with the reason, compared with the real network."""
    from zoo.backbones.build import backbone, check_size, count, equal_size, real_twin, untrained
    from zoo.conversion import stayed_real

    layers = {"scope": options.scope, "embedding": options.embedding} | info
    check_size(options.backbone, options.algebra, options.max_parameters, **layers)
    net = backbone(untrained(options.backbone), options.algebra, **layers)
    twin = real_twin(options.backbone, embedding=options.embedding, **info)
    ours, theirs = by_layer(net), by_layer(twin)
    kinds = {name or "(network)": type(module).__name__ for name, module in net.named_modules()}
    rows = [
        {"layer": name, "kind": kinds.get(name, ""), "parameters": ours.get(name, 0), "real_twin": theirs.get(name, 0)}
        for name in dict.fromkeys((*ours, *theirs))
    ]
    total = count(net) | {"real_twin": count(twin)["total"]}
    nearest = equal_size(options.backbone, total["total"], embedding=options.embedding, **info)
    return {
        "backbone": options.backbone,
        "algebra": options.algebra,
        "data": options.data,
        "layers": rows,
        "total": total,
        "equal_size": nearest and {"backbone": nearest[0], "parameters": nearest[1]},
        "stayed_real": stayed_real(net),
    }


def print_table(table: dict[str, Any]) -> None:
    """Print the result of `layer_table`."""
    console, total, twin = plain_console(), table["total"]["total"], table["total"]["real_twin"]
    view = plain_table("layer", "kind", table["algebra"], "real twin", "relative to real", show_footer=True)
    for column, text in zip(view.columns, ("total", "", f"{total:,}", f"{twin:,}", f"{total / twin:.1%}"), strict=True):
        column.footer = text
    view.columns[1].justify = "left"
    for row in table["layers"]:
        share = f"{row['parameters'] / row['real_twin']:.1%}" if row["real_twin"] else ""
        view.add_row(row["layer"], row["kind"], f"{row['parameters']:,}", f"{row['real_twin']:,}", share)
    console.print(f"\n{table['backbone']} over {table['algebra']}, sized for {table['data']}; trainable parameters\n")
    console.print(view)
    if embedding := table["total"]["embedding"]:
        console.print(f"of these in word tables: {embedding:,}")
    if (nearest := table["equal_size"]) and total < twin:
        console.print(f"a real network of this size: {nearest['backbone']}, {nearest['parameters']:,}; compare with it too")
    if table["stayed_real"]:
        console.print("stayed real:")
    for reason, names in table["stayed_real"].items():
        console.print(f"  {reason}: {', '.join(names)}")
