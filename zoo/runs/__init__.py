"""A run: a folder, a training, a summary."""

from zoo.runs.evaluate import evaluate
from zoo.runs.fit import fit
from zoo.runs.folds import cross_validate
from zoo.runs.predict import predict

__all__ = ["cross_validate", "evaluate", "fit", "predict"]
