"""Embedded and generated sets of vectors."""

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.data.info import VectorInfo
from zoo.data.loader import Array, TensorBatches
from zoo.data.module import DataModule
from zoo.data.options import check_pinned
from zoo.data.table import Table
from zoo.data.tabular import TableData
from zoo.registry import check_option, passes_options_to

Batch = tuple[Tensor, Tensor]

# For w = (a, b, c, d), component k of the product w x is sum_j SIGNS[k][j] * w[FACTORS[k][j]] * x_j.
FACTORS = ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0))
SIGNS = ((1, -1, -1, -1), (1, 1, -1, 1), (1, 1, 1, -1), (1, -1, 1, 1))


class VectorData(DataModule[VectorInfo]):
    """Feed batches (x float32 [B, in], y float32 [B, out]) with y = truth x and x standard normal.

    Of at least 10 `rows`, a tenth is for validation, a tenth for testing. The attribute `truth` is the linear map, [out, in].

    Example:
        >>> data = VectorData(np.eye(2), rows=20, batch_size=8)
        >>> data.setup()
        >>> data.info.sizes, [tuple(x.shape) for x, y in data.train_dataloader()]
        ({'train': 16, 'val': 2, 'test': 2}, [(8, 2), (8, 2)])
    """

    task = "regression"

    def __init__(self, truth: Array, *, rows: int = 5120, batch_size: int = 64, num_workers: int = 0, seed: int = 0) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, seed=seed)
        self.rows = check_option("rows", int, rows, "[10, inf)")
        self.truth = torch.from_numpy(truth.astype(np.float32))
        self._truth = truth
        self.splits: dict[str, Batch] = {}

    def load(self) -> VectorInfo:
        """Draw x and compute y = truth x in float64, then round both to float32."""
        x = np.random.RandomState(0).standard_normal((self.rows, self._truth.shape[1]))
        pair = [torch.from_numpy(values.astype(np.float32)) for values in (x, x @ self._truth.T)]
        held = self.rows // 10
        parts = zip(*(values.split([self.rows - 2 * held, held, held]) for values in pair), strict=True)
        self.splits = dict(zip(("train", "val", "test"), parts, strict=True))
        return VectorInfo(
            in_features=self._truth.shape[1],
            out_features=self._truth.shape[0],
            sizes={name: len(x) for name, (x, _) in self.splits.items()},
            sha256=_digest(self.splits),
        )

    def dataset(self, split: str) -> TensorBatches:
        """Return the rows of a split."""
        return TensorBatches(*self.splits[split])


def _digest(splits: dict[str, Batch]) -> str:
    sha = hashlib.sha256()
    for name, (x, y) in splits.items():
        sha.update(f"{name} {tuple(x.shape)} {tuple(y.shape)}".encode())
        sha.update(x.numpy().astype("<f4").tobytes() + y.numpy().astype("<f4").tobytes())
    return sha.hexdigest()


@passes_options_to(VectorData)
def rotation(**options: Any) -> VectorData:
    """Points of R^3 and their images under one rotation, y = R x; 4096 / 512 / 512 rows; needs no network access.

    Zhang et al. 2021, section 3.2 and Figure 2(a). R, the `truth` of the data, is a fixed random rotation by 2.41 radians (138
    degrees). On the test rows, the mean of the training targets has a mean squared error of 0.97, least squares of 0.
    """
    random = np.random.RandomState(3)
    x, y, z = (axis := random.standard_normal(3)) / np.linalg.norm(axis)
    angle = random.uniform(0.5, np.pi - 0.5)  # far from the identity and from a half turn
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    # Rodrigues' formula
    return VectorData(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross, **options)


@passes_options_to(VectorData)
def hamilton(elements: int = 4, **options: Any) -> VectorData:
    """Vectors of quaternions and their products with one matrix of quaternions, y = W x; needs no network access.

    Zhang et al. 2021, section 3.3 and Figure 2(b), with a matrix W of elements x elements quaternions instead of one, which
    multiplies from the left (their Eq. 3.4). x and y are component-major: first the real parts of all elements, then the parts
    of i, of j, of k. The components of W are fixed random numbers with variance 1 / (4 elements), so that y has variance 1 on
    average over W. `truth` is W as one real matrix, [4 * elements, 4 * elements]. 4096 / 512 / 512 rows. On the test rows, the
    mean of the training targets has a mean squared error of 0.84, least squares of 0.
    """
    elements = check_option("elements", int, elements, "[1, inf)")
    components = np.random.RandomState(1).standard_normal((4, elements, elements)) / np.sqrt(4 * elements)
    rows = zip(FACTORS, SIGNS, strict=True)
    truth = np.block([[sign * components[i] for i, sign in zip(*row, strict=True)] for row in rows])
    return VectorData(truth, **options)


@passes_options_to(VectorData)
def linear_map(features: int = 64, **options: Any) -> VectorData:
    """Vectors and their products with one random real matrix, y = W x; needs no network access.

    A control for `hamilton`: W has no structure that an algebra could share. Its entries, the `truth` of the data, are fixed
    random numbers with variance 1 / features, so that y has variance 1 on average. 4096 / 512 / 512 rows.
    """
    features = check_option("features", int, features, "[1, inf)")
    return VectorData(np.random.RandomState(2).standard_normal((features, features)) / np.sqrt(features), **options)


BREAST_CANCER_SHA256 = "25e2eb7b7a8745b1bde5ba18bc4969983d2e2f403291ecd5bde4a29ef30c3859"


@passes_options_to(TableData, "kind", "categories")
def breast_cancer(**options: Any) -> TableData:
    """Measurements of cell nuclei, benign or malignant, from scikit-learn; needs no network access.

    569 rows of 30 numbers (Wolberg, Mangasarian, Street and Street 1993, UCI), 461 / 51 / 57.
    """
    return TableData(_read, "diagnosis", kind="classification", **options)


def _read() -> dict[str, Table]:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    check_pinned("breast_cancer", BREAST_CANCER_SHA256, bunch.data.tobytes() + bunch.target.astype("int64").tobytes())
    names = map(str, bunch.feature_names)
    columns = {name: bunch.data[:, i] for i, name in enumerate(names)}
    return {"train": Table({**columns, "diagnosis": bunch.target_names[bunch.target]}, "breast_cancer")}
