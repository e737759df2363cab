"""A run: a folder, a training, a summary."""

from zoo.training.fit import fit
from zoo.training.folds import cross_validate

__all__ = ["cross_validate", "fit"]
