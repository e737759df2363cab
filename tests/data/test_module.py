"""The base class of data modules: setup, split notes and several processes."""

import json
import subprocess
import sys

import pytest
import torch

from tests.errors import raises
from zoo.data import BatchDataset, DataInfo, DataModule, ready


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


def test_split_note():
    assert ready(Counting({"train": 12345, "val": 4})).split_note == "12,345 train, 4 val rows (val was cut from train)"


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


RANKS = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch.distributed as dist
from zoo.data import ready
from zoo.data.corpus import CorpusData, Text
from zoo.data.images.files import digits
rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if world > 1:
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
images = ready(digits(batch_size=50))
rows = {name: sum(len(y) for _, y in getattr(images, name + "_dataloader")()) for name in ("train", "val", "test")}
labels = {name: sorted(int(v) for _, y in getattr(images, name + "_dataloader")() for v in y) for name in ("val", "test")}
tokens = {}
for stream in (False, True):
    text = ready(CorpusData({"train": Text("to be or not to be, " * 90)}, max_length=8, batch_size=4, stream=stream))
    for name in ("train", "val", "test"):
        targets = [t for _, t, _ in getattr(text, name + "_dataloader")()]
        tokens[f"{name} {stream}"] = [sum(int((t != 0).sum()) for t in targets), len(targets)]
print(json.dumps({"rows": rows, "labels": labels, "tokens": tokens}))
"""


def run(world, folder):
    command = [sys.executable, "-c", RANKS]
    ranks = [
        subprocess.Popen([*command, str(rank), str(world), str(folder / f"store{world}")], stdout=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in ranks]
    assert all(process.returncode == 0 for process in ranks)
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.mark.slow
def test_two_processes_evaluate_every_row_once_and_train_on_equal_shares(tmp_path):
    (whole,) = run(1, tmp_path)
    one, other = run(2, tmp_path)
    assert one["rows"]["train"] == other["rows"]["train"] == 1257 // 2
    for name in ("val", "test"):
        assert one["rows"][name] + other["rows"][name] == whole["rows"][name]
        assert sorted(one["labels"][name] + other["labels"][name]) == whole["labels"][name]
        for stream in (False, True):
            split = f"{name} {stream}"
            assert one["tokens"][split][0] + other["tokens"][split][0] == whole["tokens"][split][0], split
    for stream in (False, True):
        assert one["tokens"][f"train {stream}"] == other["tokens"][f"train {stream}"]


def test_more_processes_than_rows_raise(monkeypatch):
    monkeypatch.setattr("zoo.data.loader.process_rank", lambda: (9, 10))
    data = ready(Counting())
    with raises("invalid", "10 processes"):
        data.train_dataloader()
    with raises("invalid", "10 processes", "--trainer.devices"):
        data.val_dataloader()
