"""Networks beside their twins: ratios of steps in turns, operations counted, kernels listed; the machine's numbers stored."""

import json

import pytest

import zoo
from zoo.cli import main
from zoo.errors import InputError
from zoo.kernels import plan
from zoo.kernels.calibration import calibrate
from zoo.layers import kernel_choice
from zoo.layers.kernel_choice import KernelChoice
from zoo.training.bench import bench, kernel_table, side_by_side
from zoo.training.options import Bench, Fit

VIT = ["--backbone", "vit", "--algebra", "quaternion"]
TINY = "vit(dim=8, depth=1, heads=1)"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    plan._measured.cache_clear()
    yield
    plan._measured.cache_clear()


def test_ratios_are_to_the_first_call(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("zoo.training.bench.time.perf_counter", lambda: clock[0])

    def lasts(seconds):
        return lambda: clock.__setitem__(0, clock[0] + seconds)

    found = side_by_side({"short": lasts(0.5), "long": lasts(1.25)}, 5)
    assert found["short"] == {"ms": 500, "ratio": 1, "low": 1, "high": 1}
    assert found["long"] == {"ms": 1250, "ratio": 2.5, "low": 2.5, "high": 2.5}


def test_a_network_beside_its_twin(capsys):
    assert main(["bench", "--backbone", TINY, "--algebra", "quaternion", "--rounds", "2", "--batch-size", "8"]) == 0
    printed = capsys.readouterr().out
    assert "batches of 8" in printed
    assert "GFLOP" in printed
    assert bench(Bench(backbone=TINY, algebra="quaternion", rounds=2, batch_size=5000))["batch_size"] == 1257  # all that are
    found = bench(Bench(backbone=TINY, algebra="quaternion", rounds=2, batch_size=8))
    assert [row["algebra"] for row in found["rows"]] == ["real", "quaternion"]
    real, own = found["rows"]
    net = zoo.backbone(TINY, "quaternion", in_channels=1, image_size=8, num_classes=10)
    assert own["parameters"] == zoo.count(net)["total"] < real["parameters"]
    # The block kernel does the operations of the real layer, and some more to assemble its matrices.
    assert real["flops"] < own["flops"] < 1.5 * real["flops"]


def test_the_kernels_of_a_network_are_those_that_its_layers_use(monkeypatch):
    rows = kernel_table(Fit(backbone=TINY, algebra="quaternion", batch_size=4))
    assert {row["features"]: row["layers"] for row in rows} == {"8 -> 24": 1, "8 -> 8": 1, "8 -> 32": 1, "32 -> 8": 1}
    assert {row["rows"] for row in rows} == {4 * 17}
    assert {row[mode]["kernel"] for row in rows for mode in ("training", "evaluation", "decoding")} == {"block"}
    monkeypatch.setattr(KernelChoice, "choose", lambda self, weight, count, training, like: "factored" if training else "thin")
    chosen = {row[mode]["kernel"] for row in kernel_table(Fit(backbone=TINY, algebra="quaternion")) for mode in ("training",)}
    assert chosen == {"factored"}


def test_info_prints_the_kernels(capsys):
    assert main(["info", "--backbone", TINY, "--algebra", "quaternion", "--kernels"]) == 0
    printed = capsys.readouterr().out
    assert "8 -> 24" in printed
    assert "zoo bench --calibrate" in printed


def test_a_run_uses_the_kernel_that_is_asked_for(tmp_path, monkeypatch):
    factored, called = kernel_choice.factored_linear, []
    monkeypatch.setattr(kernel_choice, "factored_linear", lambda *args: called.append(1) or factored(*args))
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


def test_a_wrong_kernel_is_refused():
    with pytest.raises(InputError, match="kernel='thin': use auto, block, factored or triton"):
        zoo.fit(backbone=TINY, algebra="quaternion", kernel="thin")


def test_the_machine_is_measured_and_stored_beside_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("zoo.kernels.calibration.calibrate", lambda: plan.Machine(speed=1.5e10))
    home = tmp_path / "home"
    home.mkdir()
    (home / "kernels.json").write_text('{"another": {"speed": 2e9}}')
    assert main(["bench", "--calibrate"]) == 0
    assert "15.0 G operations" in capsys.readouterr().out
    stored = json.loads((home / "kernels.json").read_text())
    assert stored["another"]["speed"] == 2e9
    assert plan.this_machine().speed == 1.5e10


def test_a_damaged_file_is_measured_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.kernels.calibration.calibrate", lambda: plan.Machine(speed=1.5e10))
    path = tmp_path / "home" / "kernels.json"
    path.parent.mkdir()
    path.write_text("{")
    assert main(["info", "--backbone", TINY, "--algebra", "quaternion", "--kernels"]) == 2
    assert main(["bench", "--calibrate"]) == 0
    assert plan.stored()[plan.name()].speed == 1.5e10


def test_what_is_measured_is_possible():
    machine = calibrate(repeats=2)
    assert all(value > 0 for value in machine)
    assert 1e8 < machine.speed < 1e13
    assert machine.call < 0.1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give --backbone and --algebra of a network, or --calibrate"),
        (["--backbone", "vit"], "give --backbone and --algebra of a network, or --calibrate"),
        (["--backbone", "vit", "--calibrate"], "--calibrate measures the machine, not a network"),
        ([*VIT, "--rounds", "1"], "rounds=1: use two or more"),
        (["--backbone", "vi", "--algebra", "quaternion"], "unknown backbone 'vi': did you mean 'vit'"),
        ([*VIT, "--kernel", "fast"], "kernel='fast': use auto, block, factored or triton"),
    ],
)
def test_wrong_options_are_one_line(given, message, capsys):
    assert main(["bench", *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
