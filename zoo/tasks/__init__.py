"""LightningModules: what is learned from the data, and how it is measured."""

from zoo.tasks.base import Task
from zoo.tasks.classification import Classification, TextClassification
from zoo.tasks.language import LanguageModel
from zoo.tasks.making import make_task
from zoo.tasks.ranking import Ranking
from zoo.tasks.regression import Regression
from zoo.tasks.seq2seq import Seq2Seq

__all__ = ["Classification", "LanguageModel", "Ranking", "Regression", "Seq2Seq", "Task", "TextClassification", "make_task"]
