"""The Trainer of a run: its arguments, objects from files, defaults, loggers and callbacks."""

import csv
import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, Trainer, loggers
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

import zoo
from tests.errors import raises
from zoo.data.images import digits
from zoo.errors import InputError
from zoo.tasks.supervised import ImageClassification
from zoo.training.checkpoints import Checkpoints, MetricsTable
from zoo.training.options import TRAINER_ARGUMENTS
from zoo.training.processes import Signals
from zoo.training.resume import STATE, read_checkpoint
from zoo.training.trainer import ProgressLines, check_trainer, lightning_errors, make_trainer, run_loggers


def trainer_of(settings, folder):
    """Build the Trainer of a run."""
    return make_trainer(settings, folder, Checkpoints(folder, {}, ("val_loss", "min"), Signals()))


CALLBACKS = "lightning.pytorch.callbacks"
STOP = f"{CALLBACKS}.EarlyStopping"


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"max_epoch": 3}, "unknown", ["max_epoch", "max_epochs"]),
        ({"max_epochs": "x"}, "invalid", ["trainer.max_epochs", "'x'", "a whole number"]),
        ({"callbacks": [{"class_path": "no.such.Class"}]}, "untrusted", ["trainer.callbacks", "no.such.Class"]),
        ({"callbacks": [{"class_path": f"{CALLBACKS}.Nothing"}]}, "unknown", ["trainer.callbacks", "Nothing"]),
        ({"callbacks": [3]}, "invalid", ["trainer.callbacks", "3"]),
        ({"callbacks": {"class_path": STOP, "init_args": {"monitr": "x"}}}, "invalid", ["EarlyStopping", "monitr"]),
        ({"logger": "WandbLogger"}, "untrusted", ["trainer.logger", "CSVLogger"]),
    ],
    ids=str,
)
def test_wrong_trainer_arguments_are_refused(values, code, named):
    with raises(code, "--trainer", *named):
        check_trainer(values)


EVIL = {"class_path": "zoo_test_beside.Evil"}


@pytest.mark.parametrize(
    "values",
    [
        {"callbacks": [EVIL]},
        {"strategy": {"class_path": "lightning.pytorch.strategies.DDPStrategy", "init_args": {"accelerator": EVIL}}},
    ],
    ids=str,
)
def test_a_configuration_cannot_import_modules_that_are_not_installed(tmp_path, monkeypatch, values):
    (tmp_path / "zoo_test_beside.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with raises("untrusted", "zoo_test_beside.Evil"):
        check_trainer(values)
    assert not (tmp_path / "ran").exists()


def test_objects_from_a_file_are_built(tmp_path):
    profiler = {"class_path": "lightning.pytorch.profilers.SimpleProfiler", "init_args": {"filename": "times"}}
    assert check_trainer({"profiler": profiler})["profiler"].filename == "times"
    timer = {"class_path": "lightning.pytorch.callbacks.Timer", "init_args": {"duration": "00:01:00:00"}}
    custom = Callback()
    built, same = check_trainer({"callbacks": [timer, custom]})["callbacks"]
    assert (built.time_remaining(), same) == (3600, custom)
    logger = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "x"}}
    assert isinstance(check_trainer({"logger": logger})["logger"], CSVLogger)
    assert check_trainer({}) == {}


def test_the_trainer_of_a_run(tmp_path):
    trainer = trainer_of({"max_epochs": 3, "accelerator": "cpu"}, tmp_path)
    assert [type(logger) for logger in trainer.loggers] == [MetricsTable, TensorBoardLogger]
    assert all(Path(logger.log_dir).is_relative_to(tmp_path) for logger in trainer.loggers)
    (checkpoints,) = (callback for callback in trainer.callbacks if isinstance(callback, Checkpoints))
    assert (checkpoints.monitor, checkpoints.enabled, trainer.checkpoint_callbacks) == ("val_loss", True, [])
    assert trainer.callbacks[0] is checkpoints  # before the callbacks that log
    assert trainer.max_epochs == 3
    assert any(isinstance(callback, ProgressLines) for callback in trainer.callbacks)
    assert list(tmp_path.iterdir()) == []


def test_trainer_arguments_are_those_of_lightning():
    assert list(inspect.signature(Trainer.__init__).parameters)[1:] == list(TRAINER_ARGUMENTS)


# --- runs ---


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.float32), ("64-true", torch.float64)])
def test_precision(options, precision, dtype):
    summary = zoo.fit(**options(trainer={"precision": precision}))
    assert 0 < summary["metrics"]["loss"] < 10
    state = torch.load(summary["checkpoint"], weights_only=True)["state_dict"]
    assert {value.dtype for name, value in state.items() if name.endswith("components")} == {dtype}
    zoo.load(summary["run_dir"])


def test_fast_dev_run_saves_nothing(options):
    summary = zoo.fit(**options(trainer={"fast_dev_run": True}))
    assert (summary["checkpoint"], summary["run_dir"]) == (None, None)
    assert "accuracy" in summary["metrics"]
    assert not Path("runs").exists()


class Memory(Logger):
    """A logger that stores everything."""

    def __init__(self) -> None:
        super().__init__()
        self.params: dict[str, object] = {}
        self.rows: list[dict[str, float]] = []

    name, version = "memory", ""

    def log_hyperparams(self, params, *args):
        self.params |= dict(params)

    def log_metrics(self, metrics, step=None):
        self.rows.append(metrics)


def test_a_custom_logger_logs_everything(options):
    memory = Memory()
    summary = zoo.fit(**options(trainer={"logger": memory, "log_every_n_steps": 1, "limit_train_batches": 4}))
    folder = Path(summary["run_dir"])
    assert (folder / "metrics.csv").is_file()
    assert any((folder / "tensorboard").iterdir())
    assert (memory.params["backbone"], memory.params["seed"], memory.params["batch_size"]) == (summary["backbone"], 0, 32)
    assert memory.params["optimizer"]["lr"] == 0.002
    assert any("test_accuracy" in row for row in memory.rows)


@pytest.mark.skipif(bool(find_spec("wandb")), reason="the package is installed")
def test_a_missing_package_is_named():
    with raises("invalid", "--trainer.logger", "wandb", "pip install"):
        check_trainer({"logger": {"class_path": "lightning.pytorch.loggers.WandbLogger"}})


def test_divergence_is_detected_within_the_logging_interval(options):
    steps = []

    class Diverge(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            steps.append(batch_idx)
            if batch_idx == 1:
                torch.nn.init.constant_(module.net.head.weight, float("nan"))

    settings = {"callbacks": [Diverge()], "limit_train_batches": 40, "log_every_n_steps": 4}
    with raises("invalid", "epoch 1", "--optimizer.lr"):
        zoo.fit(**options(trainer=settings))
    assert len(steps) == 4
    assert not Path("runs").exists()


def test_networks_are_compiled_in_place_and_the_matmul_precision_is_restored(options):
    compiled = []

    def record(self, *args, **kwargs):
        compiled.append((type(self).__name__, torch.get_float32_matmul_precision()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Module, "compile", record)
        summary = zoo.fit(**options(compile=True, matmul_precision="high"))
    assert len(compiled) == 1
    assert compiled[0][1] == "high"
    assert torch.get_float32_matmul_precision() == "highest"
    zoo.load(summary["run_dir"])


def test_a_callback_with_an_unknown_metric_is_refused(options):
    stopping = {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": "val_los"}}
    with raises("unsupported", "EarlyStopping", "val_los"):
        zoo.fit(**options(trainer={"callbacks": [stopping]}))
    assert not Path("runs").exists()


def test_wandb_writes_into_the_run_folder(tmp_path):
    logger = object.__new__(loggers.WandbLogger)  # the package is not installed
    logger._save_dir, logger._wandb_init = ".", {"dir": "."}
    run_loggers([logger], tmp_path, None)
    assert logger.save_dir == logger._wandb_init["dir"] == str(tmp_path)


# --- callbacks with checkpoints of their own ---


def finder(name, **options):
    """Describe a callback of Lightning as in a configuration file."""
    return {"class_path": f"{CALLBACKS}.{name}", "init_args": options}


LR = finder("LearningRateFinder", num_training_steps=16, min_lr=1e-5, max_lr=1e-2, early_stop_threshold=None)
SIZE = finder("BatchSizeFinder", max_trials=3, steps_per_trial=1)


def rates(folder):
    """Return the learning rates of a run by step."""
    rows = csv.DictReader((Path(folder) / "metrics.csv").read_text(encoding="utf-8").splitlines())
    return [float(value) for row in rows for name, value in row.items() if name.startswith("lr-") and value]


def test_finders_find_and_a_resumed_run_does_not_search_again(options, monkeypatch):
    trainer = {"limit_train_batches": 16, "callbacks": [LR, SIZE], "log_every_n_steps": 1}
    constant = {"name": "constant", "warmup": 0.0}
    found = zoo.fit(**options(trainer, schedule=constant, run_dir="found", checkpoint_every="never"))
    assert rates("found")[-1] != 0.002
    assert len(set(rates("found"))) == 1, "the schedule replaces the found rate"
    (checkpoint,) = (read_checkpoint(path) for path in Path("found/checkpoints").glob("epoch-0001.ckpt"))
    assert checkpoint[STATE]["batch_size"] == 8
    assert not list(Path("found").glob(".*ckpt")), "the checkpoints of the finders remain"
    for name in ("lr_finder._lr_find", "batch_size_finder._scale_batch_size"):
        monkeypatch.setattr(f"{CALLBACKS}.{name}", lambda *args, **options: pytest.fail("searched again"))
    again = zoo.fit(resume="found", trainer={"max_epochs": 2})
    assert again["epochs"] == 2
    assert set(rates("found")) == {rates("found")[0]}
    (checkpoint,) = (read_checkpoint(path) for path in Path("found/checkpoints").glob("epoch-0002.ckpt"))
    assert checkpoint[STATE]["batch_size"] == 8
    assert found["seed"] == again["seed"]


@pytest.mark.parametrize(
    ("trainer", "named"),
    [
        ({"callbacks": [f"{CALLBACKS}.BackboneFinetuning"]}, ["--trainer.callbacks", "BackboneFinetuning", "backbone"]),
        ({"accumulate_grad_batches": 0}, ["--trainer.accumulate_grad_batches=0"]),
        ({"precision": "transformer-engine"}, ["transformer_engine"]),
    ],
    ids=str,
)
def test_an_error_of_lightning_is_one_line(options, trainer, named):
    with pytest.raises(InputError) as caught:
        zoo.fit(**options(trainer))
    assert all(text in str(caught.value) for text in named), caught.value
    assert not Path("runs").exists()


def test_a_callback_that_loads_another_checkpoint_cannot_be_resumed(options):
    class Restart(Callback):
        def on_fit_start(self, trainer, task):
            trainer.save_checkpoint("other.ckpt")
            trainer._checkpoint_connector.restore("other.ckpt")

    zoo.fit(**options({"callbacks": [Restart()]}, run_dir="run"))
    with raises("conflict", "--trainer.callbacks"):
        zoo.fit(**options({"callbacks": [Restart()], "max_epochs": 2}, resume="run"))


def test_an_error_of_a_network_is_not_blamed_on_the_trainer(options):
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            raise RuntimeError("a bug of the network")

    with pytest.raises(RuntimeError, match="a bug of the network"), lightning_errors():
        Trainer(fast_dev_run=True, accelerator="cpu", logger=False, barebones=False).fit(
            ImageClassification(Broken(), num_classes=10), digits()
        )
