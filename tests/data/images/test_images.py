import numpy as np
import pytest
import torch
from PIL import Image

from zoo.data import ImageData as unopened_ImageData
from zoo.data import Split, ready
from zoo.data.images import shift
from zoo.data.pixels import EncodedImages, preprocess


def ImageData(*args, **options):
    return ready(unopened_ImageData(*args, **options))


@pytest.fixture
def make(pixels):
    def build(rows=40, shape=(4, 4), test=7, **options):
        splits = {"train": Split(pixels(rows, *shape), np.arange(rows) % 2)}
        if test:
            splits["test"] = Split(pixels(test, *shape, seed=1), np.arange(test) % 2)
        return ImageData(splits, ["a", "b"], **{"batch_size": 8, "augment": "none", **options})

    return build


def gather(loader):
    images, labels = zip(*loader, strict=True)
    return torch.cat(images), torch.cat(labels)


def test_training_images_have_mean_0_and_deviation_1(make):
    images, _ = gather(make(shape=(4, 4, 3)).train_dataloader())
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(images.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_statistics_come_from_the_training_split_only(make, pixels):
    def info(train=0, val=1, test=2):
        seeds = {"train": train, "val": val, "test": test}
        splits = {name: Split(pixels(20, 4, 4, seed=seed), np.arange(20) % 2) for name, seed in seeds.items()}
        return ImageData(splits, ["a", "b"]).info

    assert info(val=5, test=6).mean == info().mean
    assert info(val=5, test=6).std == info().std
    assert info(train=7).mean != info().mean
    assert info(test=6).sha256 != info().sha256


def orders(data, epochs=2):
    loader = data.train_dataloader()
    return [gather(loader)[0] for _ in range(epochs)]


@pytest.mark.parametrize("shape", [(6, 6), (9, 5, 3)])
@pytest.mark.parametrize("size", [None, 4])
def test_preprocess_equals_the_test_batches(make, pixels, shape, size):
    data = make(shape=shape, size=size, augment="shift")
    images, _ = gather(data.predict_dataloader())
    raw = pixels(7, *shape, seed=1)
    assert data.info.image_size == (size or shape[0])
    for image, array in zip(images, raw, strict=True):
        assert torch.equal(image, preprocess(Image.fromarray(array), data.info))


def test_encoded_images_equal_their_arrays(pixels, tmp_path):
    raw = pixels(20, 8, 8, 3)
    files = [tmp_path / f"{i}.png" for i in range(20)]
    for file, array in zip(files, raw, strict=True):
        Image.fromarray(array).save(file)
    encoded = EncodedImages(files, [file.name for file in files])
    labels = np.arange(20) % 2
    lazy, eager = (ImageData({"train": Split(i, labels)}, "ab", size=8, augment="flip") for i in (encoded, raw))
    assert lazy.info.mean == pytest.approx(eager.info.mean)
    torch.testing.assert_close(orders(lazy)[0], orders(eager)[0])


@pytest.mark.parametrize(
    ("batch_size", "expected"),
    [(5, [5] * 7), (8, [8] * 4 + [4]), (40, [36]), (1, [1] * 36)],
)
def test_last_batch_of_one_image_is_dropped(make, batch_size, expected):
    data = make(batch_size=batch_size)
    loader = data.train_dataloader()
    assert [len(labels) for _, labels in loader] == expected
    assert len(loader) == len(expected)
    assert sum(len(labels) for _, labels in data.test_dataloader()) == 7
    assert [len(labels) for _, labels in make(rows=2, test=0, val=0.5).train_dataloader()] == [1]


def test_shift_moves_whole_images_and_never_mirrors():
    image = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8) + 1
    shifted = shift(image.expand(200, -1, -1, -1), torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(image[0, 0], (1, 1, 1, 1))
    allowed = {padded[i : i + 8, j : j + 8].numpy().tobytes() for i in range(3) for j in range(3)}
    assert {moved.numpy().tobytes() for moved in shifted[:, 0]} == allowed


def test_flip_mirrors_about_half():
    image = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    image[..., 6] = 1
    flipped = shift(image.expand(1000, -1, -1, -1), torch.Generator().manual_seed(0), flip=True)
    mirrored = (flipped[:, 0].sum(1).argmax(1) < 4).float().mean()
    assert 0.4 < mirrored < 0.6


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((28, 28, 3), "shift"),
        ((32, 32, 3), "flip"),
        ((64, 64), "shift"),
        ((64, 64, 3), "timm"),
    ],
)
def test_auto_augmentation(make, shape, expected):
    assert make(rows=12, shape=shape, augment="auto").augment == expected
