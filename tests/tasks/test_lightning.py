"""Tasks in Lightning: plain data loaders, loggers and checkpoints; metrics by name; dtypes."""

import math

import pytest
import torch
import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.functional.classification import multiclass_calibration_error

import zoo
from tests.errors import raises
from zoo.tasks import AnswerRanking, Classification, LanguageModel, Regression, Seq2Seq, TextClassification
from zoo.tasks.optimization import undecayed

pytestmark = pytest.mark.filterwarnings(
    "ignore:.isinstance.treespec, LeafSpec:FutureWarning",
    "ignore:.*does not have many workers",
    "ignore:.*number of training batches",
)
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


def test_a_task_trains_in_a_plain_trainer_and_loads_from_its_checkpoint(tmp_path):
    torch.manual_seed(0)
    net, watch = nn.Linear(4, 3), Watch()
    task = Classification(net, num_classes=3, lr=0.1, label_smoothing=0.1, metrics=("MulticlassCohenKappa",))
    checkpoints = ModelCheckpoint(tmp_path, monitor="val_accuracy", mode="max")
    logger = CSVLogger(tmp_path, name="", version="")
    trainer = Trainer(max_epochs=8, callbacks=[watch, checkpoints], logger=logger, log_every_n_steps=1, **QUIET)
    trainer.fit(task, loader(), loader())
    assert {"train_loss", "train_loss_step", "val_loss", "val_multiclass_cohen_kappa"} <= set(trainer.callback_metrics)
    (metrics,) = trainer.test(task, loader(), verbose=False)
    assert set(metrics) == {"test_loss", "test_accuracy", "test_f1", "test_multiclass_cohen_kappa"}
    assert metrics["test_accuracy"] > 0.8
    assert watch.losses[-1] < watch.losses[0]
    logged = (tmp_path / "metrics.csv").read_text().splitlines()
    assert {"train_loss", "train_loss_step", "val_accuracy"} <= set(logged[0].split(","))
    logged_options = yaml.safe_load((tmp_path / "hparams.yaml").read_text())
    assert (logged_options["label_smoothing"], logged_options["metrics"]) == (0.1, ["MulticlassCohenKappa"])
    loaded = Classification.load_from_checkpoint(checkpoints.best_model_path, net=nn.Linear(4, 3))
    assert (loaded.label_smoothing, loaded.hparams.lr, loaded.hparams.metrics) == (0.1, 0.1, ("MulticlassCohenKappa",))
    assert torch.equal(loaded.net.weight, torch.load(checkpoints.best_model_path)["state_dict"]["net.weight"])
    assert torch.cat(trainer.predict(loaded, loader())).sum(-1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (TextClassification, {"num_classes": 3, "label_smoothing": 0.2}),
        (AnswerRanking, {"lr": 0.5}),
        (Regression, {"num_targets": 3, "betas": (0.8, 0.9)}),
        (LanguageModel, {"vocab_size": 3, "schedule": "linear", "floor": 0.1}),
        (Seq2Seq, {"vocab_size": 5, "decoding": {"beam": 3}, "metrics": ("CharErrorRate",)}),
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
    assert options.items() <= {**loaded.hparams, **({"decoding": {"beam": 3}} if "decoding" in options else {})}.items()
    if kind is Seq2Seq:
        assert loaded.decoding.beam == 3


@pytest.mark.parametrize("lengths", [True, False])
def test_a_language_model_trains_with_and_without_lengths(lengths):
    """Without the characters and bytes of texts, bits per character and byte are not measured."""
    tokens = torch.randint(1, 9, (12, 7), generator=torch.Generator().manual_seed(0))
    parts = [tokens[:, :-1], tokens[:, 1:], *([torch.full((12, 2), 6)] if lengths else [])]
    rows = DataLoader(TensorDataset(*parts), batch_size=5)
    task = LanguageModel(nn.Embedding(9, 9), 9)
    trainer = Trainer(max_epochs=1, logger=False, enable_checkpointing=False, **QUIET)
    trainer.fit(task, rows, rows)
    (metrics,) = trainer.test(task, rows, verbose=False)
    assert metrics["test_perplexity"] == pytest.approx(math.exp(metrics["test_loss"]), rel=1e-5)
    bits = {f"test_bits_per_{unit}" for unit in ("character", "byte")}
    assert metrics.keys() == {"test_loss", "test_perplexity"} | (bits if lengths else set())
    if lengths:
        assert metrics["test_bits_per_byte"] == pytest.approx(metrics["test_loss"] / math.log(2), rel=1e-5)


def test_invalid_batches_of_a_language_model():
    task, tokens = LanguageModel(nn.Embedding(9, 9), 9), torch.ones(2, 3, dtype=torch.int64)
    for lengths in (torch.tensor([3, 3]), torch.ones(3, 2), [3, 3]):
        with raises("invalid", "lengths", [2, 2]):
            task.validation_step((tokens, tokens, lengths), 0)
    with raises("invalid", "(tokens, targets)"):
        task.training_step((tokens,), 0)


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda: Classification(3, num_classes=4), "net=3"),
        (lambda: Classification(nn.Linear, 4), "torch.nn.Module"),
        (lambda: Classification(nn.Linear(4, 3), 0), "num_classes=0"),
        (lambda: Classification(nn.Linear(4, 3), 2.5), "num_classes=2.5"),
        (lambda: Regression(nn.Linear(4, 3), 0), "num_targets=0"),
        (lambda: LanguageModel(nn.Linear(4, 3), -1), "vocab_size=-1"),
    ],
)
def test_invalid_networks_and_sizes(make, value):
    with raises("invalid", value):
        make()


@pytest.mark.parametrize("label", [3, -1])
@pytest.mark.parametrize("kind", [lambda net: Classification(net, 3), AnswerRanking])
def test_a_label_out_of_range(kind, label):
    trainer = Trainer(logger=False, max_epochs=1, enable_checkpointing=False, **QUIET)
    labels = torch.tensor([0, 1, label, 1])
    rows = DataLoader(TensorDataset(torch.randn(4, 4), labels, torch.zeros(4, dtype=torch.int64)), batch_size=4)
    with raises("invalid", label, 2):
        trainer.fit(kind(nn.Linear(4, 3)), rows)


def test_the_learning_rate_in_hparams_can_be_changed():
    """Lightning's learning rate finder does."""
    task = Classification(nn.Linear(4, 3), 3, lr=0.1, schedule="constant", warmup=0.0)
    task.hparams.lr = 0.01
    trainer = Trainer(logger=False, max_epochs=1, limit_train_batches=1, enable_checkpointing=False, **QUIET)
    trainer.fit(task, loader())
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.01


# --- metrics by name ---


def test_a_metric_by_name_equals_that_of_torchmetrics():
    draw = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(50, 4, generator=draw), torch.randint(4, (50,), generator=draw)
    task = Classification(nn.Identity(), 4, metrics=("MulticlassCalibrationError", "MulticlassAUROC"))
    trainer = Trainer(logger=False, enable_checkpointing=False, **QUIET)
    (metrics,) = trainer.test(task, DataLoader(TensorDataset(logits, labels), batch_size=9), verbose=False)
    expected = multiclass_calibration_error(logits.softmax(-1), labels, 4)
    assert metrics["test_multiclass_calibration_error"] == pytest.approx(float(expected), abs=1e-6)
    assert 0 < metrics["test_multiclass_auroc"] < 1


@pytest.mark.parametrize(
    ("kind", "metrics", "code", "values"),
    [
        (Classification, ("MulticlasAUROC",), "unknown", ["'MulticlasAUROC'", "MulticlassAUROC?"]),
        (Classification, ("Accurracy",), "unknown", ["'Accurracy'", "MulticlassAccuracy"]),
        (Classification, ("calibration_error",), "unknown", ["MulticlassCalibrationError"]),
        (Classification, ("xyzzy",), "unknown", ["'xyzzy'"]),
        (Classification, ("Accuracy",), "invalid", ["Accuracy", "task", "MulticlassAccuracy"]),
        (Classification, ("BinaryAUROC",), "invalid", ["BinaryAUROC", "2 classes, got 4"]),
        (Classification, ("MulticlassConfusionMatrix",), "invalid", ["MulticlassConfusionMatrix"]),
        (Classification, "R2Score", "invalid", ["('R2Score',)"]),
        (Classification, ("R2Score", "R2Score"), "invalid", ["duplicate metric R2Score"]),
        (Regression, ("MulticlassAUROC",), "invalid", ["MulticlassAUROC"]),
        (LanguageModel, ("R2Score",), "invalid", ["metrics"]),
    ],
)
def test_invalid_metrics(kind, metrics, code, values):
    with raises(code, *values):
        kind(nn.Identity(), 4, metrics=metrics)


def test_metrics_of_other_tasks():
    assert "test_mean_absolute_error" in Regression(nn.Identity(), 2, metrics=("MeanAbsoluteError",)).stage_metrics("test")
    ranking = AnswerRanking(nn.Identity(), metrics=("RetrievalNormalizedDCG", "BinaryAveragePrecision"))
    assert "val_retrieval_normalized_dcg" in ranking.stage_metrics("val")
    text = Seq2Seq(nn.Identity(), 9, metrics=("CharErrorRate", "BLEUScore"))
    assert {"test_char_error_rate", "test_bleu_score"} < set(text.stage_metrics("test"))
    assert set(text.stage_metrics("val")) == {"val_loss", "val_exact_match"}


def test_an_empty_batch_is_ignored():
    task = Classification(nn.Identity(), 3)
    task.measure("val", task.step((torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))))
    before = {name: metric.compute() for name, metric in task.stage_metrics("val").items()}
    task.measure("val", task.step((torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))))
    assert {name: metric.compute() for name, metric in task.stage_metrics("val").items()} == before


# --- optimizers ---


def test_a_shared_parameter_without_decay_has_its_first_name():
    class Shared(nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.rule = shared

        def no_weight_decay(self):
            return {"rule", "missing"}

    plain = nn.Linear(3, 3)
    assert undecayed(nn.Sequential(plain, Shared(plain.weight))) == {"0.weight"}


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
    task.measure("val", task.step(batch))
    metrics = {name: float(metric.compute()) for name, metric in task.stage_metrics("val").items()}
    assert metrics["val_perplexity"] == pytest.approx(math.exp(metrics["val_loss"]), rel=1e-6)
    assert metrics["val_perplexity"] == pytest.approx(math.exp(float(exact)), rel=1e-5)
