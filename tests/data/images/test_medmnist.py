import hashlib
import re
from dataclasses import replace

import huggingface_hub
import numpy as np
import pytest
from zoo_datasets import images as published
from zoo_datasets.images import pneumoniamnist as unopened_pneumoniamnist

from zoo.data import ready
from zoo.errors import InputError
from zoo.registry import create


def pneumoniamnist(*args, **options):
    return ready(unopened_pneumoniamnist(*args, **options))


@pytest.fixture
def archive(tmp_path, pixels):
    arrays = {}
    for seed, name in enumerate(("train", "val", "test")):
        arrays[f"{name}_images"] = pixels(8, 28, 28, seed=seed)
        arrays[f"{name}_labels"] = (np.arange(8) % 2)[:, None]
    path = tmp_path / "pneumoniamnist.npz"
    np.savez(path, **arrays)
    return path


def test_every_set_has_a_preset():
    records = {name: preset.record for name, preset in vars(published).items() if hasattr(preset, "record")}
    assert len(records) == 13
    for name, record in records.items():
        assert record.name == getattr(published, name).__name__ == name
    sums = {record.md5 for record in records.values() if hasattr(record, "md5")}
    assert {len(md5) for md5 in sums} == {32}
    assert len(sums) == 11
    assert len(published.organamnist.record.classes) == 11


def test_options_of_a_preset_are_checked():
    with pytest.raises(InputError, match=r"^bloodmnist: batch_size=abc must be a whole number$"):
        create("datasets", "bloodmnist(batch_size=abc)")
    shown = "bloodmnist(path=None, size=None, batch_size=64, num_workers=0, augment=shift, seed=0)"
    with pytest.raises(InputError, match=f"unknown option 'name' of bloodmnist: .*{re.escape(shown)}"):
        create("datasets", "bloodmnist(name=pathmnist)")


def test_local_file_or_its_folder(archive):
    data = pneumoniamnist(archive)
    assert data.info.classes == ("normal", "pneumonia")
    assert data.info == pneumoniamnist(archive.parent).info
    assert data.augment == "shift"
    assert pneumoniamnist(archive, size=14).info.image_size == 14


def test_labels_of_another_set(archive):
    arrays = dict(np.load(archive))
    arrays["val_labels"] = arrays["val_labels"] + 5
    np.savez(archive, **arrays)
    with pytest.raises(InputError, match=r"label 6 is outside 0\.\.1"):
        pneumoniamnist(archive)


def test_hub(archive, monkeypatch):
    asked = []

    def download(*args, **options):
        asked.append((args, options))
        return str(archive)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(InputError, match="is damaged"):
        pneumoniamnist()
    mine = replace(published.pneumoniamnist.record, md5=hashlib.md5(archive.read_bytes()).hexdigest())
    monkeypatch.setattr(published.pneumoniamnist, "record", mine)
    assert ready(published.pneumoniamnist()).info == pneumoniamnist(archive).info
    where = ("albertvillanova/medmnist-v2", "data/pneumoniamnist.npz")
    assert asked[0] == (where, {"repo_type": "dataset", "revision": published.REVISION})


def test_unreachable_hub_is_one_line(monkeypatch):
    def download(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection\nand nothing cached")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(InputError, match=r"could not get .*use pneumoniamnist\(path=") as caught:
        pneumoniamnist()
    assert "\n" not in str(caught.value)


def test_real_images(shared):
    data = pneumoniamnist(shared / "pneumoniamnist")
    assert data.info.sizes == {"train": 4708, "val": 524, "test": 624}
    assert np.bincount(data.splits["test"].labels).tolist() == [234, 390]
    assert (data.info.in_channels, data.info.image_size) == (1, 28)
    images, _ = next(iter(data.train_dataloader()))
    assert images.shape == (64, 1, 28, 28)
