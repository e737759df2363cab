"""The options of a run are checked before data are downloaded or read; `zoo bench` and `zoo info --kernels`."""

from pathlib import Path

import pytest
from zoo_experiments.options import Lottery, Sweep

import zoo
from tests.errors import raises
from zoo.cli import main
from zoo.data.images import ImageData
from zoo.kernels.factored import Factored
from zoo.registry import build_options
from zoo.training.bench import bench, kernel_table, side_by_side
from zoo.training.options import Bench, Fit, Optimizer, Prune, parse_interval
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
        ({"optimizer": "sdg"}, "unknown", ["sdg", "sgd"]),
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
        ({"matmul_precision": ""}, "unknown", ["matmul_precision"]),
        ({"quantize_aware": ""}, "unknown", ["quantize_aware", "int8, int4"]),
        ({"kernel": "fast"}, "unknown", ["kernel='fast'"]),
        ({"trainer": {"limit_train_batches": 1.5}}, "invalid", ["--trainer", "limit_train_batches"]),
        ({"trainer": {"precision": 17}}, "invalid", ["--trainer", "17"]),
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
    with raises("missing", "algebra"):
        build_options(Fit, {"backbone": "vit"})


def test_objects_paths_and_lists_are_accepted():
    given = {"optimizer": Optimizer(lr=0.5), "run_dir": Path("here"), "vectors": Path("glove.txt")}
    options = build_options(Fit, NAMES | given)
    assert (options.optimizer.lr, options.run_dir, options.vectors) == (0.5, "here", "glove.txt")
    assert build_options(Fit, NAMES | {"optimizer": {"betas": [0.9, 0.99]}}).optimizer.betas == (0.9, 0.99)


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
    assert resolve(build_options(Fit, NAMES | {"trainer": trainer, "schedule": schedule})).trainer == expected


TINY = "vit(dim=8, depth=1, heads=1)"


def test_ratios_are_to_the_first_call(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("zoo.training.bench.time.perf_counter", lambda: clock[0])

    def wait(seconds):
        return lambda: clock.__setitem__(0, clock[0] + seconds)

    times = side_by_side({"short": wait(0.5), "long": wait(1.25)}, 5)
    assert times["short"] == {"ms": 500, "ratio": 1, "low": 1, "high": 1}
    assert times["long"] == {"ms": 1250, "ratio": 2.5, "low": 2.5, "high": 2.5}


def test_a_network_and_its_real_twin(capsys):
    assert main(["bench", "--backbone", TINY, "--algebra", "quaternion", "--rounds", "2", "--batch-size", "8"]) == 0
    printed = capsys.readouterr().out
    assert "batches of 8" in printed
    assert "GFLOP" in printed
    assert bench(Bench(backbone=TINY, algebra="quaternion", rounds=2, batch_size=5000))["batch_size"] == 1257  # all rows
    result = bench(Bench(backbone=TINY, algebra="quaternion", rounds=2, batch_size=8))
    assert [row["algebra"] for row in result["rows"]] == ["real", "quaternion"]
    real, quaternion = result["rows"]
    net = zoo.backbone(TINY, "quaternion", in_channels=1, image_size=8, num_classes=10)
    assert quaternion["parameters"] == zoo.count(net)["total"] < real["parameters"]
    # The block kernel computes the real layer after assembling its matrix, which takes no products.
    assert real["flops"] <= quaternion["flops"] < 1.5 * real["flops"]


def test_the_kernels_of_a_network(monkeypatch, capsys):
    rows = kernel_table(Fit(backbone=TINY, algebra="quaternion", batch_size=4))
    assert {row["features"]: row["layers"] for row in rows} == {"8 -> 24": 1, "8 -> 8": 1, "8 -> 32": 1, "32 -> 8": 1}
    assert {row["rows"] for row in rows} == {4 * 17}
    assert {row[mode]["kernel"] for row in rows for mode in ("training", "evaluation", "decoding", "gpu")} == {"block"}
    assert {row["gpu"]["ratio"] for row in rows} == {1.0}
    monkeypatch.setattr(Factored, "cost", lambda self, work: 0.0 if work.training else 1.0)
    assert main(["info", "--backbone", TINY, "--algebra", "quaternion", "--kernels"]) == 0
    assert "8 -> 24" in capsys.readouterr().out
    rows = kernel_table(Fit(backbone=TINY, algebra="quaternion"))
    assert {row["training"]["kernel"] for row in rows} == {"factored"}


def test_a_run_uses_the_chosen_kernel(tmp_path, monkeypatch):
    apply, called = Factored.apply, []
    monkeypatch.setattr(Factored, "apply", lambda *args: called.append(1) or apply(*args))
    options = {"backbone": TINY, "algebra": "quaternion", "data": "digits", "batch_size": 512, "seed": 1}
    trainer = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False}
    losses = []
    for kernel in ("block", "factored"):
        assert not called
        summary = zoo.fit(**options, trainer=trainer, kernel=kernel, run_dir=str(tmp_path / kernel))
        losses.append(summary["metrics"]["loss"])
    assert called
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert "kernel: factored" in (tmp_path / "factored" / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("create", "name"),
    [
        (lambda: Fit("vit", "real", seed=-1), "seed"),
        (lambda: Fit("vit", "real", checkpoint_every="soon"), "checkpoint_every"),
        (lambda: Bench("vit", "real", rounds=1), "rounds"),
        (lambda: Prune(ratio=2.0), "ratio"),
        (lambda: Lottery("vit", "real", rounds=500), "rounds"),
        (lambda: Sweep(on="moon"), "moon"),
    ],
)
def test_options_are_checked_when_they_are_created(create, name):
    with raises("invalid", name):
        create()
