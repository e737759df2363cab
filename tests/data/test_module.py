"""The base class of data modules: setup, split notes and several processes."""

import pytest
import torch

from tests.errors import raises
from zoo.data import BatchDataset, DataInfo, DataModule, loader, ready
from zoo.data import corpus as module_of_corpora
from zoo.data.corpus import CorpusData, Text
from zoo.data.images import digits


class Numbers(BatchDataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitems__(self, keys):
        return torch.tensor(keys) % self.rows


class PlainNumbers(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        if not 0 <= row < self.rows:
            raise IndexError(row)
        return row


class Counting(DataModule):
    task = "regression"
    opened = 0

    def __init__(self, sizes=None, **options):
        super().__init__(**options)
        self.sizes = sizes or {"train": 9, "val": 4}

    def load(self):
        self.opened += 1
        self.split_comment = "val was cut from train"
        return DataInfo(sizes=self.sizes, sha256="ab")

    def dataset(self, split):
        return Numbers(self.sizes[split])


def test_setup_loads_once():
    data = Counting()
    with pytest.raises(RuntimeError, match=r"Counting: call prepare_data\(\) and setup\(\) first"):
        data.info  # noqa: B018
    data.prepare_data()
    for stage in ("fit", "validate", "test", None):
        data.setup(stage)
    assert data.opened == 1
    assert ready(data).info.sizes == {"train": 9, "val": 4}
    assert data.opened == 1


@pytest.mark.parametrize("kind", ["images", "blocks", "stream"])
def test_two_processes_evaluate_every_row_once_and_train_on_equal_shares(monkeypatch, kind):
    def batches(rank, world, split):
        for module in (loader, module_of_corpora):
            monkeypatch.setattr(module, "process_rank", lambda: (rank, world))
        if kind == "images":
            return [labels for _, labels in getattr(ready(digits(batch_size=50)), f"{split}_dataloader")()]
        text = {"train": Text("to be or not to be, " * 90)}
        data = ready(CorpusData(text, max_length=8, batch_size=4, stream=kind == "stream"))
        return [targets for _, targets, _ in getattr(data, f"{split}_dataloader")()]

    def tokens(batches):
        return sorted(torch.cat([batch.flatten() for batch in batches]).tolist())

    one, other = (batches(rank, 2, "train") for rank in (0, 1))
    assert [batch.shape for batch in one] == [batch.shape for batch in other]
    for split in ("val", "test"):
        shares = batches(0, 2, split) + batches(1, 2, split)
        assert [t for t in tokens(shares) if t or kind == "images"] == [
            t for t in tokens(batches(0, 1, split)) if t or kind == "images"
        ]


def test_missing_test_split_raises():
    data = ready(Counting())
    assert not data.has_test
    with raises("missing", "the data", "test split"):
        data.test_dataloader()
    assert ready(Counting({"train": 9, "val": 4, "test": 2})).has_test


@pytest.mark.parametrize("option", [{"batch_size": 0}, {"num_workers": -1}, {"seed": 1.5}])
def test_options_are_checked_before_loading(option):
    with raises("invalid", f"{next(iter(option))}="):
        Counting(**option)


@pytest.mark.parametrize("wrap", [PlainNumbers, lambda rows: torch.utils.data.Subset(PlainNumbers(99), range(rows))])
def test_any_map_style_dataset_is_read_row_by_row(wrap):
    class Plain(Counting):
        def dataset(self, split):
            return wrap(self.sizes[split])

    def batches(kind):
        data = ready(kind(batch_size=4))
        train = data.train_dataloader()
        return [[batch.tolist() for batch in loader] for loader in (train, train, data.val_dataloader())]

    assert batches(Plain) == batches(Counting)
