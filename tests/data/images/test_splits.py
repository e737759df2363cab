import numpy as np
import pytest

from zoo.data.images.splits import Split, checked, digest, hold_out, thin
from zoo.data.splits import stratified
from zoo.errors import InputError

LABELS = np.random.RandomState(1).choice(4, 203, p=[0.5, 0.3, 0.15, 0.05])


def split(labels=LABELS):
    return Split(np.arange(len(labels) * 4, dtype=np.int64).astype(np.uint8).reshape(-1, 2, 2), labels)


@pytest.mark.parametrize("count", [1, 20, 101, 202, 203])
def test_stratified_takes_every_class_in_its_share(count):
    chosen = stratified(LABELS, count)
    assert chosen.sum() == count
    shares = np.bincount(LABELS) * count / len(LABELS)
    assert np.all(np.abs(np.bincount(LABELS[chosen], minlength=4) - shares) < 1)


def test_stratified_is_fixed_and_its_seed_matters():
    assert np.flatnonzero(stratified(np.arange(40) % 2, 6)).tolist() == [2, 3, 23, 36, 37, 38]
    assert not np.array_equal(stratified(LABELS, 50, seed=0), stratified(LABELS, 50, seed=1))


def test_hold_out_cuts_without_loss():
    rows = Split(np.arange(203).astype(np.uint8).reshape(-1, 1, 1), LABELS)
    parts = hold_out({"train": rows}, "val", 0.2)
    seen = np.concatenate([parts["train"].images, parts["val"].images]).ravel()
    assert sorted(seen) == list(range(203))
    assert len(parts["val"]) == 41
    for part in parts.values():
        assert np.array_equal(part.labels, LABELS[part.images.ravel()])


def test_hold_out_keeps_a_split_that_is_there():
    parts = hold_out({"train": split(), "val": split(LABELS[:3])}, "val", 0.5)
    assert len(parts["train"]) == 203
    assert len(parts["val"]) == 3


def test_thin_takes_a_fraction_of_train_only_and_a_limit_of_all():
    splits = {"train": split(), "test": split()}
    assert {name: len(part) for name, part in thin(splits, 0.1).items()} == {"train": 20, "test": 203}
    assert {name: len(part) for name, part in thin(splits, 0.1, 15).items()} == {"train": 15, "test": 15}


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, 0.999])
def test_hold_out_refuses(share):
    with pytest.raises(InputError, match="val="):
        hold_out({"train": split(LABELS[:20])}, "val", share)


@pytest.mark.parametrize("options", [{"fraction": 0}, {"fraction": 1.1}, {"limit": 0}])
def test_thin_refuses(options):
    with pytest.raises(InputError, match=next(iter(options))):
        thin({"train": split()}, **options)


GOOD = np.zeros((3, 2, 2), np.uint8)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (GOOD, [0, 1], "3 images but labels"),
        (GOOD, [[0], [1], [0]], "3 images but labels"),
        (GOOD[:0], np.zeros(0, int), "no images"),
        (GOOD.astype(float), [0, 1, 0], "float64; they must be uint8"),
        (GOOD[:, 0], [0, 1, 0], r"shape \(3, 2\)"),
        (np.zeros((3, 2, 2, 4), np.uint8), [0, 1, 0], r"shape \(3, 2, 2, 4\)"),
        (GOOD, [0, 1, 2], r"label 2 is outside 0\.\.1"),
        (GOOD, [0, -1, 0], r"label -1 is outside 0\.\.1"),
        (GOOD, [0, 0.5, 0], "must be integers"),
        (GOOD, ["a", "b", "a"], "must be integers"),
    ],
)
def test_checked_names_place_and_fault(images, labels, message):
    with pytest.raises(InputError, match=f"here.npz, val split: .*{message}"):
        checked(Split(images, np.array(labels), "here.npz"), "val", 2)


def test_checked_accepts_any_integer_type():
    for kind in (np.uint8, np.int32, np.float64):
        assert checked(Split(GOOD, np.array([0, 1, 1], kind)), "val", 2).labels.dtype == np.int64


def test_digest_sees_pixels_labels_and_names():
    base = {"train": split()}
    same = {"train": Split(split().images.copy(), LABELS.copy())}
    pixel = {"train": Split(split().images ^ np.eye(203, dtype=np.uint8)[0][:, None, None], LABELS)}
    label = {"train": Split(split().images, np.roll(LABELS, 1))}
    digests = [digest(base, "ab"), digest(pixel, "ab"), digest(label, "ab"), digest(base, "ac")]
    assert digest(same, "ab") == digests[0]
    assert len(set(digests)) == 4
