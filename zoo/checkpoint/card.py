"""The model card: what a stranger reads first."""

import json
from collections.abc import Mapping
from typing import Any

CARD = """\
---
library_name: hypercomplex-zoo
tags: {tags}
metrics: {names}
---

# {backbone} over {algebra}

{share:.1%} of the parameters of the same network over the reals ({total:,} of {twin:,}), trained on `{data}` for
{epochs} epochs (seed {seed}).{mean}

| metric | test |
|---|---|
{rows}

```python
import zoo

net = zoo.load("path/to/this/folder")
```

Checked when loaded: every file against `manifest.json`. Versions: {versions}.
"""


def card(config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Write the card of a model from its configuration and its run's summary."""
    metrics, parameters, averaged = summary["metrics"], summary["parameters"], summary.get("averaged")
    return CARD.format(
        backbone=config["backbone"],
        algebra=config["algebra"],
        data=config["data"],
        tags=json.dumps(["hypercomplex", config["backbone"], config["algebra"]]),
        names=json.dumps(list(metrics)),
        share=parameters["total"] / parameters["real_twin"],
        total=parameters["total"],
        twin=parameters["real_twin"],
        epochs=summary["epochs"],
        seed=summary["seed"],
        mean=f" Its weights are the mean of the last {len(averaged)} checkpoints." if averaged else "",
        rows="\n".join(f"| {name} | {number(value)} |" for name, value in metrics.items()) or "| (no test split) | |",
        versions=", ".join(f"{name} {version}" for name, version in summary["versions"].items()),
    )


def number(value: float | None) -> str:
    """Write a metric: small ones, such as a squared error, with an exponent.

    Example:
        >>> number(0.98765), number(3.2e-7), number(None)
        ('0.9877', '3.20e-07', 'not finite')
    """
    if value is None:
        return "not finite"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"
