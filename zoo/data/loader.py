"""The data loader of all data modules: data sets here make whole batches, and the global random numbers are left alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


def loader(data: Dataset[Any], batch_size: int, num_workers: int, seed: int, **options: Any) -> DataLoader[Any]:
    """Return batches of a data set whose ``__getitems__`` makes a whole batch.

    Args:
        data: The rows.
        batch_size: Rows per batch.
        num_workers: Worker processes, which outlive an epoch; 0 for none.
        seed: Of what the loader itself draws.
        options: More arguments of `DataLoader`.
    """
    return DataLoader(
        data,
        batch_size=batch_size,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=torch.cuda.is_available(),
        collate_fn=_whole_batch,
        generator=torch.Generator().manual_seed(seed),  # else every pass draws from the global RNG
        **options,
    )


def _whole_batch(batch: Any) -> Any:
    return batch
