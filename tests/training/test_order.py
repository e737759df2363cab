"""What can be checked without data and without building the network is checked before data are fetched, read or tokenised."""

from pathlib import Path

import pytest

import zoo
from zoo.data.images import ImageData
from zoo.errors import InputError
from zoo.training.options import Fit
from zoo.training.resolve import resolve


@pytest.fixture
def untouched(monkeypatch):
    """Let any attempt to read data fail."""

    def touched(*args):
        raise AssertionError("data were touched")

    for name in ("prepare_data", "setup"):
        monkeypatch.setattr(ImageData, name, touched)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optimizer": {"name": "adamv"}}, "unknown optimizer 'adamv'"),
        ({"optimizer": {"lr": -1.0}}, r"optimizer\.lr"),
        ({"schedule": {"name": "cosin"}}, "schedule"),
        ({"schedule": {"warmup": 2.0}}, r"warmup=2\.0"),
        ({"decoding": {"beam": 2}}, "decoding"),
        ({"label_smoothing": 2.0}, r"label_smoothing=2\.0"),
        ({"metrics": ["NoSuchMetric"]}, "NoSuchMetric"),
        ({"run_dir": "taken"}, "is not empty"),
        ({"resume": "nothing"}, "'nothing' is no run to resume"),
        ({"checkpoint_every": "soon"}, "checkpoint_every=soon"),
        ({"trainer": {"max_epoch": 3}}, "max_epoch"),
        ({"trainer": {"limit_train_batches": 1.5}}, "--trainer"),
        ({"trainer": {"accelerator": "gpuu"}}, "--trainer"),
        ({"keep": 0}, "keep=0"),
        ({"ema": 2.0}, r"ema=2\.0"),
        ({"matmul_precision": "low"}, "matmul_precision=low"),
        ({"task": "seq2seq"}, "--task seq2seq"),
        ({"vectors": "nothing.txt"}, "nothing.txt"),
    ],
    ids=str,
)
def test_it_is_refused_before_data_are_touched(options, untouched, change, said):
    Path("taken").mkdir()
    Path("taken/note").touch()
    with pytest.raises(InputError, match=said):
        zoo.fit(**options(**change))
    assert not Path("runs").exists()


def test_the_effective_configuration_needs_no_data(untouched):
    made = resolve(Fit("vit", "quaternion"))
    assert (made.data, made.optimizer.lr, made.batch_size, made.trainer) == ("digits", 0.002, 32, {"max_epochs": 50})
