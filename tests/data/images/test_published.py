import hashlib
import io

import datasets
import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image
from zoo_datasets import images as published
from zoo_datasets.images import cifar10 as unopened_cifar10
from zoo_datasets.images import cifar100 as unopened_cifar100
from zoo_datasets.images import pneumoniamnist

from tests.errors import raises
from zoo.data import ready


def cifar10(*args, **options):
    return ready(unopened_cifar10(*args, **options))


def cifar100(*args, **options):
    return ready(unopened_cifar100(*args, **options))


def png(array):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "png")
    return stream.getvalue()


def labels(rows, classes):
    return np.arange(rows) % classes


def table(rows, classes=10, seed=0, columns=("img", "label")):
    images = np.random.RandomState(seed).randint(0, 256, (rows, 32, 32, 3)).astype(np.uint8)
    values = {columns[0]: [{"bytes": png(a), "path": None} for a in images], columns[1]: labels(rows, classes).tolist()}
    features = datasets.Features({columns[0]: datasets.Image(), columns[1]: datasets.Value("int64")})
    return datasets.Dataset.from_dict(values, features=features), images


def test_hub(monkeypatch):
    asked = []
    train, test = table(40)[0], table(20, seed=1)[0]

    def load_dataset(*args, **options):
        asked.append((args, options))
        return datasets.DatasetDict(train=train, test=test)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = cifar10(augment="none")
    assert asked == [(("uoft-cs/cifar10",), {"revision": "0b2714987fa478483af9968de7c934580d0bb9a2"})]
    assert data.info.sizes == {"train": 36, "val": 4, "test": 20}
    images, _ = next(iter(data.test_dataloader()))
    raw = torch.from_numpy(table(20, seed=1)[1]).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (data.info.mean, data.info.std))
    torch.testing.assert_close(images, (raw - mean) / std, atol=1e-4, rtol=0)


def test_hub_fine_labels(monkeypatch):
    both = {name: table(200, 100, columns=("img", "fine_label"))[0] for name in ("train", "test")}
    both = {name: part.add_column("coarse_label", [0] * 200) for name, part in both.items()}
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.DatasetDict(both))
    data = cifar100(limit=150)
    assert data.info.sizes == {"train": 150, "val": 20, "test": 150}
    assert data.splits["test"].labels.max() == 99


BATCHES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]


def write_binary(folder, files, classes, label_bytes, rows=20):
    folder.mkdir()
    for seed, name in enumerate(files):
        pixels = np.random.RandomState(seed).randint(0, 256, (rows, 3, 32, 32)).astype(np.uint8)
        fine = labels(rows, classes).astype(np.uint8)[:, None]
        coarse = np.full((rows, label_bytes - 1), 19, np.uint8)
        np.concatenate([coarse, fine, pixels.reshape(rows, -1)], 1).tofile(folder / name)
    return pixels


@pytest.mark.parametrize(
    ("preset", "files", "classes", "label_bytes"), [(cifar10, BATCHES, 10, 1), (cifar100, ["train.bin", "test.bin"], 100, 2)]
)
def test_binary_version(tmp_path, preset, files, classes, label_bytes):
    test = write_binary(tmp_path / "binary", files, classes, label_bytes)
    data = preset(tmp_path)
    count = len(files) - 1
    assert data.info.sizes == {"train": 18 * count, "val": 2 * count, "test": 20}
    assert np.array_equal(data.splits["test"].images, test.transpose(0, 2, 3, 1))
    assert data.splits["test"].labels.tolist() == labels(20, classes).tolist()
    damaged = tmp_path / "binary" / files[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with raises("corrupt", f"{files[-1]}: "):
        preset(tmp_path / "binary")
    damaged.unlink()
    with raises("missing", files[-1]):
        preset(tmp_path)


def write_shards(root, rows=20, **changes):
    for seed, name in enumerate(("train_0", "train_1", "test")):
        images = np.random.RandomState(seed).randint(0, 256, (rows, 32, 32, 3)).astype(np.uint8)
        blobs = [png(image) for image in images]
        arrays = {
            "jpeg": np.frombuffer(b"".join(blobs), np.uint8),
            "offsets": np.cumsum([0, *map(len, blobs)]),
            "labels": labels(rows, 10).astype(np.uint8),
        }
        np.savez(root / f"{name}.npz", **{key: changes.get(key, array) for key, array in arrays.items()})
    return images


def test_shards(tmp_path):
    last = write_shards(tmp_path)
    data = cifar10(tmp_path)
    assert data.info.sizes == {"train": 36, "val": 4, "test": 20}
    assert np.array_equal(data.splits["test"].images.apply(3, np.asarray), last[3])


def test_damaged_shards(tmp_path):
    write_shards(tmp_path, offsets=np.arange(21))
    with raises("corrupt", "train_0.npz: offsets"):
        cifar10(tmp_path)
    write_shards(tmp_path)
    (tmp_path / "test.npz").unlink()
    with raises("data", "test.npz: cannot read"):
        cifar10(tmp_path)


def test_pickles_are_refused(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02cposix\nsystem\n")
    with raises("data", "binary version"):
        cifar10(tmp_path)


@pytest.fixture
def archive(tmp_path, pixels):
    arrays = {}
    for seed, name in enumerate(("train", "val", "test")):
        arrays[f"{name}_images"] = pixels(8, 28, 28, seed=seed)
        arrays[f"{name}_labels"] = (np.arange(8) % 2)[:, None]
    path = tmp_path / "pneumoniamnist.npz"
    np.savez(path, **arrays)
    return path


def test_local_file_or_its_folder(archive):
    data = ready(pneumoniamnist(archive))
    assert data.info.classes == ("normal", "pneumonia")
    assert data.info == ready(pneumoniamnist(archive.parent)).info
    assert data.augment == "shift"
    assert ready(pneumoniamnist(archive, size=14)).info.image_size == 14


def test_downloaded_archives_are_verified(archive, monkeypatch):
    asked = []

    def download(*args, **options):
        asked.append((args, options))
        return str(archive)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with raises("corrupt", "MD5"):
        ready(pneumoniamnist())
    mine = published.medmnist("pneumoniamnist", hashlib.md5(archive.read_bytes()).hexdigest(), "normal | pneumonia")
    assert ready(mine()).info == ready(pneumoniamnist(archive)).info
    where = ("albertvillanova/medmnist-v2", "data/pneumoniamnist.npz")
    assert asked[0] == (where, {"repo_type": "dataset", "revision": published.REVISION})
