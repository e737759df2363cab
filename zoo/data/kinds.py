"""The facts of any kind of data, from the values that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.data.corpus.facts import CorpusFacts
from zoo.data.facts import ImageFacts
from zoo.data.parallel.facts import ParallelFacts
from zoo.data.points import VectorFacts
from zoo.data.text.facts import TASKS, TextFacts
from zoo.errors import InputError

Facts = ImageFacts | TextFacts | VectorFacts | CorpusFacts | ParallelFacts

WRITTEN = ("corpus", "stream", "parallel")
"""The kinds of data whose networks answer at every token."""

_KINDS: dict[str, type[Facts]] = {
    "image_classification": ImageFacts,
    "regression": VectorFacts,
    "language_model": CorpusFacts,
    "seq2seq": ParallelFacts,
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
