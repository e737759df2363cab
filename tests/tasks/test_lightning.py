"""Tasks by their specs, and in Lightning: plain data loaders, loggers and checkpoints; metrics by name; dtypes."""

import math
from inspect import signature
from types import FunctionType, SimpleNamespace
from typing import Annotated

import numpy as np
import pytest
import torch
import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.functional.classification import multiclass_auroc

import zoo
from tests.errors import raises
from zoo import registry
from zoo.tasks import (
    AnswerRanking,
    Classification,
    ImageClassification,
    LanguageModel,
    Optimizer,
    PairClassification,
    Regression,
    Schedule,
    Seq2Seq,
    Task,
    TextClassification,
    VectorClassification,
    task_type,
)
from zoo.tasks.base import check_task
from zoo.tasks.decoding import Decoding
from zoo.tasks.metrics import StepOutput

QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}


def loader(count: int = 60, classes: int = 3) -> DataLoader:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(count, 4, generator=draw)
    return DataLoader(TensorDataset(x, x[:, :classes].argmax(-1)), batch_size=7)


class Watch(Callback):
    """Record the logged training losses."""

    def __init__(self):
        self.losses = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(float(trainer.callback_metrics["train_loss_step"]))


# --- a plain Trainer ---


class Scales:
    """A mixin with an option of its own."""

    def __init__(self, *given, gamma=2.0, **options):
        super().__init__(*given, **options)


class Stops(Scales, Classification):
    """A task with a mixin, callbacks of its own and an array as option."""

    def __init__(self, net, num_classes, *, weights=None, **options):
        super().__init__(net, num_classes, **options)

    def configure_callbacks(self):
        return EarlyStopping("val_loss")


def test_tasks_with_mixins_callbacks_and_arrays():
    task = Stops(nn.Linear(4, 3), 3, gamma=5.0, weights=np.ones(3))
    assert task.hparams["gamma"] == 5.0
    trainer = Trainer(max_epochs=1, logger=False, enable_checkpointing=False, **QUIET)
    trainer.fit(task, loader(), loader())
    assert "val_accuracy" in trainer.callback_metrics
    with raises("unknown", "gama"):
        check_task(Stops, {"gama": 1.0})


def test_inputs_of_a_pair_may_be_given_apart():
    task, a, b = PairClassification(nn.Bilinear(4, 4, 3), num_classes=3), torch.ones(2, 4), torch.zeros(2, 4)
    assert torch.equal(task(a, b), task((a, b)))


def test_a_task_trains_in_a_plain_trainer_and_loads_from_its_checkpoint(tmp_path):
    torch.manual_seed(0)
    net, watch = nn.Linear(4, 3), Watch()
    task = Classification(net, num_classes=3, optimizer=Optimizer(lr=0.1), label_smoothing=0.1)
    checkpoints = ModelCheckpoint(tmp_path, monitor="val_accuracy", mode="max")
    logger = CSVLogger(tmp_path, name="", version="")
    trainer = Trainer(max_epochs=8, callbacks=[watch, checkpoints], logger=logger, log_every_n_steps=1, **QUIET)
    trainer.fit(task, loader(), loader())
    assert {"train_loss", "train_loss_step", "val_loss"} <= set(trainer.callback_metrics)
    (metrics,) = trainer.test(task, loader(), verbose=False)
    assert set(metrics) == {"test_loss", "test_accuracy", "test_f1"}
    assert metrics["test_accuracy"] > 0.8
    assert watch.losses[-1] < watch.losses[0]
    logged = (tmp_path / "metrics.csv").read_text().splitlines()
    assert {"train_loss", "train_loss_step", "val_accuracy"} <= set(logged[0].split(","))
    logged_options = yaml.safe_load((tmp_path / "hparams.yaml").read_text())
    assert logged_options["label_smoothing"] == 0.1
    loaded = Classification.load_from_checkpoint(checkpoints.best_model_path, net=nn.Linear(4, 3))
    assert (loaded.label_smoothing, loaded.optimizer) == (0.1, Optimizer(lr=0.1))
    assert torch.equal(loaded.net.weight, torch.load(checkpoints.best_model_path)["state_dict"]["net.weight"])
    assert torch.cat(trainer.predict(loaded, loader())).sum(-1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (TextClassification, {"num_classes": 3, "label_smoothing": 0.2}),
        (AnswerRanking, {"optimizer": Optimizer("sgd", lr=0.5)}),
        (Regression, {"num_targets": 3, "optimizer": {"betas": (0.8, 0.9)}}),
        (LanguageModel, {"vocab_size": 3, "schedule": "linear(floor=0.1)"}),
        (Seq2Seq, {"vocab_size": 5, "decoding": {"beam": 3}}),
    ],
)
def test_every_task_loads_from_a_checkpoint_with_its_options(kind, options, tmp_path):
    task = kind(nn.Linear(2, 3), **options)
    trainer = Trainer(logger=False, max_epochs=0, **QUIET)
    trainer.strategy.connect(task)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    loaded = kind.load_from_checkpoint(tmp_path / "a.ckpt", net=nn.Linear(2, 3))
    assert torch.equal(loaded.net.weight, task.net.weight)
    assert loaded.hparams == task.hparams
    assert (loaded.optimizer, loaded.schedule) == (task.optimizer, task.schedule)
    if kind is Seq2Seq:
        assert loaded.decoding.beam == 3


@pytest.mark.parametrize("lengths", [True, False])
def test_a_language_model_trains_with_and_without_lengths(lengths):
    """Without the characters and bytes of texts, bits per character and byte are NaN."""
    tokens = torch.randint(1, 9, (12, 7), generator=torch.Generator().manual_seed(0))
    parts = [tokens[:, :-1], tokens[:, 1:], *([torch.full((12, 2), 6)] if lengths else [])]
    rows = DataLoader(TensorDataset(*parts), batch_size=5)
    task = LanguageModel(nn.Embedding(9, 9), 9)
    trainer = Trainer(max_epochs=1, logger=False, enable_checkpointing=False, **QUIET)
    trainer.fit(task, rows, rows)
    (metrics,) = trainer.test(task, rows, verbose=False)
    assert metrics["test_perplexity"] == pytest.approx(math.exp(metrics["test_loss"]), rel=1e-5)
    expected = metrics["test_loss"] / math.log(2) if lengths else math.nan
    assert metrics["test_bits_per_byte"] == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_an_empty_batch_is_ignored():
    task = Classification(nn.Identity(), 3)
    task.val_metrics.update(task.step((torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))))
    before = {name: metric.compute() for name, metric in task.val_metrics.named().items()}
    task.val_metrics.update(task.step((torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))))
    assert {name: metric.compute() for name, metric in task.val_metrics.named().items()} == before


# --- optimizers ---


@pytest.mark.parametrize("name", ["muon", "adamuon", "nadamuon"])
def test_muon_requires_real_matrices(name):
    layer = zoo.Layers("quaternion").linear(16, 16, role="ffn")
    with raises("invalid", f"'{name}'"):
        Classification(layer, 16, optimizer=name)
    Classification(zoo.Layers("real").linear(16, 16, role="ffn"), 16, optimizer=name)


# --- dtypes ---


class Bigrams(nn.Module):
    """A table of logits for the next token."""

    def __init__(self, dtype):
        super().__init__()
        self.table = nn.Parameter(torch.randn(50, 50, generator=torch.Generator().manual_seed(0)).to(dtype))

    def forward(self, tokens):
        return self.table[tokens]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_loss_of_a_language_model_is_computed_in_float32(dtype):
    net = Bigrams(dtype)
    tokens = torch.randint(1, 50, (4, 9), generator=torch.Generator().manual_seed(1))
    batch = tokens, tokens.roll(-1, 1), torch.full((4, 2), 9)
    task = LanguageModel(net, 50)
    train, val = task.train().step(batch).loss.detach(), task.eval().step(batch).loss
    exact = F.cross_entropy(net.table.detach()[tokens].double().flatten(0, 1), batch[1].flatten())
    assert train.dtype == val.dtype == torch.float32
    assert [float(train), float(val)] == pytest.approx([float(exact)] * 2, rel=1e-6)
    task.val_metrics.update(task.step(batch))
    metrics = {name: float(metric.compute()) for name, metric in task.val_metrics.named().items()}
    assert metrics["val_perplexity"] == pytest.approx(math.exp(metrics["val_loss"]), rel=1e-6)
    assert metrics["val_perplexity"] == pytest.approx(math.exp(float(exact)), rel=1e-5)


def test_metrics_by_name():
    task = Classification(nn.Identity(), 3, metrics=("MulticlassCalibrationError", "MulticlassAUROC"))
    logits, labels = torch.randn(20, 3), torch.arange(20) % 3
    task.val_metrics.update(StepOutput(torch.zeros(()), logits, labels))
    expected = multiclass_auroc(logits.softmax(1), labels, num_classes=3)
    assert torch.allclose(task.val_metrics.named()["val_multiclass_auroc"].compute(), expected)
    assert "test_multiclass_calibration_error" in task.test_metrics.named()


@pytest.mark.parametrize(("name", "close"), [("Accurracy", "MulticlassAccuracy"), ("MulticlassROC", "MulticlassAUROC")])
def test_unknown_metrics_raise(name, close):
    with raises("unknown", f"'{name}'", f"did you mean {close}?"):
        Classification(nn.Identity(), 3, metrics=(name,))


TASKS = {
    "image_classification": (ImageClassification, "image", "val_loss"),
    "text_classification": (TextClassification, "text", "val_accuracy"),
    "pair_classification": (PairClassification, "text_pair", "val_accuracy"),
    "answer_ranking": (AnswerRanking, "text_pair", "val_map"),
    "vector_classification": (VectorClassification, "vector", "val_loss"),
    "regression": (Regression, "vector", "val_loss"),
    "language_model": (LanguageModel, "tokens", "val_loss"),
    "seq2seq": (Seq2Seq, "source_target", "val_loss"),
}


def info_of(task: str, outputs: int = 2) -> SimpleNamespace:
    classes = tuple(map(str, range(outputs)))
    return SimpleNamespace(inputs=TASKS[task][1], classes=classes, vocab_size=outputs, in_features=3, out_features=outputs)


def made(task: str, net: nn.Module | None = None, outputs: int = 2, **options) -> Task:
    return task_type(task)[0].from_info(net or nn.Identity(), info_of(task, outputs), **options)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_its_class_and_monitor(task):
    kind, _, monitor = TASKS[task]
    assert type(made(task)) is kind
    assert made(task).monitor[0] == monitor
    assert monitor in made(task).val_metrics.named()
    assert made(task).num_outputs(info_of(task)) == 2
    assert TASKS.keys() == {entry.name for entry in registry.entries("zoo.tasks") if entry.ours}


class Shy(Classification):
    """A task that passes on only one option of its base class, and has one with an interval."""

    def __init__(self, net, num_classes, *, gain: Annotated[float, "[0, 1)"] = 0.5, schedule="linear"):
        super().__init__(net, num_classes, schedule=schedule, optimizer="sgd")


class Open(Shy):
    """A task that passes on all options of its base class."""

    def __init__(self, net, *, depth: int = 1, **options):
        super().__init__(net, **options)


def test_the_signature_of_a_task_has_the_options_that_it_passes_on(tmp_path):
    assert [*signature(Classification).parameters][3:] == ["optimizer", "schedule", "metrics"]
    assert [*signature(Open).parameters] == ["net", "depth", "num_classes", "gain", "schedule"]
    task = Open(nn.Linear(2, 3), num_classes=3, schedule=Schedule("constant"))
    assert task.hparams.keys() == {"depth", "num_classes", "gain", "schedule"}
    assert (task.optimizer, task.schedule) == (Optimizer("sgd"), Schedule("constant"))
    for wrong, code in (({"optimizer": "sgd"}, "unknown"), ({"depth": 0.5}, "invalid"), ({"gain": 1.0}, "invalid")):
        with raises(code, *wrong):
            check_task(Open, wrong)


@pytest.mark.parametrize("given", ["sgd(lr=0.5)", {"name": "sgd", "lr": 0.5}, Optimizer("sgd", 0.5)])
def test_an_optimizer_is_an_object_a_spec_or_options_by_name(given):
    assert Classification(nn.Linear(2, 3), 3, optimizer=given).optimizer == Optimizer("sgd", 0.5)
    assert zoo.registry.check_option("optimizer", Optimizer, given) == Optimizer("sgd", 0.5)


def test_a_learning_rate_finder_sets_the_learning_rate():
    task = Classification(nn.Linear(2, 3), 3)
    task.lr = 0.25
    task.trainer = SimpleNamespace(estimated_stepping_batches=20)
    (group, *_) = task.configure_optimizers()["optimizer"].param_groups
    assert (group["initial_lr"], task.hparams["optimizer"]["lr"]) == (0.25, 0.25)


def test_a_task_has_at_most_twelve_public_methods():
    methods = [name for name, value in vars(Task).items() if isinstance(value, FunctionType | classmethod | staticmethod)]
    assert len([name for name in methods if not name.startswith("_")]) <= 12


def test_unsupported_data():
    with raises("invalid", "Regression", "sound"):
        Regression.from_info(nn.Identity(), SimpleNamespace(inputs="sound"))


@pytest.mark.parametrize("sequence", [tuple, list])
def test_a_pair_of_texts_is_passed_as_two_arguments(sequence):
    """Some versions of torch collate tuples to lists."""
    net = nn.Bilinear(3, 4, 2)
    task, pair, labels = made("pair_classification", net), (torch.randn(5, 3), torch.randn(5, 4)), torch.tensor([0, 1, 1, 0, 1])
    batch = sequence([sequence(pair), labels])
    loss, logits, targets, extra, _ = task.step(batch)
    assert torch.equal(logits, net(*pair))
    assert loss.item() == pytest.approx(nn.functional.cross_entropy(net(*pair), labels).item())
    assert (targets is labels, extra) == (True, {})
    assert torch.equal(task.predict_step(batch, 0), net(*pair).softmax(-1))


@pytest.mark.parametrize(
    ("decoding", "code", "value"),
    [
        ({"beam": 0}, "invalid", "beam=0"),
        (Decoding(length=6), "invalid", "length=6"),
        ({"beem": 3}, "unknown", "beem"),
    ],
)
def test_decoding_is_checked_before_training(decoding, code, value):
    net = nn.Identity()
    net.max_length = 6
    with raises(code, value):
        made("seq2seq", net, decoding=decoding)
    assert made("seq2seq", net, decoding={"length": 5}).decoding.length == 5
