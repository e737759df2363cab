"""Tasks: LightningModules that hold a network, a loss, metrics and everything else that depends on what is learned.

    task = zoo.tasks.Classification(net, num_classes=10, lr=1e-3)
    lightning.pytorch.Trainer(max_epochs=5).fit(task, train_loader, val_loader)

Importing this package imports no torch; the first use of a name does (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.tasks.base import StepOutput, Task, info_of, make_task, task_type
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
    "StepOutput": "base",
    "Task": "base",
    "TextClassification": "classification",
    "info_of": "base",
    "make_task": "base",
    "task_type": "base",
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


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'zoo.tasks' has no attribute '{name}'")
    return getattr(import_module(f"zoo.tasks.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
