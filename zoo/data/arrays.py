"""Data modules of arrays in memory."""

from typing import Any

import numpy as np
from torch import Tensor

from zoo.data.columns import Column, RawTable
from zoo.data.images.module import ImageData
from zoo.data.images.splits import Split
from zoo.data.loader import Array
from zoo.data.tables import TableData
from zoo.errors import InputError

SOURCE = "the arrays"


def from_arrays(x: Any, y: Any, **options: Any) -> ImageData | TableData:
    """Make a data module of inputs and targets; a tenth of the rows is held out for testing, then a tenth for validation.

    Args:
        x: Images, uint8 or floats in [0, 1] (rounded to 8 bits), [N, H, W], [N, H, W, C] or [N, C, H, W] with C = 1 or 3; or
            vectors of numbers, [N, features]. Arrays, tensors or lists.
        y: A label for each image; a label or a number for each vector, [N].
        options: ``batch_size``, ``num_workers`` and ``seed``, see `zoo.data.DataModule`.

    Raises:
        InputError: A shape, type or value is not supported.
    """
    x, y = (values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values) for values in (x, y))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or x.ndim not in (2, 3, 4) or len(x) != len(y) or x.dtype.kind not in "biuf":
        given = f"X of type {x.dtype} and shape {list(x.shape)}, y of shape {list(y.shape)}"
        use = "use images [N, H, W], [N, H, W, C] or [N, C, H, W], or vectors [N, features], and one target per row"
        raise InputError(f"data=(X, y): {given}; {use}")
    if x.ndim > 2:
        classes, labels = np.unique(y, return_inverse=True)
        return ImageData({"train": Split(_pixels(x), labels, SOURCE)}, [str(name) for name in classes], test=0.1, **options)
    columns = {f"x{i}": Column(f"x{i}", x[:, i].astype(np.float64)) for i in range(x.shape[1])}
    raw = RawTable(columns | {"y": Column.of("y", y.tolist())}, {"train": len(x)}, SOURCE)
    return TableData(lambda: raw, "y", **options)


def _pixels(x: Array) -> Array:
    """Return images as uint8 [N, H, W] or [N, H, W, C]."""
    if x.ndim == 4 and x.shape[-1] not in (1, 3):
        x = np.moveaxis(x, 1, -1)
    if x.dtype.kind == "f" and x.min(initial=0) >= 0 and x.max(initial=0) <= 1:
        x = np.rint(x * 255).astype(np.uint8)
    if x.dtype != np.uint8:
        given = f"images of type {x.dtype} from {x.min(initial=0):.3g} to {x.max(initial=0):.3g}"
        raise InputError(f"data=(X, y): {given}; use uint8, or floats in [0, 1]")
    return np.ascontiguousarray(x)
