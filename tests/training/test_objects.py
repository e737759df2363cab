"""Objects in place of specs in `zoo.fit`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import zoo
from tests.errors import raises
from zoo.cli import main
from zoo.data import DataModule, ready
from zoo.data.images import digits
from zoo.data.tabular import from_arrays
from zoo.pruning import LotteryTicket
from zoo.registry import create
from zoo.tasks import Classification, ImageClassification, Optimizer, Regression, Schedule, Seq2Seq, base
from zoo.training.options import OBJECT
from zoo.training.resolve import Objects, stands_for_spec, take_objects

VIT = "vit(dim=32, depth=1)"
CPU = {"max_epochs": 1, "limit_train_batches": 2, "accelerator": "cpu"}


class Small(nn.Module):
    """A real network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x):
        return self.layers(x)


class CustomData(LightningDataModule):
    """A data module without info."""

    def _loader(self):
        draw = torch.Generator().manual_seed(0)
        rows = TensorDataset(torch.randn(20, 1, 8, 8, generator=draw), torch.arange(20) % 10)
        return DataLoader(rows, batch_size=5)

    train_dataloader = val_dataloader = test_dataloader = _loader


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def read(name: str):
    return json.loads(Path("run", name).read_text())


def test_an_algebra_is_used_without_a_copy(monkeypatch):
    algebra = zoo.algebra("quaternion")
    seen = []
    real = zoo.Algebra.for_layer
    monkeypatch.setattr(zoo.Algebra, "for_layer", lambda self: seen.append(self) or real(self))
    summary = zoo.fit(algebra=algebra, backbone="vit(dim=32, depth=1)", data="digits", run_dir="run", trainer=CPU)
    assert any(used is algebra for used in seen)
    assert summary["algebra"] == "quaternion"
    assert (Path("run") / "model").is_dir()


def test_an_algebra_without_a_spec_is_needed_to_load_the_model():
    algebra = zoo.algebra("quaternion")
    other = zoo.Algebra(-algebra.structure)
    summary = zoo.fit(algebra=other, backbone="vit(dim=32, depth=1)", data="digits", run_dir="run", trainer=CPU)
    assert summary["algebra"].endswith(OBJECT)
    assert summary["note"].startswith("given in Python: algebra; zoo.load needs them again")
    with raises("invalid", "algebra=THE_ALGEBRA"):
        zoo.load("run")
    assert zoo.load("run", algebra=other).evaluate() == pytest.approx(summary["metrics"], abs=1e-6)
    with raises("unsupported", "algebra: "):
        zoo.fit(**yaml.safe_load(Path("run/config.yaml").read_text()))


def test_a_changed_algebra_is_not_its_spec():
    algebra = zoo.algebra("quaternion")
    assert stands_for_spec(algebra)
    assert stands_for_spec(zoo.algebra("phm(n=4)"))
    algebra.structure = -algebra.structure
    assert not stands_for_spec(algebra)
    assert take_objects({"algebra": algebra})[1]["algebra"].endswith(OBJECT)


def set_product(spec="phm-4"):
    """Return a learned algebra whose product is set to that of the quaternions."""
    algebra = zoo.algebra(spec)
    with torch.no_grad():
        algebra.structure.copy_(zoo.algebra("quaternion").structure)
    return algebra


def products(net):
    return [module.structure for module in net.modules() if isinstance(module, zoo.Algebra) and module.n == 4]


def test_a_run_starts_from_the_learned_product_and_records_an_object():
    algebra = set_product("phm(n=4, shared=true)")
    given = algebra.structure.detach().clone()
    summary = zoo.fit(algebra=algebra, backbone=VIT, data="digits", run_dir="run", trainer=CPU, optimizer={"lr": 1e-9})
    assert summary["algebra"].endswith(OBJECT)
    assert summary["note"].startswith("given in Python: algebra")
    with raises("invalid", "run/model"):
        zoo.load("run", algebra=zoo.algebra("quaternion"))
    model = zoo.load("run", algebra=algebra)
    (structure, *_) = products(model.net)
    torch.testing.assert_close(structure.detach(), given, atol=1e-5, rtol=0)
    assert model.evaluate() == pytest.approx(summary["metrics"], abs=1e-6)


@pytest.mark.parametrize("spec", ["phm-4", "phm(n=4, rule=quaternion)", "phm(n=4, learned=false)", "phm(n=4, shared=true)"])
def test_a_learned_algebra_is_its_spec_until_it_is_set(spec):
    algebra = zoo.algebra(spec)
    assert stands_for_spec(algebra)
    assert stands_for_spec(algebra.double())
    with torch.no_grad():
        algebra.structure[0, 0, 0] += 1
    assert not stands_for_spec(algebra)


def test_a_network_and_a_data_module():
    net, data = Small(), digits(batch_size=16)
    first = net.layers[1].weight.clone()
    summary = zoo.fit(backbone=net, data=data, run_dir="run", trainer=CPU)
    assert not torch.equal(net.layers[1].weight, first)
    assert summary["task"] == "image_classification"
    assert summary["parameters"] == {"total": 650, "embedding": 0}
    assert summary["data"].endswith(f"ImageData {OBJECT}")
    assert summary["metrics"]["accuracy"] >= 0
    assert read("summary.json") == summary
    again = zoo.load("run", module=Small()).net.layers[1].weight
    assert torch.equal(again, net.layers[1].weight)


@pytest.mark.parametrize("name", ["backbone", "task"])
def test_a_loaded_network_is_trained_in_training_mode(name):
    """Also one in evaluation mode, in which Lightning would leave it; frozen parts of a network in training mode stay so."""
    seen = []

    class Modes(Callback):
        def on_train_batch_start(self, trainer, module, *_):
            seen.append((module.training, module.net.training, module.net.layers.training))

    net = Small().eval()
    given = {"task": Classification(net, num_classes=10).eval()} if name == "task" else {"backbone": net}
    for run in ("one", "two"):
        zoo.fit(**given, data=digits(), run_dir=run, trainer=CPU | {"callbacks": [Modes()], "limit_train_batches": 1})
        assert not any(module.training for module in net.modules()) or run == "two", "it is given back in evaluation mode"
        (given.get("task") or net).train()
        net.layers.eval()
    assert seen == [(True, True, True), (True, True, False)]


def test_a_callback_with_the_state_of_another_run_is_refused():
    """EarlyStopping would stop the second run by the scores of the first."""
    options = {"backbone": Small(), "data": digits()}
    stop = EarlyStopping("val_loss")
    for more in ({"fast_dev_run": True}, {}):
        zoo.fit(**options, run_dir="run", trainer=CPU | more | {"callbacks": [stop]})
    with raises("conflict", "EarlyStopping", "another run"):
        zoo.fit(**options, run_dir="other", trainer=CPU | {"callbacks": [stop]})
    assert not Path("other").exists()
    zoo.fit(resume="run", **options, trainer={"max_epochs": 2, "callbacks": [stop]})
    ticket = LotteryTicket()
    for run in ("dense", "sparse"):
        zoo.fit(**options, run_dir=run, trainer=CPU | {"callbacks": [ticket]})
        ticket.prune()


def test_a_factory_is_called_with_layers_and_info():
    def build(layers, *, image_size, num_classes):
        return nn.Sequential(nn.Flatten(), layers.linear(image_size**2, 8, role="ffn"), nn.Linear(8, num_classes))

    summary = zoo.fit(algebra="quaternion", backbone=build, data="digits", run_dir="run", trainer=CPU)
    assert summary["parameters"]["total"] < summary["parameters"]["real_twin"]
    assert summary["note"].startswith("given in Python: backbone")


def test_a_task_with_its_network_and_custom_data():
    task = Classification(Small(), num_classes=10, optimizer="adamw(lr=0.01)")
    summary = zoo.fit(task=task, data=CustomData(), run_dir="run", trainer=CPU)
    assert summary["metrics"].keys() >= {"loss", "accuracy"}
    assert summary["data_sha256"] is None
    model = zoo.load("run", module=Small())
    assert torch.equal(model.net.layers[1].weight, task.net.layers[1].weight)
    with raises("invalid", "model.net"):
        model.predict(torch.zeros(1, 1, 8, 8))
    with raises("invalid", "model.net"):
        zoo.load("run", module=Small(), task=Classification)


def test_a_task_measures_in_the_units_of_the_data_of_each_run():
    """Targets of tables are standardized in training; a task that is used again has the info of the new data."""
    task = Regression(nn.Linear(4, 1))
    for name, scale in (("one", 1.0), ("two", 100.0)):
        x, y = rows()
        summary = zoo.fit(task=task, data=(x, scale * (y + x[:, 1])), run_dir=name, trainer=CPU)
        spread = task.info.target_std**2
        assert spread > scale**2 / 4
        assert summary["metrics"]["mse"] == pytest.approx(spread * summary["metrics"]["loss"], rel=1e-4)


def test_the_model_of_a_task_object_has_its_metrics_and_decoding():
    data = ready(create("zoo.datasets", "glosses(task=seq2seq)"))
    net = zoo.backbone("transformer(dim=16, depth=1, heads=2)", "real", **data.info.model_kwargs)
    task = Seq2Seq(net, data.info.vocab_size, decoding={"beam": 3, "length": 5}, metrics=("MeanSquaredError",))
    summary = zoo.fit(task=task, data=data, run_dir="run", trainer=CPU | {"limit_val_batches": 1, "limit_test_batches": 1})
    assert summary["decoding"]["beam"] == 3
    model = zoo.load("run", module=net)
    assert model.task.decoding == task.decoding
    assert model.task.hparams["metrics"] == ["MeanSquaredError"]


def test_the_same_objects_reach_the_optimizer_from_everywhere(monkeypatch):
    """`zoo.fit`, the command line and a Trainer build the optimizer from equal values."""
    optimizer, schedule = Optimizer("sgd", lr=0.25, weight_decay=0.125), Schedule("linear", warmup=0.5, floor=0.25)
    seen, build, factor = [], base.make_optimizer, base.lr_factor
    monkeypatch.setattr(base, "make_optimizer", lambda net, options: seen.append(options) or build(net, options))
    monkeypatch.setattr(
        base, "lr_factor", lambda *args, schedule, **more: seen.append(schedule) or factor(*args, schedule=schedule, **more)
    )
    zoo.fit(backbone=Small(), data=digits(), optimizer=optimizer, schedule=schedule, run_dir="run", trainer=CPU)
    flags = ["--optimizer", "sgd(lr=0.25)", "--optimizer.weight-decay", "0.125", "--schedule.name", "linear"]
    flags += ["--schedule", "linear(floor=0.25)", "--schedule.warmup", "0.5", "--run-dir", "other"]
    assert main(["fit", "--backbone", VIT, "--algebra", "real", *flags, *(f"--trainer.{k}={v}" for k, v in CPU.items())]) == 0
    task = Classification(Small(), num_classes=10, optimizer=optimizer, schedule=schedule)
    Trainer(**CPU, logger=False, enable_checkpointing=False).fit(task, CustomData())
    assert {type(value) for value in seen} == {Optimizer, Schedule}
    assert all(value in (optimizer, schedule) for value in seen)
    assert sum(value == optimizer for value in seen) == 3


def test_a_task_class_and_a_data_module():
    class Calm(ImageClassification):
        """A custom task."""

    summary = zoo.fit(algebra="complex", backbone="vit(dim=16, depth=1)", data=digits(), task=Calm, run_dir="run", trainer=CPU)
    assert summary["task"].endswith(OBJECT)
    assert "accuracy" in summary["metrics"]
    assert isinstance(zoo.load("run", task=Calm).task, Calm)


MINE = Classification(Small(), num_classes=10)


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        ({"algebra": 3, "backbone": "vit"}, "invalid", ["algebra=3", "an Algebra"]),
        ({"algebra": "quaternion", "backbone": Small(), "data": "digits"}, "conflict", ["zoo.convert"]),
        ({"backbone": Small()}, "missing", ["data"]),
        ({"backbone": Small(), "data": "digits", "scope": "attention"}, "conflict", ["scope"]),
        ({"task": MINE, "data": digits(), "init": "glorot"}, "conflict", ["init"]),
        ({"algebra": "real", "backbone": "vit", "data": digits(), "batch_size": 3}, "conflict", ["batch_size"]),
        ({"task": MINE, "data": digits(), "optimizer": {"name": "sgd"}}, "conflict", ["optimizer"]),
        ({"task": MINE, "data": digits(), "backbone": "vit"}, "conflict", ["backbone"]),
        ({"backbone": Small(), "data": digits(), "folds": 3}, "invalid", ["folds"]),
        ({"algebra": "real", "backbone": "vit", "data": ([0], [0], [0])}, "invalid", ["tuple of 3", "(X, y)"]),
    ],
    ids=range(10),
)
def test_invalid_combinations(options, code, named):
    with raises(code, *named):
        zoo.fit(**options, trainer=CPU)
    assert list(Path().iterdir()) == []


def test_specs_are_not_objects():
    named = {"algebra": "real", "backbone": "vit", "data": None}
    assert take_objects(named) == (Objects(), named)


def rows():
    x = np.random.RandomState(0).randn(80, 4)
    return x, (x[:, 0] > 0).astype(int)


class Rows(DataModule):
    """A data module of a user, with a batch size of its own."""

    task = "vector_classification"

    def __init__(self):
        super().__init__(batch_size=10, seed=3)

    def load(self):
        data = ready(from_arrays(*rows()))
        self.parts = data.splits
        return data.info

    def dataset(self, split):
        return TensorDataset(*self.parts[split])


@pytest.mark.parametrize("data", [rows, Rows])
def test_a_run_on_data_in_python_is_resumed_with_them(data):
    options = {"backbone": "mlp(dim=8)", "algebra": "complex", "schedule": {"name": "constant", "warmup": 0.0}}
    options |= {"seed": 3, "batch_size": 16} if data is rows else {}
    for name, epochs in (("whole", 2), ("run", 1)):
        zoo.fit(data=data(), run_dir=name, trainer={"max_epochs": epochs, "accelerator": "cpu"}, **options)
    zoo.fit(resume="run", data=data(), trainer={"max_epochs": 2})
    whole, resumed = (zoo.load(name).net.state_dict() for name in ("whole", "run"))
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
