"""Local images: archives, folders of image files, and the embedded digits."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from tests.errors import raises
from zoo.data import images, ready
from zoo.data.options import DataError
from zoo.data.pixels import EncodedImages, preprocess


def imagefolder(*args, **options):
    return ready(images.imagefolder(*args, **{"size": 8, **options}))


@pytest.fixture
def archive(tmp_path, pixels):
    def write(**changes):
        arrays = {}
        for seed, name in enumerate(("train", "val", "test")):
            arrays[f"{name}_images"] = pixels(30, 6, 6, seed=seed)
            arrays[f"{name}_labels"] = (np.arange(30) % 3).astype(np.uint8)[:, None]
        arrays.update(changes)
        np.savez(tmp_path / "my.npz", **{name: array for name, array in arrays.items() if array is not None})
        return tmp_path / "my.npz"

    return write


def test_an_archive_is_read(archive, pixels):
    data = ready(images.npz(archive(), classes="cat, dog,eel"))
    assert data.info.classes == ("cat", "dog", "eel")
    assert data.info.sizes == {"train": 30, "val": 30, "test": 30}
    assert (data.info.in_channels, data.info.image_size) == (1, 6)
    assert ready(images.npz(archive(), classes=("x", "y", "z"), size=12)).info.image_size == 12
    color = ready(images.npz(archive(train_images=pixels(30, 40, 40, 3)), size=40))
    assert color.augment == data.augment == "shift", "organs have a left and a right"


def test_archive_without_splits(archive):
    data = ready(images.npz(archive(val_images=None, val_labels=None, test_images=None, test_labels=None), val=0.2))
    assert data.info.sizes == {"train": 24, "val": 6}
    assert data.info.classes == ("0", "1", "2")
    with raises("missing", "my.npz", "test split"):
        data.test_dataloader()


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"train_images": None}, "no array train_images"),
        ({"val_labels": None}, "no array val_labels"),
        ({"test_labels": np.zeros((30, 14), np.uint8)}, "test split: 30 images but labels of type uint8 and shape (30, 14)"),
        ({"test_labels": np.array(["a"] * 30)}, "test split: 30 images but labels of type <U1"),
        ({"train_images": np.array([Bomb()] * 30)}, "cannot read the archive"),
    ],
)
def test_invalid_arrays_raise(archive, changes, value):
    with raises("data", "my.npz", value):
        ready(images.npz(archive(**changes)))


def test_invalid_archives_raise(tmp_path, archive):
    path = archive()
    content = bytearray(path.read_bytes())
    content[600] ^= 255
    np.save(tmp_path / "lone.npy", np.zeros(3))
    lone = (tmp_path / "lone.npy").read_bytes()
    for damaged in (b"not a zip file", lone, bytes(content)):
        path.write_bytes(damaged)
        with raises("data", "my.npz"):
            ready(images.npz(path))
    for path, code in (("no.npz", "missing"), (tmp_path, "data")):
        with raises(code, str(path)):
            ready(images.npz(path))


def test_class_folders_without_splits(folder):
    root = folder()
    assert imagefolder(root).split_note == "16 train, 2 test, 2 val images (test and val held out of train)"
    assert imagefolder(root, test=0).info.sizes == {"train": 18, "val": 2}
    data = imagefolder(root, test=0.2)
    assert data.info.classes == ("cat", "dog")
    assert data.info.sizes == {"train": 14, "test": 4, "val": 2}
    assert (data.info.in_channels, data.info.image_size) == (3, 8)
    names = [name for split in data.splits.values() for name in split.images.names]
    assert len(set(names)) == 20
    for split in data.splits.values():
        assert [name.startswith("dog") for name in split.images.names] == split.labels.tolist()


def test_links_to_folders_are_followed(folder, tmp_path):
    root, links = folder(), tmp_path / "links"
    links.mkdir()
    for name in ("cat", "dog"):
        (links / name).symlink_to(root / name)
    (links / "dog" / "loop").symlink_to(links)
    (links / "dog" / "loop2").symlink_to(root / "dog")
    data = imagefolder(links)
    assert data.info == imagefolder(root).info
    assert len(data.notes) == 2


@pytest.mark.parametrize("names", [("train", "val", "test"), ("Training", "dev", "Testing"), ("train", "validation", "test")])
def test_split_folders(folder, names):
    root = folder(names)
    data = imagefolder(root)
    assert data.info.classes == ("cat", "dog")
    assert data.info.sizes == {"train": 20, "val": 20, "test": 20}
    images, labels = next(iter(data.test_dataloader()))
    assert labels.tolist() == [0] * 10 + [1] * 10
    with Image.open(root / names[2] / "cat" / "0.png") as image:
        assert torch.equal(images[0], preprocess(image, data.info))


def test_the_digest_sees_names_and_sizes(folder):
    root = folder()
    before = imagefolder(root).info.sha256
    assert imagefolder(root).info.sha256 == before
    (root / "cat" / "0.png").rename(root / "cat" / "00.png")
    assert imagefolder(root).info.sha256 != before


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_breaks_after_the_check_raises(folder, workers):
    root = folder(("train", "test"))
    data = imagefolder(root, num_workers=workers)
    (root / "test" / "dog" / "3.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    with pytest.raises(DataError, match=r"test/dog/3\.png: "):  # with the traceback of a worker
        list(data.test_dataloader())


ENCODED = ("png", "jpg", "bmp", "webp", "gif", "tif", "ppm")


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("ending", ENCODED)
def test_the_check_finds_what_decoding_finds(tmp_path, pixels, ending):
    """An image that was cut off anywhere is refused if and only if it cannot be decoded."""
    whole = tmp_path / f"whole.{ending}"
    Image.fromarray(pixels(40, 30, 3)).save(whole)
    content = whole.read_bytes()
    for length in (0, 1, 20, len(content) // 2, len(content) - 5, len(content)):
        (tmp_path / f"{length}.{ending}").write_bytes(content[:length])
    files = sorted(tmp_path.iterdir())
    images = EncodedImages(files, [str(file) for file in files])

    def fails(read) -> bool:
        try:
            read()
        except DataError:
            return True
        return False

    decoded = [fails(lambda row=row: images.apply(row, lambda image: image.load())) for row in range(len(files))]
    assert [fails(lambda row=row: images.check(row)) for row in range(len(files))] == decoded
    assert decoded.count(True) >= 3
    assert not decoded[-1]


def test_broken_images_are_reported_before_training_or_skipped(folder):
    root = folder(("train", "test"))
    jpeg = root / "train" / "cat" / "big.jpg"
    Image.new("RGB", (200, 200), "red").save(jpeg)
    jpeg.write_bytes(jpeg.read_bytes()[:600])
    (root / "test" / "dog" / "3.png").write_bytes(b"")
    Image.new("F", (8, 8)).save(root / "test" / "cat" / "deep.tiff")
    Image.new("L", (4, 1000)).save(root / "train" / "dog" / "thin.png")
    with raises("data", "mode F", "4 broken images; the others: test/dog/3.png, train/cat/big.jpg, train/dog/thin.png"):
        imagefolder(root)
    data = imagefolder(root, on_bad_rows="skip", augment="timm")
    assert data.info.sizes == {"train": 18, "val": 2, "test": 19}
    assert data.split_note.endswith("; 4 broken images skipped)")
    (note,) = [note for note in data.notes if "skipped" in note]
    assert all(
        name in note for name in ("test/cat/deep.tiff", "test/dog/3.png", "train/cat/big.jpg", "thin.png: 4 x 1000 pixels")
    )
    for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader()):
        assert all(len(labels) for _, labels in loader)
    with raises("invalid", "on_bad_rows='drop'"):
        imagefolder(root, on_bad_rows="drop")


def test_a_class_may_be_named_like_a_split(folder):
    root = folder(classes=("train", "plane", "valid"))
    data = imagefolder(root)
    assert data.info.classes == ("plane", "train", "valid")
    assert data.notes[0] == f"{root}: 3 classes ('plane', 'train', 'valid') without splits"
    assert sum(data.info.sizes.values()) == 30
    nested = root / "train" / "steam"
    nested.mkdir()
    (root / "train" / "0.png").rename(nested / "0.png")
    assert imagefolder(root, splits=False).info.classes == data.info.classes


def test_splits_are_told_by_the_classes_in_them(folder):
    data = imagefolder(folder(("train", "dev", "holdout")))
    assert data.info.sizes == {"train": 18, "test": 2, "val": 20}
    assert "2 classes ('cat', 'dog') in the splits dev, train" in data.notes[0]
    assert "'holdout'" in data.notes[1]


@pytest.mark.parametrize("classes", [("train", "test"), ("train/steam", "plane")])
def test_folders_that_may_be_splits_or_classes_need_an_option(folder, classes):
    root = folder(classes=classes)
    with raises("data", "'train'", "splits=true", "splits=false"):
        imagefolder(root)
    assert imagefolder(root, splits=False).info.classes == tuple(sorted(name.split("/")[0] for name in classes))
    with raises("invalid", "splits='yes'"):
        imagefolder(root, splits="yes")


def test_folders_without_images_are_no_classes(folder):
    root = folder()
    expected = imagefolder(root).info
    for name in ("__MACOSX/cat/._0.png", ".ipynb_checkpoints/0.png", "cat/.ipynb_checkpoints/0-checkpoint.png", "cat/._1.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"nothing")
    (root / "dog" / "Thumbs.db").write_bytes(b"nothing")
    (root / "empty").mkdir()
    Image.new("L", (8, 8)).save(root / "cover.png")
    data = imagefolder(root)
    assert data.info == expected
    assert data.notes[1].endswith(
        "ignored folders without readable images of a class: '__MACOSX', 'empty'; 1 image outside the class folders"
    )


def test_the_transform_is_noted(folder):
    note = imagefolder(folder(), size=16).notes[-1]
    assert "images are resized to a short side of 16 pixels and cropped to a square at the centre (size=16)" in note


@pytest.mark.parametrize(
    ("splits", "extra", "code", "value"),
    [
        ((), None, "data", "/<class>/"),
        ((), "missing", "missing", "missing"),
        ((), "file", "data", "file"),
        (("test",), None, "missing", "train"),
        (("train", "val"), "val/eel", "data", "'eel'"),
    ],
)
def test_invalid_folders_raise(folder, splits, extra, code, value):
    root = folder(splits)
    if extra == "file":
        (root / "file").write_text("x")
    elif extra == "val/eel":
        (root / extra).mkdir()
        Image.new("L", (8, 8)).save(root / extra / "0.png")
    with raises(code, value):
        imagefolder(root / extra if extra in ("missing", "file") else root)


# --- digits ---


def test_splits_of_digits_are_fixed():
    every = {image.tobytes(): i for i, image in enumerate(np.rint(load_digits().images * 255 / 16).astype(np.uint8))}
    first, second = ready(images.digits(seed=0)), ready(images.digits(seed=5, batch_size=3))
    assert first.info == second.info
    assert first.info.sizes == {"train": 1257, "val": 180, "test": 360}
    assert (first.info.in_channels, first.info.image_size, first.info.classes) == (1, 8, tuple("0123456789"))
    assert (first.info.sha256[:12], first.augment) == ("412c2c70d427", "shift")
    shares, seen = np.bincount(load_digits().target) / 1797, []
    for name, split in first.splits.items():
        assert np.array_equal(split.images, second.splits[name].images)
        rows = [every[image.tobytes()] for image in split.images[..., 0]]
        assert np.array_equal(split.labels, load_digits().target[rows])
        assert np.abs(np.bincount(split.labels) - shares * len(split)).max() <= 2
        seen += rows
        if name == "test":
            assert sorted(rows)[:3] == [3, 7, 13]
    assert len(set(seen)) == len(seen) == 1797


def test_changed_digits_raise(monkeypatch):
    monkeypatch.setattr(images, "DIGITS_SHA256", "0" * 64)
    with raises("mismatch", "0" * 12):
        ready(images.digits())
