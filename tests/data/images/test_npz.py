import os

import numpy as np
import pytest

from zoo.data import ready
from zoo.data.images.files import npz as unopened_npz
from zoo.errors import InputError


def npz(*args, **options):
    return ready(unopened_npz(*args, **options))


@pytest.fixture
def archive(tmp_path, pixels):
    def write(**changes):
        found = {}
        for seed, name in enumerate(("train", "val", "test")):
            found[f"{name}_images"] = pixels(30, 6, 6, seed=seed)
            found[f"{name}_labels"] = (np.arange(30) % 3).astype(np.uint8)[:, None]
        found.update(changes)
        np.savez(tmp_path / "my.npz", **{name: array for name, array in found.items() if array is not None})
        return tmp_path / "my.npz"

    return write


def test_layout(archive):
    data = npz(archive(), classes="cat, dog,eel")
    assert data.info.classes == ("cat", "dog", "eel")
    assert data.info.sizes == {"train": 30, "val": 30, "test": 30}
    assert (data.info.in_channels, data.info.image_size) == (1, 6)
    assert data.augment == "shift"
    assert npz(archive(), classes=("x", "y", "z"), size=12).info.image_size == 12


def test_colour_is_never_flipped_by_itself(archive, pixels):
    assert npz(archive(train_images=pixels(30, 40, 40, 3)), size=40).augment == "shift"


def test_missing_splits(archive):
    data = npz(archive(val_images=None, val_labels=None, test_images=None, test_labels=None), val=0.2)
    assert data.info.sizes == {"train": 24, "val": 6}
    assert data.info.classes == ("0", "1", "2")
    with pytest.raises(InputError, match=r"my\.npz has no test split"):
        data.test_dataloader()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": None}, "no array train_images"),
        ({"train_images": None, "train_labels": None}, "no array train_images"),
        ({"val_labels": None}, "no array val_labels"),
        ({"test_labels": np.zeros((30, 14), np.uint8)}, "test_labels has 14 labels per image"),
        ({"test_labels": np.array(["a"] * 30)}, "test_labels is <U1"),
        ({"val_images": np.zeros((30, 6), np.uint8)}, "val split: images of shape"),
        ({"val_images": np.zeros((30, 6, 6))}, "val split: images of type float64"),
        ({"val_images": np.zeros((2, 6, 6), np.uint8)}, "val split: 2 images but labels"),
        ({"train_labels": np.array([None] * 30)}, "cannot read train_labels"),
    ],
)
def test_wrong_arrays_are_named(archive, changes, message):
    with pytest.raises(InputError, match=rf"my\.npz.*{message}") as caught:
        npz(archive(**changes))
    assert "\n" not in str(caught.value)


def test_nothing_is_unpickled(archive):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    with pytest.raises(InputError, match="train_images"):
        npz(archive(train_images=np.array([Bomb()] * 30)))


def test_too_few_class_names(archive):
    with pytest.raises(InputError, match=r"label 2 is outside 0\.\.1"):
        npz(archive(), classes="cat,dog")


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 cut off"])
def test_no_archive(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.npz: cannot read the archive") as caught:
        npz(tmp_path / "bad.npz")
    assert "\n" not in str(caught.value)


def test_a_damaged_array_is_named(archive):
    path = archive()
    content = bytearray(path.read_bytes())
    content[600] ^= 255
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot read train_images"):
        npz(path)


def test_a_lone_array_is_no_archive(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"a\.npy"):
        npz(tmp_path / "a.npy")


def test_paths(tmp_path, archive, monkeypatch):
    with pytest.raises(InputError, match=r"nowhere\.npz does not exist"):
        npz("nowhere.npz")
    archive()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert npz("my.npz").info == npz("~/my.npz").info


@pytest.mark.parametrize("label", [10**9, 2**63 + 5, -1])
def test_labels_that_number_no_classes_fill_no_memory(tmp_path, pixels, label):
    labels = np.array([0, 1, 1, label], dtype=np.uint64 if label > 2**62 else np.int64)
    np.savez(tmp_path / "a.npz", train_images=pixels(4, 2, 2), train_labels=labels)
    with pytest.raises(InputError, match=rf"a\.npz, train split: label {label} is (too large to be a class|outside)"):
        npz(tmp_path / "a.npz")
    with pytest.raises(InputError, match=rf"label {label} is outside 0\.\.1"):
        npz(tmp_path / "a.npz", classes="a,b")


def test_labels_that_are_not_numbers_at_all(tmp_path, pixels):
    np.savez(tmp_path / "a.npz", train_images=pixels(4, 2, 2), train_labels=np.array([0, 1, np.nan, 1]))
    with pytest.raises(InputError, match="labels of type float64; they must be integers"):
        npz(tmp_path / "a.npz")


def test_a_folder_is_told_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"is a folder; name a \.npz file, or use imagefolder"):
        npz(tmp_path)
    (tmp_path / "b.npz").touch()
    with pytest.raises(InputError, match=r"is a folder; name one of its files: b\.npz"):
        npz(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"a\.npz is a pipe or a device"):
        npz(tmp_path / "a.npz")
    with pytest.raises(InputError, match="is a pipe or a device"):
        npz("/dev/null")
