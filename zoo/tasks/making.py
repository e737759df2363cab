"""The task that belongs to a kind of data."""

from inspect import signature
from typing import Any

from torch import nn

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


def make_task(
    info: Any,
    net: nn.Module,
    optimizer: Optimizer,
    schedule: Schedule,
    label_smoothing: float | None = None,
    decoding: Decoding | None = None,
) -> Task:
    """Build the task that the info of a data set name.

    Args:
        info: Of the data.
        net: The network.
        optimizer: How weights are updated.
        schedule: How the learning rate moves.
        label_smoothing: Share of the probability that training spreads over all answers; None for what the task advises.
        decoding: How texts are written when they are tested; only a task that writes reads it.

    Raises:
        InputError: If there is no such task, labels cannot be smoothed so, or texts not be written so.
    """
    if info.task not in TASKS:
        raise InputError(f"the data name the task '{info.task}': use one of {', '.join(TASKS)}")
    kind: Any = TASKS[info.task]
    options = {} if label_smoothing is None else {"label_smoothing": label_smoothing}
    if options and "label_smoothing" not in signature(kind).parameters:
        raise InputError(f"label_smoothing={label_smoothing}: the task {info.task} smooths no labels, leave it out")
    if label_smoothing is not None and not 0 <= label_smoothing < 1:
        raise InputError(f"label_smoothing={label_smoothing} is a share of the probability: use 0 to below 1, such as 0.1")
    task: Task = kind(net, info.outputs, optimizer, schedule, **options)
    if isinstance(task, Seq2Seq):
        task.decoding = decoding or Decoding()
        check_decoding(task.decoding)  # all of it now: texts are first written when training is over
        temperature_of(task.decoding, answers=True)
        room(task.decoding, net)
    elif decoding not in (None, Decoding()):
        raise InputError(f"decoding is how answers are written, and the task {info.task} writes none: leave it out")
    return task
