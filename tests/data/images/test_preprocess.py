import numpy as np
import pytest
import torch
from PIL import Image

from zoo.data import ImageInfo
from zoo.data.images.preprocess import normalise, preprocess, to_pixels
from zoo.errors import InputError


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


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_image_is_accepted(mode, channels):
    out = preprocess(Image.new(mode, (9, 7)), info(channels, 8))
    assert out.shape == (channels, 8, 8)
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_of_32_bits_are_refused_for_nothing_says_what_is_white(mode):
    with pytest.raises(InputError, match=rf"32 bits \(mode {mode}\).*8 or 16 bits"):
        preprocess(Image.new(mode, (9, 7)), info(1, 8))


def test_16_bit_grey_keeps_its_shades():
    deep = Image.fromarray(np.array([[0, 257 * 100], [257 * 200, 65535]], np.uint16))
    assert to_pixels(deep, 1, 2).flatten().tolist() == [0, 100, 200, 255]


def test_the_centre_is_cut_out_undistorted():
    wide = np.zeros((4, 12), np.uint8)
    wide[:, 4:8] = 200
    assert to_pixels(Image.fromarray(wide), 1, 4).unique().tolist() == [200]
