"""The facts of any kind of data, from the values that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.data.facts import ImageFacts
from zoo.data.points import VectorFacts
from zoo.data.text.facts import TASKS, TextFacts
from zoo.errors import InputError

Facts = ImageFacts | TextFacts | VectorFacts

_KINDS: dict[str, type[Facts]] = {
    "image_classification": ImageFacts,
    "regression": VectorFacts,
    **dict.fromkeys(TASKS, TextFacts),
}


def facts_from(values: Mapping[str, Any]) -> Facts:
    """Rebuild the facts that ``to_dict`` of their class wrote.

    Raises:
        InputError: The task is unknown, or a field is missing or unknown.
    """
    task = values.get("task")
    if not isinstance(task, str) or task not in _KINDS:
        raise InputError(f"data facts: the task {task!r} is not one of {', '.join(_KINDS)}")
    return _KINDS[task].from_dict(values)
