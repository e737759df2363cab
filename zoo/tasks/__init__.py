"""Tasks: LightningModules with a network, a loss, metrics, and the conversion of inputs and outputs.

    task = zoo.tasks.Classification(net, num_classes=10, optimizer=zoo.tasks.Optimizer(lr=1e-3))
    lightning.pytorch.Trainer(max_epochs=5).fit(task, train_loader, val_loader)

Importing this package imports no torch; the first use of a name does (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zoo import registry
from zoo.errors import InputError

if TYPE_CHECKING:
    from zoo.tasks.base import Task as Task
    from zoo.tasks.distillation import Distillation as Distillation
    from zoo.tasks.language import GenerativeTask as GenerativeTask
    from zoo.tasks.language import LanguageModel as LanguageModel
    from zoo.tasks.metrics import StepOutput as StepOutput
    from zoo.tasks.options import Decoding as Decoding
    from zoo.tasks.options import Optimizer as Optimizer
    from zoo.tasks.options import Schedule as Schedule
    from zoo.tasks.seq2seq import Seq2Seq as Seq2Seq
    from zoo.tasks.supervised import AnswerRanking as AnswerRanking
    from zoo.tasks.supervised import Classification as Classification
    from zoo.tasks.supervised import ImageClassification as ImageClassification
    from zoo.tasks.supervised import PairClassification as PairClassification
    from zoo.tasks.supervised import Regression as Regression
    from zoo.tasks.supervised import TextClassification as TextClassification
    from zoo.tasks.supervised import VectorClassification as VectorClassification

_CLASSES = {
    "base": "Task",
    "distillation": "Distillation",
    "language": "GenerativeTask LanguageModel",
    "metrics": "StepOutput",
    "options": "Decoding Optimizer Schedule",
    "seq2seq": "Seq2Seq",
    "supervised": "AnswerRanking Classification ImageClassification PairClassification Regression TextClassification "
    "VectorClassification",
}
_MODULES = {name: module for module, names in _CLASSES.items() for name in names.split()}


def task_type(spec: str) -> "tuple[type[Task], dict[str, Any]]":
    """Return the class and the options of a task spec such as ``text_classification(label_smoothing=0.1)``."""
    entry, parsed = registry.resolve("zoo.tasks", spec)
    from zoo.tasks.base import Task

    kind = registry.load(entry)
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise InputError(f"{entry}: {entry.value} is not a subclass of zoo.tasks.Task")
    return kind, dict(parsed.options)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'zoo.tasks' has no attribute '{name}'")
    return getattr(import_module(f"zoo.tasks.{_MODULES[name]}"), name)
