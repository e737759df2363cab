"""The page of a model, which ``zoo serve`` and ``zoo export --format web`` share."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from zoo.backbones.build import count
from zoo.data.info import ImageInfo, VectorInfo
from zoo.inference.model import Model
from zoo.tasks import GenerativeTask
from zoo.tasks.options import temperature_of


def kind_of_inputs(model: Model) -> str:
    """Return ``image``, ``numbers`` or ``text``."""
    return "image" if isinstance(model.info, ImageInfo) else "numbers" if isinstance(model.info, VectorInfo) else "text"


def shown(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return the metrics that the page shows."""
    return {name: value for name, value in metrics.items() if name != "loss" and value is not None}


def describe(model: Model, name: str) -> dict[str, Any]:
    """Return the facts on the model and its inputs that the page needs."""
    task, config, info = model.task, model.config, model.info
    facts: dict[str, Any] = {"name": name, "reads": kind_of_inputs(model)}
    facts |= {"columns": list(getattr(task, "columns", ())), "metrics": shown(model.metrics)}
    facts |= {key: str(getattr(config, key) or "") for key in ("backbone", "algebra", "task", "data")}
    facts |= {"parameters": count(model.net)["total"], "generates": False}
    if isinstance(task, GenerativeTask):
        facts |= {"generates": True, "continues": task.continues_prompt}
        facts["temperature"] = temperature_of(task.decoding, not task.continues_prompt)
    if isinstance(info, VectorInfo):
        facts["in_features"] = info.in_features
    if isinstance(info, ImageInfo) and info.in_channels == 1:
        facts["ink"] = "white" if info.mean[0] < 0.5 else "black"  # for drawings in the manner of the training images
    return facts


def render(facts: dict[str, Any]) -> str:
    """Return the HTML of the page."""
    text = files("zoo_serving").joinpath("page.html").read_text(encoding="utf-8")
    return text.replace("{{facts}}", json.dumps(facts).replace("<", "\\u003c"))
