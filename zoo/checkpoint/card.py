"""The model card of a model folder. This module does not import torch."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.checkpoint.config import ModelConfig
from zoo.checkpoint.manifest import number

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

CARD = """\
---
{metadata}
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


def card(config: ModelConfig, facts: Mapping[str, Any], source: str = "path/to/this/folder", license: str | None = None) -> str:
    """Write the card of a model; the facts have ``versions`` and the available values of `MEASURED`."""
    metrics, backbone = facts.get("metrics") or {}, config.backbone
    title = f"{backbone or 'A converted network'} over {config.algebra}"
    return CARD.format(
        metadata=metadata(config, facts, title, license).to_yaml(),
        title=title,
        facts=_facts(config, facts),
        source=json.dumps(source, ensure_ascii=False),
        table=_table(metrics, facts.get("undefined") or {}, facts.get("spread")),
        module="" if backbone else ", module=the_real_network",
        versions=", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
    )


def metadata(config: ModelConfig, facts: Mapping[str, Any], title: str, license: str | None) -> "ModelCardData":
    """Return the metadata of a card by which the Hugging Face Hub finds, filters and compares models."""
    from huggingface_hub import EvalResult, ModelCardData

    measured = {name: value for name, value in (facts.get("metrics") or {}).items() if value is not None}
    backbone, datasets, task = config.backbone, re.findall(r"^[\w./-]+", config.data or ""), facts.get("pipeline_tag")
    results = [
        EvalResult(
            task_type=task,
            dataset_type=datasets[0],
            dataset_name=str(config.data),
            dataset_split="test",
            metric_type=name,
            metric_value=value,
        )
        for name, value in measured.items()
        if task and datasets
    ]
    return ModelCardData(
        library_name="hypercomplex-zoo",
        license=license,
        pipeline_tag=task,
        tags=[tag for tag in ("hypercomplex", backbone and backbone.partition("(")[0], config.algebra) if tag],
        datasets=datasets or None,
        metrics=list(measured) or None,
        **({"model_name": title, "eval_results": results} if results else {}),
    )


def _table(metrics: Mapping[str, float | None], undefined: Mapping[str, str], spread: Mapping[str, Any] | None) -> str:
    """Format the test metrics of a model, and their mean and standard deviation over seeds if available."""
    head, rows = ["metric", "test"], [[name, number(value)] for name, value in metrics.items()] or [["(no test split)", ""]]
    if spread:
        head.append(f"mean ± standard deviation of {len(spread['seeds'])} seeds")
        texts = {
            name: f"{number(mean)} ± {number(spread['std'][name])}" for name, mean in spread["mean"].items() if mean is not None
        }
        rows = [[*row, texts.get(row[0], number(None))] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines + [f"\n{name} is undefined: {reason}." for name, reason in undefined.items()])


def _facts(config: ModelConfig, facts: Mapping[str, Any]) -> str:
    parameters, text, notes = facts.get("parameters") or {}, [], [""]
    if "real_twin" in parameters:
        total, twin = parameters["total"], parameters["real_twin"]
        text.append(f"{total / twin:.1%} of the parameters of the same network over the reals ({total:,} of {twin:,})")
    elif parameters:
        text.append(f"{parameters['total']:,} parameters")
    if config.data and "epochs" in facts:
        text.append(f"trained on `{config.data}` for {facts['epochs']} epochs (seed {facts['seed']})")
    if averaged := facts.get("averaged"):
        notes.append(f"Its weights are the mean of the last {len(averaged)} checkpoints.")
    if pruned := facts.get("pruned"):
        notes.append(f"{100 * pruned:g}% of the heads, hidden units and channels of a trained network were removed.")
    if sparse := config.sparse:
        notes.append(f"{len(sparse)} of its tensors are stored sparsely, as a bit mask and the nonzero values.")
    if size := (config.info or {}).get("image_size"):
        notes.append(f"Images are resized to a short side of {size} pixels and cropped to a square at the centre.")
    if "projected" in facts:
        error = f"(mean relative error per matrix {facts['projected']:g}), without fine-tuning."
        notes.append(f"Its weights are those of a trained real network projected onto the algebra {error}")
    return f"{', '.join(text)}.{' '.join(notes)}" if text else "Saved with `zoo.save`."
