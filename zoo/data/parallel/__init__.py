"""Sequence to sequence data: pairs of texts, one to read and one to write, and a Lightning data module that knows no networks.

A preset is a plain function that returns a `ParallelData`; users name it in a spec string, for instance
`parallel(path=talks, source=en, target=de)`. What a model must know of its data is in `ParallelInfo`.
"""

from zoo.data.info import ParallelInfo
from zoo.data.parallel.module import ParallelData

__all__ = ["ParallelData", "ParallelInfo"]
