"""Write the model card, README.md of a model folder."""

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

Loading verifies every file against `manifest.json`. The metrics are measured on the test split of its data set; results on
other data may differ. Versions: {versions}.
"""
MEASURED = ("metrics", "spread", "validation", "averaged", "parameters", "pruned", "projected", "epochs", "seed")
"""Keys of a manifest that describe the training, from which the card can be regenerated."""


def card(
    config: Mapping[str, Any], summary: Mapping[str, Any], source: str = "path/to/this/folder", license: str | None = None
) -> str:
    """Write the card of a model.

    Args:
        config: The configuration of the model.
        summary: ``versions``, and the available values of `MEASURED`.
        source: The argument of `zoo.load` in the example.
        license: The licence of the weights, such as ``apache-2.0``.
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
    """Format the test metrics of a model, and their mean and standard deviation over seeds if available."""
    head, rows = ["metric", "test"], [[name, number(value)] for name, value in metrics.items()] or [["(no test split)", ""]]
    if spread:
        head.append(f"mean ± standard deviation of {len(spread['seeds'])} seeds")
        rows = [[*row, f"{number(spread['mean'][row[0]])} ± {number(spread['std'][row[0]])}"] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def facts(config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Describe the parameters and the training of a model in one paragraph."""
    parameters, text, notes = summary.get("parameters") or {}, [], [""]
    if "real_twin" in parameters:
        total, twin = parameters["total"], parameters["real_twin"]
        text.append(f"{total / twin:.1%} of the parameters of the same network over the reals ({total:,} of {twin:,})")
    elif parameters:
        text.append(f"{parameters['total']:,} parameters")
    if config.get("data") and "epochs" in summary:
        text.append(f"trained on `{config['data']}` for {summary['epochs']} epochs (seed {summary['seed']})")
    if averaged := summary.get("averaged"):
        notes.append(f"Its weights are the mean of the last {len(averaged)} checkpoints.")
    if pruned := summary.get("pruned"):
        notes.append(f"{100 * pruned:g}% of the heads, hidden units and channels of a trained network were removed.")
    if sparse := config.get("sparse"):
        notes.append(f"{len(sparse)} of its tensors are stored sparsely, as a bit mask and the nonzero values.")
    if "projected" in summary:
        error = f"(mean relative error per matrix {summary['projected']:g}), without fine-tuning."
        notes.append(f"Its weights are those of a trained real network projected onto the algebra {error}")
    return f"{', '.join(text)}.{' '.join(notes)}" if text else "Saved with `zoo.save`."


def number(value: float | None) -> str:
    """Format a metric, with an exponent below 0.001.

    Example:
        >>> number(0.98765), number(3.2e-7), number(None), number(float("inf"))
        ('0.9877', '3.20e-07', 'not finite', 'not finite')
    """
    if value is None or not math.isfinite(value):
        return "not finite"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"
