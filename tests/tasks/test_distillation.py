"""Distillation: the loss, the callback, and runs with a teacher."""

import shutil

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import zoo
from tests.errors import raises
from zoo.tasks import Classification, Distillation, LanguageModel, Optimizer
from zoo.tasks.distillation import distillation_loss, labels_only

VIT = "vit(dim=16, depth=1, heads=2)"
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "limit_train_batches": 3, "limit_val_batches": 2, "limit_test_batches": 1}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_loss_is_the_divergence_times_the_square_of_the_temperature(temperature):
    z, v = (torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    p, q = softmax(v.numpy() / temperature), softmax(z.numpy() / temperature)
    expected = temperature**2 * (p * np.log(p / q)).sum(-1)
    assert distillation_loss(z, v, temperature).item() == pytest.approx(expected.mean(), rel=1e-5)
    counted = torch.tensor([True, False, True, True, False])
    assert distillation_loss(z, v, temperature, counted).item() == pytest.approx(expected[counted.numpy()].mean(), rel=1e-5)


def fit(task, loader, **options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", **quiet, **options)
    trainer.fit(task, loader)
    return trainer


def test_a_network_learns_from_its_teacher_and_does_not_contain_it():
    torch.manual_seed(0)
    teacher, x = nn.Linear(4, 3), torch.randn(96, 4)
    before, labels = teacher.weight.detach().clone(), teacher(x).argmax(-1)
    loader = DataLoader(TensorDataset(x, torch.zeros(96, dtype=torch.int64)), batch_size=16)  # constant labels
    scores = {}
    for weight in (0.0, 1.0):
        torch.manual_seed(1)
        task = Classification(nn.Linear(4, 3), 3, optimizer=Optimizer(lr=0.1))
        names = {*task.state_dict()}
        callback = Distillation(teacher, temperature=2.0, weight=weight)
        trainer = fit(task, loader, max_epochs=10, callbacks=[callback])
        scores[weight] = float((task.net(x).argmax(-1) == labels).float().mean())
        assert task.distillation is labels_only
        assert {*task.state_dict()} == names
        assert sum(len(group["params"]) for group in trainer.optimizers[0].param_groups) == 2
        assert callback.state_dict() == {}
        assert teacher.weight.requires_grad, "a teacher can be trained later"
        assert teacher.weight.grad is None
    assert scores[1.0] > 0.9
    assert scores[1.0] > scores[0.0] + 0.2
    assert torch.equal(teacher.weight, before)


def test_an_interrupted_task_is_trained_without_its_teacher_afterwards():
    class Interrupt(pl.Callback):
        def on_train_batch_end(self, *_):
            raise KeyError("interrupted")

    task = Classification(nn.Linear(4, 3), 3)
    loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)), batch_size=4)
    with pytest.raises(KeyError, match="interrupted"):
        fit(task, loader, callbacks=[Distillation(nn.Linear(4, 3)), Interrupt()])
    assert task.distillation is labels_only


def test_a_network_is_not_its_own_teacher():
    task = Classification(nn.Linear(4, 3), 3)
    with raises("conflict", "deepcopy"):
        fit(task, DataLoader([]), callbacks=[Distillation(task.net)])


def test_validation_uses_only_the_labels():
    task, batch = Classification(nn.Linear(4, 3), 3), (torch.randn(8, 4), torch.zeros(8, dtype=torch.int64))
    plain = {mode: task.train(mode).step(batch).loss for mode in (True, False)}
    task.distillation = Distillation(nn.Linear(4, 3), weight=0.5)
    assert torch.equal(task.train(False).step(batch).loss, plain[False])
    assert not torch.equal(task.train(True).step(batch).loss, plain[True])


def test_a_language_model_ignores_padding():
    torch.manual_seed(0)
    sizes = {"vocab_size": 7, "max_length": 5}
    nets = [zoo.backbone("gpt(dim=16, depth=1, heads=2)", "real", **sizes) for _ in range(2)]
    task = LanguageModel(nets[0], 7)
    task.distillation = Distillation(nets[1].eval(), weight=1.0)
    tokens = torch.tensor([[3, 4, 5, 6, 1], [2, 3, 0, 0, 0]])
    targets = torch.tensor([[4, 5, 6, 1, 2], [3, 2, 0, 0, 0]])
    with torch.no_grad():
        z, v = nets[0](tokens), nets[1](tokens)
        kept = targets != 0
        expected = distillation_loss(z[kept], v[kept], 4.0)
        assert task.step((tokens, targets)).loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_memory_of_a_teacher_continues_and_is_saved():
    torch.manual_seed(0)
    sizes = {"vocab_size": 7, "max_length": 5}
    teacher = zoo.backbone("transformer_xl(dim=16, depth=1, heads=2)", "real", **sizes).eval()
    one, two = (Distillation(teacher) for _ in range(2))
    first, second = torch.tensor([[3, 4, 5]]), torch.tensor([[6, 1, 2]])
    loss, logits = torch.zeros(()), torch.randn(1, 3, 7)
    one(loss, logits, first)
    two.load_state_dict(one.state_dict())
    fresh = Distillation(teacher)(loss, logits, second)
    continued = one(loss, logits, second)
    assert torch.equal(continued, two(loss, logits, second))
    assert not torch.equal(continued, fresh)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Train a teacher and a student."""
    folder = tmp_path_factory.mktemp("runs")
    zoo.fit(backbone=VIT, algebra="real", run_dir=str(folder / "teacher"), trainer=TRAINER)
    options = {"teacher": str(folder / "teacher"), "distillation": {"temperature": 2.0, "weight": 0.5}}
    zoo.fit(backbone=VIT, algebra="quaternion", run_dir=str(folder / "run"), trainer=TRAINER, **options)
    return folder


def weights(run):
    return zoo.load(run).net.state_dict()


def test_a_run_stores_its_teacher_and_resumes_with_it(runs, tmp_path):
    config = yaml.safe_load((runs / "run/config.yaml").read_text())
    assert config["teacher"] == str(runs / "teacher")
    assert config["distillation"] == {"temperature": 2.0, "weight": 0.5}
    zoo.fit(backbone=VIT, algebra="quaternion", run_dir=str(tmp_path / "alone"), trainer=TRAINER)
    full, alone = weights(runs / "run"), weights(tmp_path / "alone")
    assert full.keys() == alone.keys()
    assert not torch.equal(full["head.weight"], alone["head.weight"])
    shutil.copytree(runs / "run", tmp_path / "run")
    for name in ("checkpoints/epoch-0002.ckpt", "summary.json"):
        (tmp_path / "run" / name).unlink()
    shutil.rmtree(tmp_path / "run/model")
    zoo.fit(resume=str(tmp_path / "run"))
    resumed = weights(tmp_path / "run")
    assert all(torch.equal(resumed[name], value) for name, value in full.items())
    (tmp_path / "run/summary.json").unlink()
    with raises("mismatch", "distillation.weight=0.5", "0.9"):
        zoo.fit(resume=str(tmp_path / "run"), distillation={"weight": 0.9})


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({"teacher": "nowhere"}, "unknown", "nowhere"),
        ({"distillation": {"weight": 0.5}}, "conflict", "--teacher"),
        ({"teacher": "vit-digits-real", "distillation": {"temperature": 0.0}}, "invalid", "distillation.temperature=0.0"),
        ({"teacher": "vit-digits-real", "data": "digits(size=16)"}, "mismatch", "image_size"),
        ({"teacher": "vit-digits-real", "backbone": "linear", "data": "hamilton"}, "unsupported", "Regression"),
    ],
)
def test_a_run_with_an_invalid_teacher(options, code, value, tmp_path):
    with raises(code, value):
        zoo.fit(**{"backbone": VIT, "algebra": "quaternion", "run_dir": str(tmp_path / "run"), "trainer": TRAINER} | options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("source", ["teacher", "init_from"])
def test_a_model_of_a_table_with_other_columns_is_refused(source, tmp_path):
    options = {"backbone": "mlp(dim=8)", "algebra": "real", "trainer": {"max_epochs": 1, "accelerator": "cpu"}}
    for name in ("ab", "ba"):
        rows = [f"{'pq'[i % 2]},{'pq'[i % 3 == 0]},{'xy'[i % 2]}" for i in range(60)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"{','.join(name)},y", *rows]))
    data = {name: f"table(path={tmp_path / name}.csv, target=y)" for name in ("ab", "ba")}
    zoo.fit(data=data["ab"], run_dir=str(tmp_path / "run"), **options)
    with raises("mismatch", "other columns"):
        zoo.fit(data=data["ba"], run_dir=str(tmp_path / "other"), **{source: str(tmp_path / "run")}, **options)
    zoo.fit(data=data["ab"], run_dir=str(tmp_path / "same"), **{source: str(tmp_path / "run")}, **options)
