"""Lightning's Trainer through our door: its own types, objects from files, and our defaults."""

import csv
import inspect
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch import Callback, Trainer, loggers
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

import zoo
from tests.errors import raises
from zoo.errors import InputError
from zoo.training.callbacks import ProgressLines
from zoo.training.checkpoints import Checkpoints
from zoo.training.metrics_table import MetricsTable
from zoo.training.options import TRAINER_ARGUMENTS, Fit, Schedule
from zoo.training.resolve import resolve
from zoo.training.resume import newest
from zoo.training.trainer import check_trainer, make_trainer, run_loggers

RUN = Fit("vit", "real")


def evaluate(run, split, data=None, **options):
    """Load a model and measure it."""
    return zoo.load(run).evaluate(data, split, **options)


def test_nothing_given_is_nothing_set():
    assert check_trainer({}) == {}


def test_plain_values_pass_through():
    given = {"max_epochs": 3, "precision": "bf16-mixed", "devices": [0], "limit_train_batches": 0.5, "deterministic": True}
    assert check_trainer(given) == given


LAMBDA = "lightning.pytorch.callbacks.LambdaCallback"
DDP = "lightning.pytorch.strategies.DDPStrategy"


def test_one_batch_stays_one_batch_where_typing_gives_the_other_union_of_its_cache(monkeypatch):
    class Other(Trainer):
        def __init__(self, limit_val_batches: float | int | None = None, limit_test_batches: float | int | None = None):
            raise AssertionError

    monkeypatch.setattr("zoo.training.trainer.Trainer", Other)
    made = check_trainer({"limit_val_batches": 1, "limit_test_batches": 1.0})
    assert [type(made[name]) for name in ("limit_val_batches", "limit_test_batches")] == [int, float]


@pytest.mark.parametrize(
    ("values", "needles"),
    [
        ({"max_epoch": 3}, ["max_epoch"]),
        ({"max_epochs": "x"}, ["trainer.max_epochs", "int"]),
        ({"max_epochs": 1.5}, ["trainer.max_epochs", "1.5"]),
        ({"precision": "17"}, ["trainer.precision", "bf16-mixed", "17"]),
        ({"callbacks": [{"class_path": "no.such.Class"}]}, ["trainer.callbacks", "no.such.Class"]),
        ({"callbacks": [{"class_path": "pathlib.Path"}]}, ["trainer.callbacks", "pathlib.Path"]),
        ({"callbacks": [3]}, ["trainer.callbacks", "3"]),
    ],
    ids=str,
)
def test_what_the_signature_does_not_accept(values, needles):
    with pytest.raises(InputError) as refusal:
        check_trainer(values)
    text = str(refusal.value)
    assert text.startswith("--trainer: ")
    assert [needle for needle in needles if needle not in text] == []
    assert "\n" not in text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"precision": 17},
            "--trainer: option \"trainer.precision\": Expected one of 64, 32, 16, 'transformer-engine', "
            "'transformer-engine-float16', '16-true', '16-mixed', 'bf16-true', 'bf16-mixed', '32-true', '64-true', '64', '32', "
            "'16', 'bf16', null. Got value: 17",
        ),
        ({"strategy": 3}, '--trainer: option "trainer.strategy": Expected one of str, Strategy. Got value: 3'),
        (
            {"logger": "WandbLogger"},
            "--trainer: trainer.logger: WandbLogger: a class is given with its module, "
            "such as lightning.pytorch.loggers.WandbLogger",
        ),
        (
            {"callbacks": [{"class_path": "EarlyStopping"}]},
            "--trainer: trainer.callbacks: EarlyStopping: a class is given with its module, "
            "such as lightning.pytorch.callbacks.EarlyStopping",
        ),
        (
            {"logger": "csv"},
            "--trainer: trainer.logger: csv: a class is given with its module, such as lightning.pytorch.loggers.CSVLogger",
        ),
    ],
)
def test_choices_and_short_names_are_said(values, said):
    with pytest.raises(InputError) as refusal:
        check_trainer(values)
    assert str(refusal.value) == said


@pytest.mark.parametrize(
    ("values", "needle"),
    [
        (
            {"callbacks": [{"class_path": LAMBDA, "init_args": {"on_fit_start": "os.system"}}]},
            "built-in function system> is code",
        ),
        ({"callbacks": [{"class_path": LAMBDA, "init_args": {"on_fit_start": "builtins.print"}}]}, "print> is code"),
        ({"callbacks": [{"class_path": "zoo_test_beside.Evil"}]}, "'zoo_test_beside.Evil' is of no installed package"),
        ({"plugins": ["zoo_test_beside.Evil"]}, "'zoo_test_beside.Evil' names a module of no installed package"),
        ({"plugins": "zoo_test_beside.Evil"}, "'zoo_test_beside.Evil' names a module of no installed package"),
        (
            {"strategy": {"class_path": DDP, "init_args": {"accelerator": "zoo_test_beside.Evil"}}},
            "'zoo_test_beside.Evil' names a module of no installed package",
        ),
        ({"callbacks": "zoo_test_beside.Evil"}, "'zoo_test_beside.Evil' is of no installed package"),
        ({"profiler": {"class_path": "zoo_test_beside.Evil"}}, "'zoo_test_beside.Evil' is of no installed package"),
        ({"plugins": [{"class_path": "zoo_test_beside.Evil"}]}, "'zoo_test_beside.Evil' is of no installed package"),
        (
            {
                "strategy": {
                    "class_path": "lightning.pytorch.strategies.DDPStrategy",
                    "init_args": {"plugin": {"class_path": "a.B"}},
                }
            },
            "'a.B'",
        ),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jsonargparse")
def test_what_a_configuration_may_not_ask_for(tmp_path, monkeypatch, values, needle):
    """A stranger's configuration, with a module beside it: nothing of it is imported or called."""
    (tmp_path / "zoo_test_beside.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=needle):
        check_trainer(values)
    assert not (tmp_path / "ran").exists()


def test_other_objects_from_a_file_are_built(tmp_path):
    profiler = {"class_path": "lightning.pytorch.profilers.SimpleProfiler", "init_args": {"filename": "times"}}
    assert check_trainer({"profiler": profiler})["profiler"].filename == "times"
    timer = {"class_path": "lightning.pytorch.callbacks.Timer", "init_args": {"duration": "00:01:00:00"}}
    assert check_trainer({"callbacks": [timer]})["callbacks"][0].time_remaining() == 3600


def test_callbacks_from_a_file_are_built():
    described = {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": "val_loss", "patience": 7}}
    (stopping,) = check_trainer({"callbacks": [described]})["callbacks"]
    assert isinstance(stopping, EarlyStopping)
    assert stopping.patience == 7


def test_callbacks_from_python_pass_through():
    mine = Callback()
    assert check_trainer({"callbacks": [mine]})["callbacks"] == [mine]


def test_a_trainer_for_a_run(tmp_path):
    trainer = make_trainer({"max_epochs": 3, "accelerator": "cpu"}, tmp_path, RUN)
    assert [type(logger) for logger in trainer.loggers] == [MetricsTable, TensorBoardLogger]
    assert all(Path(logger.log_dir).is_relative_to(tmp_path) for logger in trainer.loggers)
    (keeper,) = (callback for callback in trainer.callbacks if isinstance(callback, Checkpoints))
    assert (keeper.monitor, keeper.enabled, trainer.checkpoint_callbacks) == ("val_loss", True, [])
    assert trainer.callbacks[0] is keeper  # before everything that logs
    assert trainer.max_epochs == 3
    assert any(isinstance(callback, ProgressLines) for callback in trainer.callbacks)
    assert list(tmp_path.iterdir()) == []


def test_what_the_user_says_wins_over_our_defaults(tmp_path):
    settings = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "log_every_n_steps": 3}
    trainer = make_trainer(settings | {"enable_progress_bar": False}, tmp_path, RUN)
    assert trainer.loggers == []
    assert not any(isinstance(callback, Checkpoints) and callback.enabled for callback in trainer.callbacks)
    assert trainer.log_every_n_steps == 3
    assert not any(isinstance(callback, ProgressLines) for callback in trainer.callbacks)


@pytest.mark.parametrize("mine", [Callback(), ModelCheckpoint("mine")], ids=["callback", "checkpoint"])
def test_the_users_callbacks_come_beside_ours(tmp_path, mine):
    trainer = make_trainer({"accelerator": "cpu", "callbacks": [mine]}, tmp_path, RUN)
    assert mine in trainer.callbacks
    assert any(isinstance(callback, Checkpoints) and callback.enabled for callback in trainer.callbacks)


@pytest.mark.parametrize(
    "settings",
    [
        {"accelerator": "tpuu"},
        {"accelerator": "cpu", "devices": 0},
        {"strategy": "nope"},
        {"max_epochs": -3},
        {"fast_dev_run": -1},
        {"accelerator": "cpu", "limit_train_batches": 1.5},
    ],
    ids=str,
)
def test_what_lightning_refuses_is_one_line(settings, tmp_path):
    with pytest.raises(InputError, match="--trainer: ") as refusal:
        make_trainer(settings, tmp_path, RUN)
    assert len(str(refusal.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_checked_arguments_are_those_of_the_flags():
    assert list(inspect.signature(Trainer.__init__).parameters)[1:] == list(TRAINER_ARGUMENTS)


# --- through whole runs ---


def test_a_callback_from_yaml_acts_in_the_run(options):
    stop = {"class_path": "lightning.pytorch.callbacks.EarlyStopping"}
    stop["init_args"] = {"monitor": "val_loss", "patience": 1, "min_delta": 100.0}
    made = zoo.fit(**options(trainer={"max_epochs": 6, "callbacks": [stop]}))
    assert made["epochs"] == 2


def test_max_steps_ends_a_run(options):
    made = zoo.fit(**options(trainer={"max_epochs": 50, "max_steps": 4}))
    assert newest(Path(made["run_dir"]))[1]["global_step"] == 4
    assert made["epochs"] == 2


def test_steps_alone_are_not_cut_short_by_the_recipe():
    assert resolve(Fit("vit", "real", trainer={"max_steps": 5000})).trainer == {"max_steps": 5000}


def test_a_time_limit_alone_leaves_the_schedule_its_end(options):
    made = zoo.fit(**options(trainer={"max_time": "00:00:00:01", "max_epochs": None}))
    assert made["epochs"] >= 1
    limited = resolve(Fit("vit", "real", trainer={"max_time": "00:01:00:00"})).trainer
    assert limited["max_epochs"] > 1
    assert limited["max_time"] == "00:01:00:00"


@pytest.mark.parametrize("limit", ["max_epochs", "max_steps"])
def test_no_training_at_all_is_refused(limit):
    with pytest.raises(zoo.InputError, match="begin at 1"):
        resolve(Fit("vit", "real", trainer={limit: 0}))


def test_a_schedule_without_an_end_is_refused():
    with pytest.raises(zoo.InputError, match="needs an end"):
        resolve(Fit("vit", "real", trainer={"max_epochs": -1}))
    forever = Fit("vit", "real", schedule=Schedule("constant", 0.0), trainer={"max_epochs": -1})
    assert resolve(forever).trainer == {"max_epochs": -1}


def test_a_run_that_diverges_ends_with_one_line(options):
    with pytest.raises(zoo.InputError, match=r"diverged in epoch \d+: .* --optimizer.lr"):
        zoo.fit(**options(optimizer={"name": "sgd", "lr": 1e30}, trainer={"max_epochs": 3}))


def test_the_recipe_decides_the_epochs_if_nobody_else_does():
    assert resolve(Fit("vit", "real")).trainer["max_epochs"] > 1
    assert resolve(Fit("vit", "real", trainer={"max_epochs": 1})).trainer == {"max_epochs": 1}


def test_an_interrupted_measurement_is_an_interruption(options):
    made = zoo.fit(**options())

    class Now(Callback):
        def on_test_batch_end(self, *args):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(made["run_dir"], "test", trainer={"callbacks": [Now()]})


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.float32), ("64-true", torch.float64)])
def test_precision(options, precision, dtype):
    made = zoo.fit(**options(trainer={"precision": precision}))
    assert 0 < made["metrics"]["loss"] < 10
    state = torch.load(made["checkpoint"], weights_only=True)["state_dict"]
    assert {value.dtype for name, value in state.items() if name.endswith("components")} == {dtype}
    zoo.load(made["run_dir"])


def test_a_run_without_checkpoints_keeps_its_last_weights(options):
    made = zoo.fit(**options(trainer={"enable_checkpointing": False}))
    assert made["checkpoint"] is None
    assert not (Path(made["run_dir"]) / "checkpoints").exists()
    assert zoo.count(zoo.load(made["run_dir"]).net)["total"] == made["parameters"]["total"]


def test_fast_dev_run_saves_no_run(options):
    made = zoo.fit(**options(trainer={"fast_dev_run": True}))
    assert (made["checkpoint"], made["run_dir"]) == (None, None)
    assert "accuracy" in made["metrics"]
    assert not Path("runs").exists()


class Memory(Logger):
    """A logger of the user's, which keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.params: dict[str, object] = {}
        self.rows: list[dict[str, float]] = []

    name, version = "memory", ""

    def log_hyperparams(self, params, *args):
        self.params |= dict(params)

    def log_metrics(self, metrics, step=None):
        self.rows.append(metrics)


def test_a_users_logger_comes_beside_ours_and_hears_everything(options):
    memory = Memory()
    made = zoo.fit(**options(trainer={"logger": memory, "log_every_n_steps": 1, "limit_train_batches": 4}))
    folder = Path(made["run_dir"])
    assert (folder / "metrics.csv").is_file()
    assert any((folder / "tensorboard").iterdir())
    assert (memory.params["backbone"], memory.params["seed"], memory.params["batch_size"]) == (made["backbone"], 0, 32)
    assert memory.params["optimizer"]["lr"] == 0.002
    assert any("test_accuracy" in row for row in memory.rows)


def test_the_learning_rate_of_every_step_is_logged(options):
    made = zoo.fit(**options(trainer={"log_every_n_steps": 1, "limit_train_batches": 4}, schedule={"name": "constant"}))
    with (Path(made["run_dir"]) / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    (name, *_) = (name for name in rows[0] if name.startswith("lr"))
    rates = [float(row[name]) for row in rows if row[name]]
    assert len(rates) == 4
    assert rates[-1] == 0.002


def test_tensorboard_has_the_hyperparameters(options):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = zoo.fit(**options())
    found = EventAccumulator(str(Path(made["run_dir"]) / "tensorboard")).Reload()
    (tag,) = found.SummaryMetadata("_hparams_/session_start_info") and ["_hparams_/session_start_info"]
    assert b"quaternion" in found.SummaryMetadata(tag).plugin_data.content
    written = yaml.safe_load((Path(made["run_dir"]) / "tensorboard" / "hparams.yaml").read_text())
    assert (written["algebra"], written["metrics"]) == ("quaternion", [])


def test_loggers_from_a_file():
    described = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "x"}}
    assert isinstance(check_trainer({"logger": described})["logger"], CSVLogger)
    assert [type(logger) for logger in check_trainer({"logger": [described]})["logger"]] == [CSVLogger]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "comet_ml"])
def test_a_package_that_is_missing_is_named_in_one_line(name, monkeypatch):
    path = {"wandb": "WandbLogger", "mlflow": "MLFlowLogger", "comet_ml": "CometLogger"}[name]
    if find_spec(name):
        pytest.skip(f"{name} is installed")
    refused = rf"--trainer: trainer\.logger: .*{path}: it needs a package that is not installed: pip install '\w.*'$"
    with pytest.raises(InputError, match=refused):
        check_trainer({"logger": {"class_path": f"lightning.pytorch.loggers.{path}"}})


def test_python_keeps_its_warnings_and_log_levels(options):
    before = list(warnings.filters), logging.getLogger("lightning.pytorch").level
    zoo.fit(**options())
    assert (list(warnings.filters), logging.getLogger("lightning.pytorch").level) == before


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_divergence_is_seen_within_the_logging_interval(options, value):
    steps = []

    class Diverge(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            steps.append(batch_idx)
            if batch_idx == 1:
                torch.nn.init.constant_(module.net.head.weight, value)

    settings = {"callbacks": [Diverge()], "limit_train_batches": 40, "log_every_n_steps": 4}
    with pytest.raises(zoo.InputError, match=r"diverged in epoch 1: the loss is not finite"):
        zoo.fit(**options(trainer=settings))
    assert len(steps) == 4
    assert not Path("runs").exists()


def test_compiled_networks_have_the_names_of_others_and_the_precision_of_products_is_put_back(options):
    compiled = []

    def record(self, *args, **kwargs):
        compiled.append((type(self).__name__, torch.get_float32_matmul_precision()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Module, "compile", record)
        made = zoo.fit(**options(compile=True, matmul_precision="high"))
    assert len(compiled) == 1
    assert compiled[0][1] == "high"
    assert torch.get_float32_matmul_precision() == "highest"
    zoo.load(made["run_dir"])
    with pytest.raises(InputError, match="matmul_precision=low: use highest, high or medium"):
        zoo.fit(**options(matmul_precision="low"))


def test_a_network_is_compiled_in_place(options):
    net = torch.nn.Sequential(torch.nn.Linear(3, 3))
    names = list(net.state_dict())
    net.compile(backend="eager")
    assert list(net.state_dict()) == names
    assert torch.equal(net(torch.ones(1, 3)), net[0](torch.ones(1, 3)))


def test_a_callback_that_watches_an_unknown_metric_is_one_line_and_leaves_no_folder(options):
    stopping = {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": "val_los"}}
    with raises("unknown", "val_los"):
        zoo.fit(**options(trainer={"callbacks": [stopping]}))
    assert not Path("runs").exists()


def test_wandb_writes_into_the_run_folder(tmp_path):
    logger = object.__new__(loggers.WandbLogger)  # the package is not installed
    logger._save_dir, logger._wandb_init = ".", {"dir": "."}
    run_loggers([logger], tmp_path, None)
    assert logger.save_dir == logger._wandb_init["dir"] == str(tmp_path)
