"""The data module of vectors and their images under a known linear map."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from zoo.data.info import VectorInfo
from zoo.data.loader import Array
from zoo.data.module import DataModule
from zoo.data.options import whole

Batch = tuple[Tensor, Tensor]


class VectorData(DataModule[VectorInfo]):
    """Feed batches (x float32 [B, in], y float32 [B, out]) with y = truth x and x standard normal.

    Args:
        truth: The linear map, float64 [out, in].
        rows: Rows of all splits together, at least 10: a tenth is for validation, a tenth is for testing.
        batch_size: Rows per batch.
        num_workers: Worker processes; 0 makes batches in the training process, which is best here.
        seed: Of shuffling; the rows do not depend on it.

    Attributes:
        info: What a model must know of the data.
        truth: The linear map, float32 [out, in].
        splits: x and y of every split.

    Raises:
        InputError: An option is no whole number or too small.

    Example:
        >>> data = VectorData(np.eye(2), rows=20, batch_size=8)
        >>> data.setup()
        >>> data.info.sizes
        {'train': 16, 'val': 2, 'test': 2}
        >>> [tuple(x.shape) for x, y in data.train_dataloader()]
        [(8, 2), (8, 2)]
    """

    task = "regression"

    def __init__(self, truth: Array, *, rows: int, batch_size: int = 64, num_workers: int = 0, seed: int = 0) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, seed=seed)
        self.rows = whole("rows", rows, 10)
        self.truth = torch.from_numpy(truth.astype(np.float32))
        self._truth = truth
        self.splits: dict[str, Batch] = {}

    def load(self) -> VectorInfo:
        """Draw the rows."""
        self.splits = _draw(self._truth, self.rows)
        return VectorInfo(
            in_features=self._truth.shape[1],
            out_features=self._truth.shape[0],
            sizes={name: len(x) for name, (x, _) in self.splits.items()},
            sha256=_digest(self.splits),
        )

    def dataset(self, split: str) -> _Rows:
        """Return the rows of a split."""
        return _Rows(*self.splits[split])


class _Rows(Dataset[Batch]):
    """Rows that are taken a batch at a time, by the keys of `EpochSampler`."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, key: int) -> Batch:
        return self.x[key % len(self)], self.y[key % len(self)]

    def __getitems__(self, keys: list[int]) -> Batch:
        rows = torch.tensor(keys) % len(self)
        return self.x[rows], self.y[rows]


def _draw(truth: Array, rows: int) -> dict[str, Batch]:
    """Draw x and compute y = truth x in float64; both are rounded to float32 once."""
    x = np.random.RandomState(0).standard_normal((rows, truth.shape[1]))
    pair = [torch.from_numpy(values.astype(np.float32)) for values in (x, x @ truth.T)]
    held = rows // 10
    parts = zip(*(values.split([rows - 2 * held, held, held]) for values in pair), strict=True)
    return dict(zip(("train", "val", "test"), parts, strict=True))


def _digest(splits: dict[str, Batch]) -> str:
    """Return the SHA-256 of split names and numbers."""
    sha = hashlib.sha256()
    for name, (x, y) in splits.items():
        sha.update(f"{name} {tuple(x.shape)} {tuple(y.shape)}".encode())
        sha.update(x.numpy().astype("<f4").tobytes() + y.numpy().astype("<f4").tobytes())
    return sha.hexdigest()
