"""The info of any kind of data, from the values that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.data.corpus.info import CorpusInfo
from zoo.data.info import ImageInfo
from zoo.data.parallel.info import ParallelInfo
from zoo.data.points import VectorInfo
from zoo.data.text.info import TASKS, TextInfo
from zoo.errors import InputError

DataInfo = ImageInfo | TextInfo | VectorInfo | CorpusInfo | ParallelInfo

WRITTEN = ("tokens", "token_stream", "source_target")
"""The kinds of data whose networks answer at every token."""

_KINDS: dict[str, type[DataInfo]] = {
    "image_classification": ImageInfo,
    "regression": VectorInfo,
    "language_model": CorpusInfo,
    "seq2seq": ParallelInfo,
    **dict.fromkeys(TASKS, TextInfo),
}


def info_from(values: Mapping[str, Any]) -> DataInfo:
    """Rebuild the info that ``to_dict`` of their class wrote.

    Raises:
        InputError: The task is unknown, or a field is missing or unknown.
    """
    task = values.get("task")
    if not isinstance(task, str) or task not in _KINDS:
        raise InputError(f"data info: the task {task!r} is not one of {', '.join(_KINDS)}")
    return _KINDS[task].from_dict(values)
