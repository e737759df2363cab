"""A run: a folder, a training, a summary."""

from zoo.runs.evaluate import evaluate, predict
from zoo.runs.fit import fit

__all__ = ["evaluate", "fit", "predict"]
