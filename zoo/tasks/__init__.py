"""Tasks: LightningModules that hold a network, a loss, metrics and everything else that depends on what is learned.

    task = zoo.tasks.Classification(net, num_classes=10, lr=1e-3)
    lightning.pytorch.Trainer(max_epochs=5).fit(task, train_loader, val_loader)

Importing this package imports no torch; the first use of a name does (PEP 562).
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from zoo import registry
from zoo.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from zoo.tasks.base import Task
    from zoo.tasks.classification import (
        AnswerRanking,
        Classification,
        ImageClassification,
        PairClassification,
        TextClassification,
    )
    from zoo.tasks.generation import GenerativeTask
    from zoo.tasks.inputs import Example
    from zoo.tasks.language import LanguageModel
    from zoo.tasks.metrics import StepOutput
    from zoo.tasks.regression import Regression
    from zoo.tasks.seq2seq import Seq2Seq

_MODULES = {
    "AnswerRanking": "classification",
    "Classification": "classification",
    "Example": "inputs",
    "GenerativeTask": "generation",
    "ImageClassification": "classification",
    "LanguageModel": "language",
    "PairClassification": "classification",
    "Regression": "regression",
    "Seq2Seq": "seq2seq",
    "StepOutput": "metrics",
    "Task": "base",
    "TextClassification": "classification",
}

__all__ = [
    "AnswerRanking",
    "Classification",
    "Example",
    "GenerativeTask",
    "ImageClassification",
    "LanguageModel",
    "PairClassification",
    "Regression",
    "Seq2Seq",
    "StepOutput",
    "Task",
    "TextClassification",
    "info_of",
    "make_task",
    "task_type",
]


def task_type(spec: str) -> "tuple[type[Task], dict[str, Any]]":
    """Return the class and the options that the spec of a task names, such as ``text_classification(label_smoothing=0.1)``.

    Raises:
        InputError: If there is no such task.
    """
    entry, parsed = registry.resolve("zoo.tasks", spec)
    from zoo.tasks.base import Task

    kind = registry.load(entry)
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise InputError(f"{entry}: {entry.value} is no subclass of zoo.tasks.Task")
    return kind, dict(parsed.options)


def info_of(task: str, values: Mapping[str, Any]) -> Any:
    """Rebuild the data info that a checkpoint keeps, of the class that the task of a spec needs.

    Raises:
        InputError: If there is no such task, or a field of the info is missing, unknown or wrong.
    """
    return task_type(task)[0].info_type.from_dict(values)


def make_task(spec: str, net: "nn.Module", info: Any, tokenizer: Any = None, **options: Any) -> "Task":
    """Make the task of a spec for data, see `Task.from_info`; an option in the spec wins.

    Raises:
        InputError: If there is no such task, it cannot learn from such data, or an option is wrong.
    """
    kind, own = task_type(spec)
    return kind.from_info(net, info, tokenizer, **(options | own))


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'zoo.tasks' has no attribute '{name}'")
    return getattr(import_module(f"zoo.tasks.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
