"""The data loader of all data modules: data sets here make whole batches, and the global random numbers are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from zoo.data.splits import Array


def loader(data: Dataset[Any], batch_size: int, num_workers: int, seed: int, **options: Any) -> DataLoader[Any]:
    """Return batches of a data set whose ``__getitems__`` makes a whole batch; with a `PassSampler` they are resumable.

    Args:
        data: The rows.
        batch_size: Rows per batch.
        num_workers: Worker processes, which outlive an epoch; 0 for none.
        seed: Of what the loader itself draws.
        options: More arguments of `DataLoader`.
    """
    made = ResumableLoader if isinstance(options.get("sampler"), PassSampler) else DataLoader
    return made(
        data,
        batch_size=batch_size,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=torch.cuda.is_available(),
        collate_fn=_whole_batch,
        generator=torch.Generator().manual_seed(seed),  # else every pass draws from the global RNG
        **options,
    )


class PassSampler(Sampler[int]):
    """Yield the rows of one pass after the other; a pass may begin late.

    Lightning calls `set_epoch` before every epoch, a resumed run included; a plain loop moves on by itself.

    Args:
        order: The rows of an epoch; in every epoch as many.

    Attributes:
        epoch: The epoch of the next pass.
        skip: Rows that it leaves out at its start.
    """

    def __init__(self, order: Callable[[int], Array]) -> None:
        self.order = order
        self.epoch = self.skip = 0
        self._length = len(order(0))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return iter(self.order(epoch)[self.skip :].tolist())

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the one of the next pass."""
        self.epoch = epoch


class ResumableLoader(DataLoader[Any]):
    """Go on in the middle of an epoch: Lightning writes the state into its checkpoints and loads it when a run is resumed.

    The state counts the batches that were handed out, whatever workers have made beyond them. It says of which epoch they
    are, and if another one is begun nothing is left out.
    """

    _epoch = 0  # of the pass under way
    _handed = 0
    _resumed: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator starts late: after Lightning's `set_epoch`
        if (sampler := self._passes) is not None:
            resumed, self._resumed = self._resumed, None
            self._epoch = sampler.epoch
            self._handed = resumed[1] if resumed is not None and resumed[0] == self._epoch else 0
            sampler.skip = self._handed * (self.batch_size or 1)
        for batch in super().__iter__():
            self._handed += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and how many of its batches were handed out."""
        epoch, handed = self._resumed or (self._epoch, self._handed)
        return {"epoch": epoch + 1, "batches": 0} if handed == len(self) else {"epoch": epoch, "batches": handed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next pass begin where the state says."""
        self._resumed = state["epoch"], state["batches"]
        if self._passes is not None:
            self._passes.set_epoch(state["epoch"])

    @property
    def _passes(self) -> PassSampler | None:
        """The sampler, unless Lightning has put one of its own in its place, as it does for several ranks."""
        return self.sampler if isinstance(self.sampler, PassSampler) else None


def _whole_batch(batch: Any) -> Any:
    return batch
