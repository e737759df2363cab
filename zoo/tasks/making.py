"""The task that belongs to a kind of data."""

from typing import Any

from torch import nn

from zoo.errors import InputError
from zoo.options import Optimizer, Schedule
from zoo.tasks.base import Task
from zoo.tasks.classification import Classification, TextClassification
from zoo.tasks.ranking import Ranking
from zoo.tasks.regression import Regression

TASKS: dict[str, type[Task]] = {
    "image_classification": Classification,
    "text_classification": TextClassification,
    "pair_classification": TextClassification,
    "answer_ranking": Ranking,
    "regression": Regression,
}


def make_task(facts: Any, net: nn.Module, optimizer: Optimizer, schedule: Schedule) -> Task:
    """Build the task that the facts of a data set name.

    Raises:
        InputError: If there is no such task.
    """
    if facts.task not in TASKS:
        raise InputError(f"the data name the task '{facts.task}': use one of {', '.join(TASKS)}")
    return TASKS[facts.task](net, facts.outputs, optimizer, schedule)
