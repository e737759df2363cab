"""`zoo bench` and `zoo info --kernels`: timings relative to the real twin, operations, kernels."""

import pytest

import zoo
from zoo.cli import main
from zoo.kernels.factored import Factored
from zoo.training.bench import bench, kernel_table, side_by_side
from zoo.training.options import Bench, Fit

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
    # The block kernel computes the real layer after assembling its matrix.
    assert real["flops"] < quaternion["flops"] < 1.5 * real["flops"]


def test_the_kernels_of_a_network(monkeypatch, capsys):
    rows = kernel_table(Fit(backbone=TINY, algebra="quaternion", batch_size=4))
    assert {row["features"]: row["layers"] for row in rows} == {"8 -> 24": 1, "8 -> 8": 1, "8 -> 32": 1, "32 -> 8": 1}
    assert {row["rows"] for row in rows} == {4 * 17}
    assert {row[mode]["kernel"] for row in rows for mode in ("training", "evaluation", "decoding")} == {"block"}
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
