"""The model card, README.md in the folder of a model."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

CARD = """\
---
library_name: hypercomplex-zoo
{license}tags: {tags}
datasets: {datasets}
metrics: {names}
---

# {title}

{facts}

{table}

```python
import zoo

model = zoo.load({source}{module})
print(model, model.metrics)
```

Checked when loaded: every file against `manifest.json`. The metrics are those of its own test split; of other data nothing
is known. Versions: {versions}.
"""
MEASURED = ("metrics", "spread", "validation", "averaged", "parameters", "pruned", "projected", "epochs", "seed")
"""What a manifest knows of the training of a model, from which the card can be written anew."""


def card(
    config: Mapping[str, Any], summary: Mapping[str, Any], source: str = "path/to/this/folder", license: str | None = None
) -> str:
    """Write the card of a model.

    Args:
        config: The configuration of its folder.
        summary: Its ``versions`` and what is known of `MEASURED`.
        source: Where the model can be loaded from.
        license: The licence of its weights, such as ``apache-2.0``.
    """
    metrics, backbone = summary.get("metrics") or {}, config.get("backbone")
    return CARD.format(
        title=f"{backbone or 'A converted network'} over {config['algebra']}",
        facts=facts(config, summary),
        tags=json.dumps(["hypercomplex", *([backbone.partition("(")[0]] if backbone else []), config["algebra"]]),
        names=json.dumps(list(metrics)),
        datasets=json.dumps(re.findall(r"^[\w./-]+", config.get("data") or "")),
        license=f"license: {json.dumps(license)}\n" if license else "",
        source=json.dumps(source, ensure_ascii=False),
        table=table(metrics, summary.get("spread")),
        module="" if backbone else ", module=the_real_network",
        versions=", ".join(f"{name} {version}" for name, version in summary["versions"].items()),
    )


def table(metrics: Mapping[str, float | None], spread: Mapping[str, Any] | None) -> str:
    """Write the test metrics of a model, and beside them those of all seeds of its configuration, where they are known."""
    head, rows = ["metric", "test"], [[name, number(value)] for name, value in metrics.items()] or [["(no test split)", ""]]
    if spread:
        head.append(f"mean of {len(spread['seeds'])} seeds, and deviation")
        for row in rows:
            row.append(f"{number(spread['mean'][row[0]])} ± {number(spread['std'][row[0]])}")
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def facts(config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Write what is known of the parameters and the training of a model, as one paragraph."""
    parameters, averaged = summary.get("parameters"), summary.get("averaged")
    text = []
    if parameters and "real_twin" in parameters:
        total, twin = parameters["total"], parameters["real_twin"]
        text.append(f"{total / twin:.1%} of the parameters of the same network over the reals ({total:,} of {twin:,})")
    elif parameters:
        text.append(f"{parameters['total']:,} parameters")
    if config.get("data") and "epochs" in summary:
        data = " ".join(config["data"].replace("`", "'").split())  # a path may hold what Markdown would read otherwise
        text.append(f"trained on `{data}` for {summary['epochs']} epochs (seed {summary['seed']})")
    mean = f" Its weights are the mean of the last {len(averaged)} checkpoints." if averaged else ""
    if summary.get("pruned"):
        mean += f" Of a trained network, {summary['pruned']:g} of all heads, hidden units and channels were removed."
    if config.get("sparse"):
        mean += f" It is sparse: of {len(config['sparse'])} of its tensors only the numbers that are not zero are stored."
    if "projected" in summary:
        nearest = "Its weights are the nearest to those of a trained network over the reals"
        mean += f" {nearest} (mean relative error of a matrix {summary['projected']:g}); they were not trained further."
    return f"{', '.join(text)}.{mean}" if text else "Saved with `zoo.save`."


def number(value: float | None) -> str:
    """Write a metric: small ones, such as a squared error, with an exponent.

    Example:
        >>> number(0.98765), number(3.2e-7), number(None), number(float("inf"))
        ('0.9877', '3.20e-07', 'not finite', 'not finite')
    """
    if value is None or not math.isfinite(value):
        return "not finite"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"
