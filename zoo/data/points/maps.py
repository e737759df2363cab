"""The two maps of Zhang et al. 2021, Figure 2: one rotation of space, and one matrix of Hamilton products."""

from __future__ import annotations

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import whole
from zoo.data.points.module import VectorData

# Left factor w = (a, b, c, d): component k of the product w x is sum_j SIGNS[k][j] * w[FACTORS[k][j]] * x_j.
FACTORS = ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0))
SIGNS = ((1, -1, -1, -1), (1, 1, -1, 1), (1, 1, 1, -1), (1, -1, 1, 1))


def rotation(rows: int = 5120, batch_size: int = 64, num_workers: int = 0, seed: int = 0) -> VectorData:
    """Points of R^3 and their images under one rotation, y = R x; 4096 / 512 / 512 rows; needs no network.

    Zhang et al. 2021, section 3.2 and Figure 2(a). R is drawn once and for all: by 2.41 radians (138 degrees). x is standard
    normal, and so is y. Predicting the mean of the training targets leaves a mean squared error of 0.97 on the test rows;
    least squares leaves none.

    Args:
        rows: Rows of all splits together; 80, 10 and 10 per cent are for training, validation and testing.
        batch_size: Rows per batch.
        num_workers: Worker processes.
        seed: Of shuffling; the rows and R do not depend on it.

    Returns:
        Data whose `truth` is R, [3, 3].

    Raises:
        InputError: An option is no whole number or too small.

    Example:
        >>> data = rotation()
        >>> data.setup()
        >>> data.info.sizes
        {'train': 4096, 'val': 512, 'test': 512}
    """
    return VectorData(_rotation(), rows=rows, batch_size=batch_size, num_workers=num_workers, seed=seed)


def hamilton(elements: int = 4, rows: int = 5120, batch_size: int = 64, num_workers: int = 0, seed: int = 0) -> VectorData:
    """Vectors of quaternions and their products with one matrix of quaternions, y = W x; needs no network.

    Zhang et al. 2021, section 3.3 and Figure 2(b), with a matrix W of elements x elements quaternions in place of one. It
    multiplies from the left by the Hamilton product, in which i, j, k of w = a + b i + c j + d k meet as

        i i = j j = k k = -1,   i j = k,   j k = i,   k i = j,   j i = -k,   k j = -i,   i k = -j

    so that w x is the matrix of their Eq. 3.4 applied to the components of x:

        [ a -b -c -d ]
        [ b  a -d  c ]
        [ c  d  a -b ]
        [ d -c  b  a ]

    x and y are component-major: first the real parts of all elements, then the parts of i, of j, of k. x is standard normal;
    the components of W are drawn once and for all with variance 1 / (4 elements), so that y has variance 1 on average over W.
    4096 / 512 / 512 rows. Predicting the mean of the training targets leaves a mean squared error of 0.84 on the test rows;
    least squares leaves none.

    Args:
        elements: Quaternions in x and in y; both have 4 * elements numbers.
        rows: Rows of all splits together; 80, 10 and 10 per cent are for training, validation and testing.
        batch_size: Rows per batch.
        num_workers: Worker processes.
        seed: Of shuffling; the rows and W do not depend on it.

    Returns:
        Data whose `truth` is W as one real matrix, [4 * elements, 4 * elements]; its first `elements` columns are the
        components of W, stacked.

    Raises:
        InputError: An option is no whole number or too small.

    Example:
        >>> data = hamilton(elements=2)
        >>> data.setup()
        >>> data.info.model_kwargs
        {'in_features': 8, 'out_features': 8}
    """
    elements = whole("elements", elements, 1)
    components = np.random.RandomState(1).standard_normal((4, elements, elements)) / np.sqrt(4 * elements)
    return VectorData(_block(components), rows=rows, batch_size=batch_size, num_workers=num_workers, seed=seed)


def _rotation() -> Array:
    """Return one rotation matrix by the formula of Rodrigues, R = I + sin(t) K + (1 - cos(t)) K K, [3, 3]."""
    random = np.random.RandomState(3)
    x, y, z = (axis := random.standard_normal(3)) / np.linalg.norm(axis)
    angle = random.uniform(0.5, np.pi - 0.5)  # far from the identity and from a half turn
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)


def _block(components: Array) -> Array:
    """Write left multiplication by components [4, out, in] as one real matrix, [4 * out, 4 * in]."""
    rows = zip(FACTORS, SIGNS, strict=True)
    return np.block([[sign * components[i] for i, sign in zip(*row, strict=True)] for row in rows])
