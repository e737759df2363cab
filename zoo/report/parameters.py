"""Count the parameters of each layer, compared with the same network over the reals."""

from typing import Any

from torch import nn

from zoo.backbones.build import backbone, count, equal_size, real_twin, untrained
from zoo.conversion import stayed_real
from zoo.report import plain_console, plain_table


def by_layer(net: nn.Module) -> dict[str, int]:
    """Count trainable parameters by layer; parameters of a learned algebra belong to its layer."""
    counts: dict[str, int] = {}
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            layer = name.rpartition(".")[0].removesuffix(".algebra").removesuffix(".weight_module") or "(network)"
            counts[layer] = counts.get(layer, 0) + parameter.numel()
    return counts


def layer_table(options: Any, info: dict[str, Any]) -> dict[str, Any]:
    """Return a row per layer, the totals, and the layers that stayed real with the reason."""
    net = backbone(untrained(options.backbone), options.algebra, scope=options.scope, embedding=options.embedding, **info)
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
    view = plain_table("layer", "kind", table["algebra"], "real twin", "share", show_footer=True)
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
