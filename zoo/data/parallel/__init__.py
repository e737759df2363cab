"""Pairs of texts, one to read and one to write: the data module `ParallelData` that presets return."""

from zoo.data.info import ParallelInfo
from zoo.data.parallel.module import ParallelData

__all__ = ["ParallelData", "ParallelInfo"]
