"""LightningModules: what is learned from the data, and how it is measured."""

from zoo.tasks.base import Task
from zoo.tasks.classification import Classification, TextClassification
from zoo.tasks.making import make_task
from zoo.tasks.ranking import Ranking
from zoo.tasks.regression import Regression

__all__ = ["Classification", "Ranking", "Regression", "Task", "TextClassification", "make_task"]
