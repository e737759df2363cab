"""One small run, looked at from every side; then what a run promises about repeating, stopping and going on."""

import csv
import importlib.metadata
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import zoo
from zoo.cli import main
from zoo.data import ready
from zoo.data.images.files import digits
from zoo.training.resume import newest

WORDS = ("fit", "--backbone", "vit(dim=32,depth=1)", "--algebra", "quaternion", "--data", "digits")
WORDS = (*WORDS, "--trainer.max_epochs", "2", "--trainer.accelerator", "cpu")


def call(*words: object) -> tuple[int, str, str]:
    """Call ``zoo`` and return its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder that the run of this module was started in, and what it printed."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, out, err = call(*WORDS)
    assert code == 0, err
    return folder, out, err


@pytest.fixture(scope="module")
def run(place) -> Path:
    (run,) = (place[0] / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def summary(run):
    return json.loads((run / "summary.json").read_text())


@pytest.fixture(scope="module")
def net(run):
    return zoo.load(run).net


@pytest.fixture(scope="module")
def test_batch():
    (batch,) = ready(digits(batch_size=1000)).test_dataloader()
    return batch


# --- the folder ---


def test_the_run_has_a_telling_name(run):
    assert run.name == "vit-depth1-dim32-quaternion-digits-seed0"


def test_the_folder_holds_what_was_promised_and_nothing_else(run):
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    events = {name for name in names if name.startswith("tensorboard/")}
    assert any("events.out.tfevents" in name for name in events)
    model = {f"model/{name}" for name in ("config.json", "model.safetensors", "manifest.json", "README.md")}
    checkpoints = {f"checkpoints/{name}" for name in ("epoch-0001.ckpt", "epoch-0002.ckpt", "run_id")}
    assert names - events == {"config.yaml", "metrics.csv", "summary.json", "checksums.json"} | checkpoints | model


def test_tensorboard_can_read_the_events(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run / "tensorboard")).Reload()
    assert {"train_loss", "val_loss", "val_accuracy", "test_accuracy"} <= set(found.Tags()["scalars"])
    assert len(found.Scalars("val_loss")) == 2


def test_the_metrics_of_every_epoch_are_in_the_table(run, summary):
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    by_epoch = [row for row in rows if row["val_loss"]]
    assert [row["epoch"] for row in by_epoch] == ["0", "1"]
    assert all(0 <= float(row["val_accuracy"]) <= 1 for row in by_epoch)
    assert float(by_epoch[1]["val_loss"]) < float(by_epoch[0]["val_loss"])
    assert len([row for row in rows if row["train_loss"]]) == 2
    (test,) = [row for row in rows if row["test_accuracy"]]
    assert float(test["test_accuracy"]) == pytest.approx(summary["metrics"]["accuracy"])


def test_the_configuration_is_whole(run):
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["backbone"] == "vit(depth=1, dim=32)"
    assert config["optimizer"] == {
        "name": "adamw",
        "lr": 0.002,
        "weight_decay": 0.05,
        "betas": None,
        "eps": None,
        "mup_base_width": None,
    }
    assert config["trainer"] == {"max_epochs": 2, "accelerator": "cpu"}
    assert "run_dir" not in config
    assert zoo.training.options.build(zoo.training.options.Fit, config).seed == 0


# --- summary.json ---

DESIGN = {"backbone", "algebra", "data", "task", "parameters", "metrics", "seconds", "seed", "epochs", "checkpoint"}
DESIGN |= {"versions", "device", "data_sha256"}


def test_the_keys_of_the_summary_are_a_contract(summary):
    assert set(summary) - DESIGN == {
        "scope",
        "init",
        "embedding",
        "vectors",
        "equal_size",
        "vectors_found",
        "run_dir",
        "resumed_from",
        "stayed_real",
        "teacher",
        "validation",
    }
    assert set(summary) >= DESIGN
    assert set(summary["parameters"]) == {"total", "embedding", "real_twin"}


def test_what_the_summary_says_of_the_run(summary, run):
    said = {key: summary[key] for key in ("backbone", "algebra", "data", "scope", "init", "seed", "epochs", "device", "task")}
    assert said == {
        "backbone": "vit(depth=1, dim=32)",
        "algebra": "quaternion",
        "data": "digits",
        "scope": "all",
        "init": "variance",
        "seed": 0,
        "epochs": 2,
        "device": "cpu",
        "task": "image_classification",
    }
    assert 0 < summary["seconds"] < 600
    assert Path(summary["run_dir"]).name == run.name


def test_the_metrics_of_the_summary_are_sane(summary):
    assert set(summary["metrics"]) == {"loss", "accuracy", "f1"}
    assert all(type(value) is float for value in summary["metrics"].values())
    assert 0.15 < summary["metrics"]["accuracy"] <= 1  # chance is 0.1
    assert 0 < summary["metrics"]["loss"] < 2.3  # chance is ln 10


def test_the_summary_names_versions_and_data(summary):
    assert (
        summary["versions"]["torch"] == torch.__version__.partition("+")[0] or summary["versions"]["torch"] == torch.__version__
    )
    for name in ("hypercomplex-zoo", "lightning", "torchmetrics", "timm"):
        assert summary["versions"][name] == importlib.metadata.version(name)
    assert summary["data_sha256"] == ready(digits()).info.sha256


def test_the_parameters_are_those_of_the_saved_network(summary, net):
    assert summary["parameters"]["total"] == sum(parameter.numel() for parameter in net.parameters())
    assert summary["parameters"]["embedding"] == 0


def test_the_real_twin_is_the_same_network_over_the_reals(summary):
    twin = zoo.backbone("vit(dim=32,depth=1)", "real", **ready(digits()).info.model_kwargs)
    assert summary["parameters"]["real_twin"] == sum(parameter.numel() for parameter in twin.parameters())
    assert summary["parameters"]["total"] < 0.4 * summary["parameters"]["real_twin"]


def test_the_best_checkpoint_is_the_model(summary, run, net):
    best = newest(run)[1]["zoo_state"]["best"]["file"]
    assert Path(summary["checkpoint"]) == Path(summary["run_dir"]) / "checkpoints" / best
    state = torch.load(run / "checkpoints" / best, weights_only=True)["state_dict"]
    assert all(torch.equal(state[f"net.{name}"], value) for name, value in net.state_dict().items())


# --- what it printed ---


def test_what_the_run_prints(place, run, summary):
    _, out, err = place
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "digits: 1,257 train, 360 test, 180 val images"
    assert lines[1].startswith("epoch 1/2  train_loss ")
    assert lines[2].startswith("epoch 2/2  train_loss ")
    assert f"{summary['parameters']['total']:,}" in out
    assert f"{summary['parameters']['real_twin']:,}" in out
    assert f"test accuracy   {summary['metrics']['accuracy']:.4f}".split()[-1] in out
    assert f"zoo test runs/{run.name}" in out
    assert f"zoo predict runs/{run.name}" in out
    assert f"zoo fit -c runs/{run.name}/config.yaml" in out


def test_the_printed_next_command_can_be_run(place, run, monkeypatch):
    monkeypatch.chdir(place[0])
    (line,) = [line for line in place[1].splitlines() if line.strip().startswith("zoo test")]
    code, out, _ = call(*line.partition("#")[0].split()[1:])
    assert code == 0
    assert "test accuracy" in out


# --- repeating ---


@pytest.fixture(scope="module")
def again(run, tmp_path_factory):
    """The same run from its own config.yaml, the same but for the seed, both in one folder."""
    folder = tmp_path_factory.mktemp("again")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in ((), (), ("--seed", "1")):
            assert call("fit", "-c", run / "config.yaml", *words)[0] == 0
    return folder / "runs"


def test_the_configuration_repeats_the_run_bit_for_bit(run, summary, again):
    same = again / run.name
    assert json.loads((same / "summary.json").read_text())["metrics"] == summary["metrics"]
    assert (same / "model" / "model.safetensors").read_bytes() == (run / "model" / "model.safetensors").read_bytes()
    assert (same / "config.yaml").read_text() == (run / "config.yaml").read_text()


def test_two_runs_of_one_name_get_two_folders(run, again):
    assert {path.name for path in again.iterdir()} == {run.name, f"{run.name}-2", run.name.replace("seed0", "seed1")}
    files = [again / name / "model" / "model.safetensors" for name in (run.name, f"{run.name}-2")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_another_seed_gives_other_weights_on_the_same_data(run, summary, again):
    other = again / run.name.replace("seed0", "seed1")
    said = json.loads((other / "summary.json").read_text())
    assert said["seed"] == 1
    assert said["data_sha256"] == summary["data_sha256"]
    assert said["metrics"] != summary["metrics"]
    assert (other / "model" / "model.safetensors").read_bytes() != (run / "model" / "model.safetensors").read_bytes()


def test_the_seed_decides_the_first_weights(options):
    """Steps too small for a float32 keep what the run started from."""
    files = []
    for seed in (0, 0, 1):
        made = zoo.fit(**options(seed=seed, optimizer={"lr": 1e-30, "weight_decay": 0.0}))
        files.append((Path(made["run_dir"]) / "model" / "model.safetensors").read_bytes())
    assert files[0] == files[1]
    assert files[0] != files[2]


# --- measuring again ---


def test_test_reproduces_the_summary(run, summary):
    code, out, err = call("test", run, "--json", "--trainer.accelerator", "cpu")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["accuracy"] == summary["metrics"]["accuracy"]
    assert found == pytest.approx(summary["metrics"], abs=1e-6)  # batches of another size


def test_test_as_text_and_on_the_model_folder(run, summary):
    code, out, _ = call("test", run / "model")
    assert code == 0
    assert f"test accuracy  {summary['metrics']['accuracy']:.4f}" in out.splitlines()


def test_validate_gives_the_best_epoch_of_the_table(run):
    code, out, _ = call("validate", run, "--json")
    assert code == 0
    with (run / "metrics.csv").open() as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert json.loads(out)["loss"] == pytest.approx(min(losses), abs=1e-6)


def test_evaluating_writes_nothing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert call("test", run)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert list(tmp_path.iterdir()) == []


# --- predicting ---


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Test images as PNG files."""
    folder = tmp_path_factory.mktemp("png")
    images = ready(digits()).splits["test"].images
    paths = []
    for i in range(12):
        paths.append(folder / f"digit {i}.png")
        Image.fromarray(np.asarray(images[i])[..., 0]).save(paths[-1])
    return paths


def test_predict_says_what_the_network_says_of_the_same_pixels(run, net, test_batch, pictures):
    code, out, err = call("predict", run, *pictures, "--json")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    with torch.no_grad():
        expected = net(test_batch[0][:12]).softmax(-1)
    assert [row["file"] for row in rows] == [str(path) for path in pictures]
    assert [row["label"] for row in rows] == [str(int(i)) for i in expected.argmax(-1)]
    assert [row["probability"] for row in rows] == pytest.approx(expected.amax(-1).tolist(), abs=1e-5)
    assert len({row["label"] for row in rows}) > 1


def test_predict_as_text(run, pictures):
    code, out, _ = call("predict", run, pictures[0])
    assert code == 0
    file, label, probability = out.rstrip("\n").split("\t")
    assert file == str(pictures[0])
    assert label in "0123456789"
    assert 0.1 <= float(probability) <= 1


def test_predict_reads_any_picture(run, tmp_path):
    Image.new("RGB", (31, 17), "white").save(tmp_path / "wide.jpg")
    Image.new("RGBA", (8, 9)).save(tmp_path / "tall.png")
    code, out, _ = call("predict", run, tmp_path / "wide.jpg", tmp_path / "tall.png")
    assert code == 0
    assert len(out.splitlines()) == 2


# --- other data ---


def test_data_without_a_test_split(options, archive, tmp_path, capsys):
    path = archive("train")
    code, out, err = call(
        "fit",
        "--backbone",
        "vit(dim=16,depth=1,heads=1)",
        "--algebra",
        "complex",
        "--data",
        f"npz(path='{path}')",
        "--trainer.max_epochs",
        "1",
        "--run-dir",
        tmp_path / "run",
    )
    assert (code, err) == (0, "")
    assert "no test split" in out
    assert "36 train, 4 val images (val held out of train)" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metrics"] == {}
    assert "(no test split)" in (tmp_path / "run" / "model" / "README.md").read_text()
    code, _, err = call("test", tmp_path / "run")
    assert code == 2
    assert "no test split" in err
    assert call("validate", tmp_path / "run")[0] == 0


def test_two_classes_report_the_area_under_the_curve(options, archive, tmp_path):
    path = archive("train", "val", "test")
    made = zoo.fit(**options(data=f"npz(path='{path}')", run_dir=str(tmp_path / "run"), trainer={"max_epochs": 4}))
    assert set(made["metrics"]) == {"loss", "accuracy", "f1", "auroc"}
    from sklearn.metrics import roc_auc_score

    from zoo.data.images.files import npz

    (images, labels) = next(iter(ready(npz(path)).test_dataloader()))
    with torch.no_grad():
        scores = zoo.load(tmp_path / "run").net(images).softmax(-1)[:, 1]
    assert made["metrics"]["auroc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-6)


def test_other_data_are_prepared_as_the_training_data_were(options, archive, tmp_path):
    """Not with their own mean and deviation, which a single picture does not have."""
    from zoo.data.images.files import npz

    made = zoo.fit(**options(data=f"npz(path='{archive('train')}')", run_dir="run"))
    path = archive("train", "test", name="dark.npz")
    with np.load(path) as arrays:
        np.savez(path, **{name: value // 3 if "images" in name else value for name, value in arrays.items()})
    code, out, _ = call("test", "run", "--data", f"npz(path='{path}')", "--json")
    assert code == 0
    info = zoo.checkpoint.read_config("run")["info"]
    split = ready(npz(path)).splits["test"]
    images = torch.from_numpy(split.images).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        logits = zoo.load(made["run_dir"]).net((images - info["mean"][0]) / info["std"][0])
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(split.labels))
    assert json.loads(out)["loss"] == pytest.approx(loss.item(), abs=1e-5)


# --- from Python ---


def test_python_returns_what_it_writes(options, tmp_path):
    made = zoo.fit(**options(run_dir=str(tmp_path / "run")))
    assert made == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert made["run_dir"] == str(tmp_path / "run")


def test_python_refuses_as_the_command_line_does(options, tmp_path):
    with pytest.raises(zoo.InputError, match="did you mean 'batch_size'"):
        zoo.fit(**options(bacth_size=3))
    with pytest.raises(zoo.InputError, match="did you mean 'quaternion'"):
        zoo.fit(**options(algebra="quaternio"))
    with pytest.raises(zoo.InputError, match=r"algebra"):
        zoo.fit(backbone="vit")
    with pytest.raises(zoo.InputError, match="max_epoch"):
        zoo.fit(**options(trainer={"max_epoch": 3}))
    assert list(tmp_path.iterdir()) == []


def test_every_option_reaches_the_run(options, tmp_path):
    changes = {"scope": "attention", "init": "polar", "seed": 3, "batch_size": 8, "run_dir": str(tmp_path / "run")}
    optimizer = {"name": "adamw", "lr": 0.01, "weight_decay": 0.0, "betas": [0.8, 0.9], "eps": 1e-6, "mup_base_width": 16}
    changes |= {"optimizer": optimizer}
    changes |= {"schedule": {"name": "linear", "warmup": 0.0, "floor": 0.1}, "label_smoothing": 0.1, "ema": 0.5, "keep": 2}
    made = zoo.fit(**options(**changes))
    assert (made["scope"], made["init"], made["seed"]) == ("attention", "polar", 3)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert {key: config[key] for key in changes if key != "run_dir"} == {k: v for k, v in changes.items() if k != "run_dir"}
    full = zoo.backbone("vit(dim=32,depth=1)", "quaternion", **ready(digits()).info.model_kwargs)
    assert made["parameters"]["total"] > zoo.count(full)["total"]
    assert zoo.count(zoo.load(tmp_path / "run").net)["total"] == made["parameters"]["total"]


@pytest.mark.parametrize("written", ["phm-4", "phm(n=4,shared=true)"])
def test_learned_rules_survive(options, tmp_path, written):
    made = zoo.fit(**options(algebra=written, run_dir=str(tmp_path / "run"), optimizer={"lr": 0.1}))
    state = torch.load(made["checkpoint"], weights_only=True)["state_dict"]
    net = zoo.load(tmp_path / "run").net
    saved = net.state_dict()
    assert {f"net.{name}" for name in saved} == {name for name in state if name.startswith("net.")}
    assert all(torch.equal(state[f"net.{name}"], value) for name, value in saved.items())
    rules = {id(p): p for name, p in net.named_parameters() if name.endswith("algebra.structure")}
    assert len(rules) == (1 if "shared" in written else 4)
    torch.manual_seed(0)
    fresh = zoo.algebra(written).structure
    assert not any(torch.equal(rule, fresh) for rule in rules.values())


# --- stopping and going on ---

STOPPER = '''
from pathlib import Path
from lightning.pytorch import Callback

class Stopper(Callback):
    """Press Ctrl-C once, in the second epoch."""

    def on_train_batch_end(self, trainer, *args):
        if trainer.current_epoch == 1 and not Path("pressed").exists():
            Path("pressed").touch()
            raise KeyboardInterrupt
'''


@pytest.fixture
def stopper(options, tmp_path_factory, monkeypatch):
    """A run of three epochs that is interrupted in the second: its arguments."""
    site = tmp_path_factory.mktemp("site")
    (site / "zoo_test_stopper.py").write_text(STOPPER)
    info = site / "zoo_test_stopper-1.0.dist-info"  # as pip leaves it: a configuration names classes of installed packages
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-test-stopper\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("zoo_test_stopper\n")
    monkeypatch.syspath_prepend(str(site))
    yield options(trainer={"max_epochs": 3}, run_dir="first")
    import sys

    sys.modules.pop("zoo_test_stopper", None)


def test_an_interrupted_run_can_go_on(stopper, tmp_path):
    (tmp_path / "stop.yaml").write_text(
        yaml.safe_dump({"trainer": {"callbacks": [{"class_path": "zoo_test_stopper.Stopper"}]}})
    )
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(stopper))
    code, out, err = call("fit", "-c", "base.yaml", "-c", "stop.yaml")
    assert code == 130
    assert "epoch 1/3" in out
    assert err == "zoo: stopped; what was trained up to epoch 0001 is kept, go on with: zoo fit --resume first\n"
    assert len(err.splitlines()) == 1
    assert not Path("first/summary.json").exists()
    assert not Path("first/model").exists()
    code, _, told = call("test", "first")
    assert code == 2
    assert "has not finished" in told

    hint = err.strip().partition("go on with: zoo ")[2].split()
    code, out, err = call(*hint)
    assert (code, err) == (0, "")
    assert "epoch 1/3" not in out
    assert "epoch 3/3" in out
    assert json.loads(Path("first/summary.json").read_text())["epochs"] == 3


def test_going_on_ends_where_the_whole_run_would_have(stopper, tmp_path):
    whole = zoo.fit(**(stopper | {"run_dir": "whole"}))
    stop = stopper["trainer"] | {"callbacks": [{"class_path": "zoo_test_stopper.Stopper"}]}
    with pytest.raises(KeyboardInterrupt, match="stopped; what was trained up to epoch 0001 is kept"):
        zoo.fit(**(stopper | {"trainer": stop}))
    resumed = zoo.fit(resume="first", trainer={"callbacks": None})
    assert resumed["metrics"] == whole["metrics"]
    files = [Path(name, "model", "model.safetensors").read_bytes() for name in ("whole", "first")]
    assert files[0] == files[1]


def test_a_run_stopped_in_its_first_epoch_says_so(stopper):
    from lightning.pytorch import Callback

    class Now(Callback):
        def on_train_batch_end(self, *args):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="no checkpoint was written yet"):
        zoo.fit(**(stopper | {"trainer": stopper["trainer"] | {"callbacks": [Now()]}}))


def test_a_checkpoint_of_another_network_is_refused(place, run):
    before = sorted(run.rglob("*"))
    with pytest.raises(zoo.InputError, match=r"has backbone=vit\(.*, not vit"):
        zoo.fit(resume=str(run), backbone="vit(dim=16,depth=1)", trainer={"max_epochs": 3})
    assert sorted(run.rglob("*")) == before
