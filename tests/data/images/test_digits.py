import numpy as np
import pytest
from sklearn.datasets import load_digits

from zoo.data import ready
from zoo.data.images import files as module
from zoo.data.images.files import digits as unopened_digits
from zoo.errors import InputError


def digits(*args, **options):
    return ready(unopened_digits(*args, **options))


def rows(split):
    """Return the places of a split's images in scikit-learn's order."""
    every = {image.tobytes(): i for i, image in enumerate(np.rint(load_digits().images * 255 / 16).astype(np.uint8))}
    return [every[image.tobytes()] for image in split.images[..., 0]]


def test_splits_are_whole_disjoint_and_stratified():
    data = digits()
    assert data.info.sizes == {"train": 1257, "val": 180, "test": 360}
    places = [row for split in data.splits.values() for row in rows(split)]
    assert len(set(places)) == len(places) == 1797
    shares = np.bincount(load_digits().target) / 1797
    for split in data.splits.values():
        assert np.abs(np.bincount(split.labels) - shares * len(split)).max() <= 2
        assert np.array_equal(split.labels, load_digits().target[rows(split)])


def test_splits_are_fixed():
    first, second = digits(seed=0), digits(seed=5, batch_size=3)
    for name in first.splits:
        assert np.array_equal(first.splits[name].images, second.splits[name].images)
    assert first.info == second.info
    assert first.info.sha256.startswith("412c2c70d427")
    assert sorted(rows(first.splits["test"]))[:3] == [3, 7, 13]


def test_other_content_is_refused(monkeypatch):
    monkeypatch.setattr(module, "DIGITS_SHA256", "0" * 64)
    with pytest.raises(InputError, match="other data"):
        digits()


def test_facts():
    info = digits().info
    assert (info.in_channels, info.image_size, info.num_classes) == (1, 8, 10)
    assert info.classes == tuple("0123456789")
    assert digits().augment == "shift"
