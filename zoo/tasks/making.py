"""The task that belongs to a kind of data."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from torch import nn

from zoo.data.info import CorpusInfo, DataInfo, ImageInfo, ParallelInfo, TextInfo, VectorInfo
from zoo.errors import InputError
from zoo.options import Decoding, Optimizer, Schedule
from zoo.tasks.base import Task
from zoo.tasks.classification import Classification, TextClassification
from zoo.tasks.decoding import check_decoding
from zoo.tasks.decoding.options import temperature_of
from zoo.tasks.language import LanguageModel
from zoo.tasks.ranking import Ranking
from zoo.tasks.regression import Regression
from zoo.tasks.seq2seq import Seq2Seq, room

TASKS: dict[str, type[Task]] = {
    "image_classification": Classification,
    "text_classification": TextClassification,
    "pair_classification": TextClassification,
    "answer_ranking": Ranking,
    "regression": Regression,
    "language_model": LanguageModel,
    "seq2seq": Seq2Seq,
}

INFO: dict[str, type[DataInfo]] = {
    "image_classification": ImageInfo,
    "text_classification": TextInfo,
    "pair_classification": TextInfo,
    "answer_ranking": TextInfo,
    "regression": VectorInfo,
    "language_model": CorpusInfo,
    "seq2seq": ParallelInfo,
}


def info_of(task: str, values: Mapping[str, Any]) -> Any:
    """Rebuild the data info that a checkpoint keeps.

    Raises:
        InputError: The task is unknown, or a field of the info is missing, unknown or wrong.
    """
    if task not in INFO:
        raise InputError(f"the task {task!r} is not one of {', '.join(INFO)}")
    return INFO[task].from_dict(values)


def num_outputs(info: Any) -> int:
    """Return the numbers that a network answers with, for a row or for a token."""
    if hasattr(info, "classes"):
        return len(info.classes)
    return int(info.out_features if hasattr(info, "out_features") else info.vocab_size)


def make_task(
    name: str,
    info: Any,
    net: nn.Module,
    optimizer: Optimizer,
    schedule: Schedule,
    label_smoothing: float | None = None,
    decoding: Decoding | None = None,
) -> Task:
    """Build the task that the info of a data set name.

    Args:
        name: Name of the task.
        info: Of the data.
        net: The network.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
        label_smoothing: Share of the probability that training spreads over all answers; None for what the task advises.
        decoding: How texts are written when they are tested; only a task that writes reads it.

    Raises:
        InputError: If there is no such task, labels cannot be smoothed so, or texts not be written so.
    """
    if name not in TASKS:
        raise InputError(f"the data name the task '{name}': use one of {', '.join(TASKS)}")
    kind: Any = TASKS[name]
    options = {} if label_smoothing is None else {"label_smoothing": label_smoothing}
    if options and "label_smoothing" not in signature(kind).parameters:
        raise InputError(f"label_smoothing={label_smoothing}: the task {name} smooths no labels, leave it out")
    if label_smoothing is not None and not 0 <= label_smoothing < 1:
        raise InputError(f"label_smoothing={label_smoothing} is a share of the probability: use 0 to below 1, such as 0.1")
    task: Task = kind(net, num_outputs(info), optimizer, schedule, **options)
    if isinstance(task, Seq2Seq):
        task.decoding = decoding or Decoding()
        check_decoding(task.decoding)  # all of it now: texts are first written when training is over
        temperature_of(task.decoding, answers=True)
        room(task.decoding, net)
    elif decoding not in (None, Decoding()):
        raise InputError(f"decoding is how answers are written, and the task {name} writes none: leave it out")
    return task
