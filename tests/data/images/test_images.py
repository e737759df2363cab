"""Labeled images: splits, preprocessing, statistics and augmentation."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.errors import raises
from zoo.data import ImageData, ImageInfo, Split, ready
from zoo.data.images import shift
from zoo.data.pixels import EncodedImages, checked, hold_out, image_digest, normalize, preprocess, to_pixels
from zoo.data.splits import stratified

LABELS = np.random.RandomState(1).choice(4, 203, p=[0.5, 0.3, 0.15, 0.05])


def split(labels=LABELS):
    return Split(np.arange(len(labels) * 4, dtype=np.int64).astype(np.uint8).reshape(-1, 2, 2), labels)


@pytest.mark.parametrize("count", [1, 101, 203])
def test_stratified_keeps_proportions(count):
    chosen = stratified(LABELS, count)
    assert chosen.sum() == count
    shares = np.bincount(LABELS) * count / len(LABELS)
    assert np.all(np.abs(np.bincount(LABELS[chosen], minlength=4) - shares) < 1)


def test_stratified_is_fixed():
    assert np.flatnonzero(stratified(np.arange(40) % 2, 6)).tolist() == [2, 3, 23, 36, 37, 38]


def test_hold_out_partitions_the_rows():
    rows = Split(np.arange(203).astype(np.uint8).reshape(-1, 1, 1), LABELS)
    parts = hold_out({"train": rows}, "val", 0.2)
    seen = np.concatenate([parts["train"].images, parts["val"].images]).ravel()
    assert sorted(seen) == list(range(203))
    assert len(parts["val"]) == 41
    for part in parts.values():
        assert np.array_equal(part.labels, LABELS[part.images.ravel()])


def test_hold_out_of_all_rows_raises():
    with raises("data", "val="):
        hold_out({"train": split(LABELS[:20])}, "val", 0.999)


GOOD = np.zeros((3, 2, 2), np.uint8)


@pytest.mark.parametrize(
    ("images", "labels", "value"),
    [
        (GOOD, [0, 1], "3 images"),
        (GOOD.astype(float), [0, 1, 0], "float64"),
        (GOOD[:, 0], [0, 1, 0], "shape (3, 2)"),
        (GOOD, [0, -1, 0], "label -1 is outside"),
        (GOOD, ["a", "b", "a"], "<U1"),
    ],
)
def test_invalid_split_raises(images, labels, value):
    with raises("data", "here.npz, val split: ", value):
        checked(Split(images, np.array(labels), "here.npz"), "val", 2)


def test_digest_sees_pixels_labels_and_names():
    base = {"train": split()}
    same = {"train": Split(split().images.copy(), LABELS.copy())}
    pixel = {"train": Split(split().images ^ np.eye(203, dtype=np.uint8)[0][:, None, None], LABELS)}
    label = {"train": Split(split().images, np.roll(LABELS, 1))}
    digests = [image_digest(base, "ab"), image_digest(pixel, "ab"), image_digest(label, "ab"), image_digest(base, "ac")]
    assert image_digest(same, "ab") == digests[0]
    assert len(set(digests)) == 4


def info(channels, size):
    return ImageInfo(
        in_channels=channels,
        image_size=size,
        classes=("a",),
        mean=(0.2, 0.4, 0.6)[:channels],
        std=(0.1, 0.2, 0.3)[:channels],
        sizes={},
        sha256="",
    )


def test_normalize_is_its_formula():
    pixels = torch.arange(256).repeat(3, 1).view(3, 16, 16).to(torch.uint8)
    mean, std = (0.2, 0.4, 0.6), (0.1, 0.2, 0.3)
    expected = (pixels.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(normalize(pixels, mean, std), expected.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_image_is_accepted(mode, channels):
    out = preprocess(Image.new(mode, (9, 7)), info(channels, 8))
    assert out.shape == (channels, 8, 8)
    assert torch.isfinite(out).all()


def test_16_bit_grey_keeps_its_shades():
    deep = Image.fromarray(np.array([[0, 257 * 100], [257 * 200, 65535]], np.uint16))
    assert to_pixels(deep, 1, 2).flatten().tolist() == [0, 100, 200, 255]


def test_centre_crop_is_not_distorted():
    wide = np.zeros((4, 12), np.uint8)
    wide[:, 4:8] = 200
    assert to_pixels(Image.fromarray(wide), 1, 4).unique().tolist() == [200]


@pytest.fixture
def make(pixels):
    def build(rows=40, shape=(4, 4), test=7, **options):
        splits = {"train": Split(pixels(rows, *shape), np.arange(rows) % 2)}
        if test:
            splits["test"] = Split(pixels(test, *shape, seed=1), np.arange(test) % 2)
        return ready(ImageData(splits, ["a", "b"], **{"batch_size": 8, "augment": "none", **options}))

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
        return ready(ImageData(splits, ["a", "b"])).info

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
    lazy, eager = (ready(ImageData({"train": Split(i, labels)}, "ab", size=8, augment="flip")) for i in (encoded, raw))
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
