"""The options of a run are checked before data are downloaded or read."""

from pathlib import Path

import pytest

import zoo
from tests.errors import raises
from zoo.data.images import ImageData
from zoo.training.options import Fit, Optimizer, build, parse_interval
from zoo.training.resolve import resolve

NAMES = {"backbone": "vit", "algebra": "real"}


@pytest.fixture
def untouched(monkeypatch):
    """Fail if data are read."""

    def fail(*args):
        raise AssertionError("data were read")

    for name in ("prepare_data", "setup"):
        monkeypatch.setattr(ImageData, name, fail)


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        # types
        ({"seed": "1"}, "invalid", ["seed='1'", "a whole number"]),
        ({"optimizer": {"lr": "0.1"}}, "invalid", ["optimizer.lr='0.1'", "a number or none"]),
        ({"optimizer": "sgd"}, "invalid", ["optimizer='sgd'"]),
        ({"schedule": {"floor": None}}, "invalid", ["schedule.floor=None"]),
        # names
        ({"bacth_size": 3}, "unknown", ["bacth_size", "batch_size"]),
        ({"algebra": "quaternio"}, "unknown", ["'quaternion'"]),
        ({"algebra": zoo.algebra("quaternion"), "data": "nothing"}, "unknown", ["'nothing'"]),
        ({"backbone": "fasttext", "embedding": "tabel"}, "unknown", ["'tabel'", "'table'"]),
        ({"schedule": {"name": "cosin"}}, "unknown", ["schedule"]),
        # ranges
        ({"optimizer": {"lr": -1.0}}, "invalid", ["optimizer.lr=-1.0"]),
        ({"schedule": {"warmup": 2.0}}, "invalid", ["schedule.warmup=2.0"]),
        ({"label_smoothing": 2.0}, "invalid", ["label_smoothing=2.0"]),
        ({"keep": 0}, "invalid", ["keep=0"]),
        ({"ema": 1.5}, "invalid", ["ema=1.5"]),
        ({"matmul_precision": "low"}, "unknown", ["matmul_precision"]),
        ({"kernel": "fast"}, "unknown", ["kernel='fast'"]),
        ({"trainer": {"limit_train_batches": 1.5}}, "invalid", ["--trainer.limit_train_batches"]),
        ({"trainer": {"precision": 17}}, "invalid", ["--trainer.precision", "17"]),
        ({"trainer": {"max_epochs": -1}}, "invalid", ["--trainer.max_steps"]),
        # conflicts and missing values
        ({"decoding": {"beam": 2}}, "unknown", ["decoding"]),
        ({"task": "seq2seq"}, "mismatch", ["--task seq2seq"]),
        ({"run_dir": "taken"}, "conflict", ["'taken'"]),
        ({"resume": "nothing"}, "missing", ["'nothing'"]),
        ({"resume": "run", "run_dir": "other"}, "conflict", ["run_dir"]),
        ({"trainer": {"strategy": "ddp_spawn", "devices": 2}}, "unsupported", ["--trainer.strategy"]),
        ({"trainer": {"strategy": "deepspeed"}}, "invalid", ["DeepSpeed"]),
    ],
    ids=str,
)
def test_invalid_options_are_refused_before_data_are_read(options, untouched, change, code, named):
    Path("taken").mkdir()
    Path("taken/note").touch()
    with raises(code, *named):
        zoo.fit(**options(**change))
    assert [path.name for path in Path().iterdir()] == ["taken"]


def test_a_missing_option():
    with raises("invalid", "algebra"):
        build(Fit, {"backbone": "vit"})


def test_objects_paths_and_lists_are_accepted():
    given = {"optimizer": Optimizer(lr=0.5), "run_dir": Path("here"), "vectors": Path("glove.txt")}
    options = build(Fit, NAMES | given)
    assert (options.optimizer.lr, options.run_dir, options.vectors) == (0.5, "here", "glove.txt")
    assert build(Fit, NAMES | {"optimizer": {"betas": [0.9, 0.99]}}).optimizer.betas == (0.9, 0.99)


def test_intervals():
    texts = {"30s": (30.0, 0), "10m": (600.0, 0), "1.5h": (5400.0, 0), "1step": (None, 1), "500 steps": (None, 500)}
    assert {text: parse_interval(text) for text in (*texts, "never")} == texts | {"never": (None, 0)}


def test_the_recipe_fills_in_defaults(untouched):
    options = resolve(Fit("vit", "quaternion"))
    assert (options.data, options.optimizer.lr, options.batch_size, options.trainer) == (
        "digits",
        0.002,
        32,
        {"max_epochs": 50},
    )


@pytest.mark.parametrize(
    ("trainer", "schedule", "expected"),
    [
        ({"max_epochs": 1}, {}, {"max_epochs": 1}),
        ({"max_steps": 5000}, {}, {"max_steps": 5000}),
        ({"max_time": "00:01:00:00"}, {}, {"max_time": "00:01:00:00", "max_epochs": 50}),
        ({"max_epochs": -1}, {"name": "constant", "warmup": 0.0}, {"max_epochs": -1}),
    ],
    ids=str,
)
def test_the_end_of_a_run(trainer, schedule, expected):
    assert resolve(build(Fit, NAMES | {"trainer": trainer, "schedule": schedule})).trainer == expected
