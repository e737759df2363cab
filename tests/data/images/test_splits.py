import numpy as np
import pytest
import torch
from PIL import Image

from tests.errors import raises
from zoo.data import ImageInfo
from zoo.data.pixels import Split, checked, hold_out, image_digest, normalise, preprocess, to_pixels
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


def test_normalise_is_its_formula():
    pixels = torch.arange(256).repeat(3, 1).view(3, 16, 16).to(torch.uint8)
    mean, std = (0.2, 0.4, 0.6), (0.1, 0.2, 0.3)
    expected = (pixels.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(normalise(pixels, mean, std), expected.float(), atol=1e-5, rtol=1e-5)


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
