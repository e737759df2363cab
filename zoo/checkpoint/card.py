"""The model card, README.md in the folder of a model."""

import json
from collections.abc import Mapping
from typing import Any

CARD = """\
---
library_name: hypercomplex-zoo
tags: {tags}
metrics: {names}
---

# {title}

{facts}

| metric | test |
|---|---|
{rows}

```python
import zoo

model = zoo.load("path/to/this/folder"{module})
```

Checked when loaded: every file against `manifest.json`. Versions: {versions}.
"""


def card(config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Write the card of a model.

    Args:
        config: The configuration of its folder.
        summary: Its ``metrics``, ``versions`` and, if known, ``parameters``, ``epochs``, ``seed`` and ``averaged``.
    """
    metrics, backbone = summary.get("metrics") or {}, config.get("backbone")
    return CARD.format(
        title=f"{backbone or 'A converted network'} over {config['algebra']}",
        facts=facts(config, summary),
        tags=json.dumps(["hypercomplex", *([backbone] if backbone else []), config["algebra"]]),
        names=json.dumps(list(metrics)),
        rows="\n".join(f"| {name} | {number(value)} |" for name, value in metrics.items()) or "| (no test split) | |",
        module="" if backbone else ", module=the_real_network",
        versions=", ".join(f"{name} {version}" for name, version in summary["versions"].items()),
    )


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
    return f"{', '.join(text)}.{mean}" if text else "Saved with `zoo.save`."


def number(value: float | None) -> str:
    """Write a metric: small ones, such as a squared error, with an exponent.

    Example:
        >>> number(0.98765), number(3.2e-7), number(None)
        ('0.9877', '3.20e-07', 'not finite')
    """
    if value is None:
        return "not finite"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"
