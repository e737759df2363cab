"""The base of all data modules."""

from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from zoo.data.info import DataInfo
from zoo.data.loader import (
    BatchDataset,
    CollatedDataset,
    EpochSampler,
    FixedSampler,
    Order,
    ResumableLoader,
    eval_sampler,
    shuffled,
)
from zoo.errors import InputError
from zoo.registry import check_option
from zoo.registry.limits import WORKERS_PER_CORE, cores

ALL_ROWS = "all rows of a set without splits"

Info = TypeVar("Info", bound=DataInfo)
Data = TypeVar("Data", bound=LightningDataModule)


class DataModule(LightningDataModule, Generic[Info]):
    """Base class of all data modules.

    A subclass sets `task` and implements `load`, which opens the splits and returns their info, and `dataset`, the rows of a
    split. Its `__init__` checks options and reads no data; `load` may set `source`, `has_split`, `tokenizer`,
    `split_comment` and `notes`.

    Args:
        batch_size: Rows per batch, in each process.
        num_workers: Worker processes; 0 makes batches in the training process, which is best for text and small images.
        seed: Decides the order of training; the splits do not depend on it.

    Attributes:
        task: Spec of the default task.
        model_options: Options that a trained model fixes when it is tested on other data, such as the tokenizer.
        source_options: Options that identify the source; a model is tested on all rows of another source.
        tokenizer: The tokenizer; None for data without text.
        has_split: Whether the data came with a validation or test split.
        source: Name of the data in messages.
        split_comment: How missing splits were made.
        skipped: Broken rows that were left out.
        notes: Lines about how the data were read, which a run prints.
    """

    task: str
    unit: ClassVar[str] = "rows"
    model_options: ClassVar[tuple[str, ...]] = ()
    source_options: ClassVar[tuple[str, ...]] = ("path",)

    def __init__(self, *, batch_size: int = 32, num_workers: int = 0, seed: int = 0) -> None:
        super().__init__()
        self.batch_size = check_option("batch_size", int, batch_size, f"[1, {2**31 - 1}]")
        self.num_workers = check_option("num_workers", int, num_workers, f"[0, {WORKERS_PER_CORE * cores()}]")
        self.seed = check_option("seed", int, seed, "[0, inf)")
        self.tokenizer: Any = None
        self.has_split = True
        self.source = "the data"
        self.split_comment = ""
        self.skipped = 0
        self.notes: list[str] = []
        self._info: Info | None = None

    def load(self) -> Info:
        """Open the splits and return the data info."""
        raise NotImplementedError

    def dataset(self, split: str) -> Dataset[Any]:
        """Return the rows of a split: any map-style data set, or a `BatchDataset` that makes whole batches."""
        raise NotImplementedError

    def order(self, data: Any) -> Order:
        """Return the training order of a data set: keys by epoch."""
        return partial(shuffled, len(data), self.seed)

    def prepare_data(self) -> None:
        """Download and fill the caches; Lightning calls it in one process per machine."""
        self.setup()

    def setup(self, stage: str | None = None) -> None:
        """Open the splits, unless they are open; an `InputError` says where the data are wrong."""
        if self._info is None:
            self._info = self.load()

    @property
    def info(self) -> Info:
        """The data info, available after `setup`."""
        if self._info is None:
            raise RuntimeError(f"{type(self).__name__}: call prepare_data() and setup() first, or zoo.data.ready(data)")
        return self._info

    @info.setter
    def info(self, info: Info) -> None:
        self._info = info

    @property
    def has_test(self) -> bool:
        """Whether there is a test split."""
        return "test" in self.info.sizes

    @property
    def files(self) -> dict[str, str]:
        """Text files to save with the model, by name: the tokenizer, if there is one."""
        info: Any = self.info
        return {} if self.tokenizer is None else {info.tokenizer: self.tokenizer.to_json()}

    @property
    def split_note(self) -> str:
        """One line with the sizes of the splits and how they were made."""
        sizes = ", ".join(f"{count:,} {name}" for name, count in self.info.sizes.items())
        skipped = f"{self.skipped:,} broken {self.unit} skipped" if self.skipped else ""
        comments = "; ".join(filter(None, [self.split_comment, skipped]))
        return f"{sizes} {self.unit}" + (f" ({comments})" if comments else "")

    def train_dataloader(self) -> DataLoader[Any]:
        """Return training batches, in an order that changes with the epoch; a last batch of one row is dropped."""
        # Batch normalization cannot train on a single row.
        data = self.dataset("train")
        sampler = EpochSampler(self.order(data), even=True)
        if not len(sampler):
            raise InputError(f"{self.source}: too few training {self.unit} for {sampler.num_replicas} processes; use fewer")
        lone = len(sampler) > self.batch_size and len(sampler) % self.batch_size == 1
        return self.loader(data, sampler, drop_last=lone)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return validation batches in order."""
        return self.eval_dataloader("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """Return test batches in order; `InputError` if there is no test split."""
        if not self.has_test:
            raise InputError(f"{self.source} has no test split; add one, or use `zoo validate`", code="missing")
        return self.eval_dataloader("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """Return the test batches."""
        return self.test_dataloader()

    def eval_dataloader(self, split: str) -> DataLoader[Any]:
        """Return the batches of a split in order."""
        data: Any = self.dataset(split)
        return self.loader(data, eval_sampler(range(len(data))))

    def loader(self, data: Dataset[Any], sampler: EpochSampler, **options: Any) -> DataLoader[Any]:
        """Return a loader, resumable for training; ``batch_size=None`` if the sampler yields the rows of whole batches."""
        options = {"batch_size": self.batch_size, **options}
        if options["batch_size"] is not None and not isinstance(data, BatchDataset):
            data = CollatedDataset(data)
        if self.trainer is not None and self.trainer.overfit_batches:  # type: ignore[attr-defined]
            sampler = FixedSampler(sampler)
        return (ResumableLoader if sampler.even else DataLoader)(
            data,
            sampler=sampler,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
            collate_fn=_identity,
            generator=torch.Generator().manual_seed(self.seed),  # else every pass draws from the global RNG
            **options,
        )


def _identity(batch: object) -> Any:
    return batch


def ready(data: Data) -> Data:
    """Prepare and set up a data module as a Trainer does, and return it."""
    data.prepare_data()
    data.setup(None)  # type: ignore[arg-type]  # all stages
    return data
