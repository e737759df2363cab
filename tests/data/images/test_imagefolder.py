import os

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.data import ready
from zoo.data.images.files import imagefolder as unopened_imagefolder
from zoo.data.images.preprocess import preprocess
from zoo.errors import InputError


def imagefolder(*args, **options):
    return ready(unopened_imagefolder(*args, **options))


def test_class_folders_alone(folder):
    data = imagefolder(folder(), size=8, test=0.2)
    assert data.info.classes == ("cat", "dog")
    assert data.info.sizes == {"train": 14, "test": 4, "val": 2}
    assert (data.info.in_channels, data.info.image_size) == (3, 8)
    names = [name for split in data.splits.values() for name in split.images.names]
    assert len(set(names)) == 20
    for split in data.splits.values():
        assert [name.startswith("dog") for name in split.images.names] == split.labels.tolist()


def test_no_test_split(folder):
    data = imagefolder(folder(), size=8, test=0)
    assert data.info.sizes == {"train": 18, "val": 2}
    with pytest.raises(InputError, match="has no test split"):
        data.test_dataloader()


def test_a_tenth_is_held_out_for_testing_by_default(folder):
    data = imagefolder(folder(), size=8)
    assert data.info.sizes == {"train": 16, "test": 2, "val": 2}
    assert data.split_note == "16 train, 2 test, 2 val images (test and val held out of train)"


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
def test_split_folders(folder, val):
    root = folder(("train", val, "test"))
    data = imagefolder(root, size=8)
    assert data.info.sizes == {"train": 20, "val": 20, "test": 20}
    images, labels = next(iter(data.test_dataloader()))
    assert labels.tolist() == [0] * 10 + [1] * 10
    with Image.open(root / "test" / "cat" / "0.png") as image:
        assert torch.equal(images[0], preprocess(image, data.info))


def test_grey(folder):
    images, _ = next(iter(imagefolder(folder(), size=8, channels=1).train_dataloader()))
    assert images.shape == (16, 1, 8, 8)


@pytest.mark.parametrize("augment", ["auto", "none", "flip"])
def test_augmentations(folder, augment):
    images, _ = next(iter(imagefolder(folder(), size=32, augment=augment).train_dataloader()))
    assert images.shape == (16, 3, 32, 32)


def test_the_digest_sees_names_and_sizes(folder):
    root = folder()
    before = imagefolder(root, size=8).info.sha256
    assert imagefolder(root, size=8).info.sha256 == before
    (root / "cat" / "0.png").rename(root / "cat" / "00.png")
    assert imagefolder(root, size=8).info.sha256 != before


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_named(folder, workers):
    root = folder(("train", "test"))
    (root / "test" / "dog" / "3.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    data = imagefolder(root, size=8, num_workers=workers)
    with pytest.raises(InputError, match=r"test/dog/3\.png: not a readable image"):
        list(data.test_dataloader())


@pytest.mark.parametrize("augment", ["none", "timm"])
def test_an_image_that_cannot_be_converted_is_named(folder, augment):
    root = folder(("train", "test"))
    Image.new("F", (8, 8)).save(root / "test" / "dog" / "3.tiff")
    data = imagefolder(root, size=8, augment=augment)
    with pytest.raises(InputError, match=r"test/dog/3\.tiff: pixels of 32 bits"):
        list(data.test_dataloader())
    for row in (root / "train" / "cat").iterdir():
        Image.new("L", (4, 1000)).save(row)
    with pytest.raises(InputError, match=r"train/cat/.*: 4 x 1000 pixels"):
        imagefolder(root, size=8, augment=augment).setup()


def test_a_cut_off_image_is_named(folder):
    root = folder()
    path = root / "cat" / "1.jpg"
    Image.fromarray(np.random.RandomState(0).randint(0, 255, (99, 99, 3)).astype(np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(InputError, match=r"cat/1\.jpg: not a readable image"):
        imagefolder(root, size=8)


def test_classes_must_agree(folder):
    root = folder(("train", "val"))
    (root / "val" / "eel").mkdir()
    with pytest.raises(InputError, match=r"val split has other classes than train \(differing: eel\)"):
        imagefolder(root)


def test_an_empty_class_is_named(folder):
    root = folder()
    (root / "eel").mkdir()
    with pytest.raises(InputError, match="eel: no images"):
        imagefolder(root)


def test_wrong_folders(folder, tmp_path):
    with pytest.raises(InputError, match="no class folders"):
        imagefolder(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        imagefolder(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a folder"):
        imagefolder(tmp_path / "file")
    (tmp_path / "file").unlink()
    with pytest.raises(InputError, match="no train folder"):
        imagefolder(folder(("test",)))
    with pytest.raises(InputError, match="val, validation are two folders of one split"):
        imagefolder(folder(("train", "val", "validation")))


def test_names_of_splits_are_no_classes(folder):
    data = imagefolder(folder(("Training", "Testing", "dev")), size=8)
    assert data.info.classes == ("cat", "dog")
    assert data.info.sizes == {"train": 20, "test": 20, "val": 20}


def test_a_pipe_among_the_images_is_refused_and_not_waited_for(folder):
    root = folder()
    os.mkfifo(root / "cat" / "z.png")
    with pytest.raises(InputError, match=r"z\.png: not a regular file"):
        imagefolder(root)
