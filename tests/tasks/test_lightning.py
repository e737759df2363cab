"""Tasks in anyone's Trainer: plain loaders, plain loggers, checkpoints of Lightning; metrics by name; any dtype."""

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
from zoo.errors import InputError
from zoo.tasks import AnswerRanking, Classification, LanguageModel, Regression, Seq2Seq, TextClassification

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
    """Anyone's callback: reads what was logged."""

    def __init__(self):
        self.losses = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(float(trainer.callback_metrics["train_loss_step"]))


# --- a plain Trainer ---


def test_a_task_trains_in_anyones_trainer_and_comes_back_from_its_checkpoint(tmp_path):
    torch.manual_seed(0)
    net, watch = nn.Linear(4, 3), Watch()
    task = Classification(net, num_classes=3, lr=0.1, label_smoothing=0.1, metrics=("MulticlassCohenKappa",))
    keeper = ModelCheckpoint(tmp_path, monitor="val_accuracy", mode="max")
    logger = CSVLogger(tmp_path, name="", version="")
    trainer = Trainer(max_epochs=8, callbacks=[watch, keeper], logger=logger, log_every_n_steps=1, **QUIET)
    trainer.fit(task, loader(), loader())
    assert {"train_loss", "train_loss_step", "val_loss", "val_multiclass_cohen_kappa"} <= set(trainer.callback_metrics)
    (found,) = trainer.test(task, loader(), verbose=False)
    assert set(found) == {"test_loss", "test_accuracy", "test_f1", "test_multiclass_cohen_kappa"}
    assert found["test_accuracy"] > 0.8
    assert watch.losses[-1] < watch.losses[0]
    logged = (tmp_path / "metrics.csv").read_text().splitlines()
    assert {"train_loss", "train_loss_step", "val_accuracy"} <= set(logged[0].split(","))
    logged_options = yaml.safe_load((tmp_path / "hparams.yaml").read_text())
    assert (logged_options["label_smoothing"], logged_options["metrics"]) == (0.1, ["MulticlassCohenKappa"])
    back = Classification.load_from_checkpoint(keeper.best_model_path, net=nn.Linear(4, 3))
    assert (back.label_smoothing, back.hparams.lr, back.hparams.metrics) == (0.1, 0.1, ("MulticlassCohenKappa",))
    assert torch.equal(back.net.weight, torch.load(keeper.best_model_path)["state_dict"]["net.weight"])
    answers = torch.cat(trainer.predict(back, loader()))
    assert answers.sum(-1) == pytest.approx(1.0)


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
def test_every_task_comes_back_from_a_checkpoint_with_its_options(kind, options, tmp_path):
    task = kind(nn.Linear(2, 3), **options)
    trainer = Trainer(logger=False, max_epochs=0, **QUIET)
    trainer.strategy.connect(task)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    back = kind.load_from_checkpoint(tmp_path / "a.ckpt", net=nn.Linear(2, 3))
    assert torch.equal(back.net.weight, task.net.weight)
    assert back.hparams == task.hparams
    assert options.items() <= {**back.hparams, **({"decoding": {"beam": 3}} if "decoding" in options else {})}.items()
    if kind is Seq2Seq:
        assert back.decoding.beam == 3


@pytest.mark.parametrize("lengths", [True, False])
def test_a_language_model_trains_with_and_without_lengths(lengths):
    """Of characters and bytes: without them only perplexity is measured."""
    tokens = torch.randint(1, 9, (12, 7), generator=torch.Generator().manual_seed(0))
    parts = [tokens[:, :-1], tokens[:, 1:], *([torch.full((12, 2), 6)] if lengths else [])]
    rows = DataLoader(TensorDataset(*parts), batch_size=5)
    task = LanguageModel(nn.Embedding(9, 9), 9)
    trainer = Trainer(max_epochs=1, logger=False, enable_checkpointing=False, **QUIET)
    trainer.fit(task, rows, rows)
    (found,) = trainer.test(task, rows, verbose=False)
    assert found["test_perplexity"] == pytest.approx(math.exp(found["test_loss"]), rel=1e-5)
    bits = {f"test_bits_per_{unit}" for unit in ("character", "byte")}
    assert found.keys() == {"test_loss", "test_perplexity"} | (bits if lengths else set())
    if lengths:
        assert found["test_bits_per_byte"] == pytest.approx(found["test_loss"] / math.log(2), rel=1e-5)


def test_lengths_of_another_shape_are_refused():
    task, tokens = LanguageModel(nn.Embedding(9, 9), 9), torch.ones(2, 3, dtype=torch.int64)
    for wrong in (torch.tensor([3, 3]), torch.ones(3, 2), [3, 3]):
        with pytest.raises(InputError, match=r"lengths .* characters and bytes of every text, \[2, 2\], or leave them out"):
            task.validation_step((tokens, tokens, wrong), 0)
    with pytest.raises(InputError, match=r"a batch of 1 parts: a language model learns from \(tokens, targets\)"):
        task.training_step((tokens,), 0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Classification(3, num_classes=4), "net=3: a task holds a torch.nn.Module"),
        (lambda: Classification(nn.Linear, 4), "a task holds a torch.nn.Module"),
        (lambda: Classification(nn.Linear(4, 3), 0), "num_classes=0: must be a whole number, 2 or more"),
        (lambda: Classification(nn.Linear(4, 3), 2.5), "num_classes=2.5: must be a whole number, 2 or more"),
        (lambda: Regression(nn.Linear(4, 3), 0), "num_targets=0: must be a whole number, 1 or more"),
        (lambda: LanguageModel(nn.Linear(4, 3), -1), "vocab_size=-1: must be a whole number, 1 or more"),
    ],
)
def test_what_makes_no_task_is_one_line(make, said):
    with pytest.raises(InputError, match=said) as error:
        make()
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("label", [3, -1])
@pytest.mark.parametrize("kind", [lambda net: Classification(net, 3), AnswerRanking])
def test_a_label_that_is_none_is_one_line(kind, label):
    trainer = Trainer(logger=False, max_epochs=1, enable_checkpointing=False, **QUIET)
    labels = torch.tensor([0, 1, label, 1])
    rows = DataLoader(TensorDataset(torch.randn(4, 4), labels, torch.zeros(4, dtype=torch.int64)), batch_size=4)
    with pytest.raises(InputError, match=rf"a label is {label}: labels are whole numbers from 0 to 2"):
        trainer.fit(kind(nn.Linear(4, 3)), rows)


def test_lightnings_learning_rate_can_be_changed():
    task = Classification(nn.Linear(4, 3), 3, lr=0.1, schedule="constant", warmup=0.0)
    task.hparams.lr = 0.01  # as Lightning's learning rate finder does
    trainer = Trainer(logger=False, max_epochs=1, limit_train_batches=1, enable_checkpointing=False, **QUIET)
    trainer.fit(task, loader())
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.01


# --- metrics by name ---


def test_a_metric_by_name_is_that_of_torchmetrics():
    draw = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(50, 4, generator=draw), torch.randint(4, (50,), generator=draw)
    task = Classification(nn.Identity(), 4, metrics=("MulticlassCalibrationError", "MulticlassAUROC"))
    trainer = Trainer(logger=False, enable_checkpointing=False, **QUIET)
    (found,) = trainer.test(task, DataLoader(TensorDataset(logits, labels), batch_size=9), verbose=False)
    expected = multiclass_calibration_error(logits.softmax(-1), labels, 4)
    assert found["test_multiclass_calibration_error"] == pytest.approx(float(expected), abs=1e-6)
    assert 0 < found["test_multiclass_auroc"] < 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Classification(nn.Identity(), 4, metrics=("MulticlasAUROC",)), "did you mean MulticlassAUROC"),
        (lambda: Classification(nn.Identity(), 4, metrics=("Accurracy",)), "did you mean MulticlassAccuracy"),
        (lambda: Classification(nn.Identity(), 4, metrics=("calibration_error",)), "did you mean MulticlassCalibrationError"),
        (lambda: Classification(nn.Identity(), 4, metrics=("xyzzy",)), "unknown metric 'xyzzy'"),
        (lambda: Classification(nn.Identity(), 4, metrics=("Accuracy",)), "metric Accuracy needs task: .* MulticlassAccuracy"),
        (lambda: Classification(nn.Identity(), 4, metrics=("BinaryAUROC",)), "it is for two classes, and there are 4"),
        (lambda: Classification(nn.Identity(), 4, metrics=("MulticlassConfusionMatrix",)), "is not one number"),
        (lambda: Classification(nn.Identity(), 4, metrics="R2Score"), r"give a list of names, such as \('R2Score',"),
        (lambda: Classification(nn.Identity(), 4, metrics=("R2Score", "R2Score")), "metrics has R2Score twice"),
        (lambda: Regression(nn.Identity(), 2, metrics=("MulticlassAUROC",)), "does not work for this task"),
        (lambda: LanguageModel(nn.Identity(), 9, metrics=("R2Score",)), "takes no further metrics"),
    ],
)  # fmt: skip
def test_metrics_that_there_are_not_or_that_do_not_fit_are_one_line(make, said):
    with pytest.raises(InputError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_metrics_of_other_tasks():
    assert "test_mean_absolute_error" in Regression(nn.Identity(), 2, metrics=("MeanAbsoluteError",)).stage_metrics("test")
    ranking = AnswerRanking(nn.Identity(), metrics=("RetrievalNormalizedDCG", "BinaryAveragePrecision"))
    assert "val_retrieval_normalized_dcg" in ranking.stage_metrics("val")
    text = Seq2Seq(nn.Identity(), 9, metrics=("CharErrorRate", "BLEUScore"))
    assert {"test_char_error_rate", "test_bleu_score"} < set(text.stage_metrics("test"))
    assert set(text.stage_metrics("val")) == {"val_loss", "val_exact_match"}


def test_an_empty_batch_counts_for_nothing():
    task = Classification(nn.Identity(), 3)
    task.measure("val", task.step((torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))))
    before = {name: metric.compute() for name, metric in task.stage_metrics("val").items()}
    task.measure("val", task.step((torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))))
    assert {name: metric.compute() for name, metric in task.stage_metrics("val").items()} == before


# --- what is decayed (defect 6) ---


@pytest.mark.parametrize(
    ("spec", "algebra", "info", "kept"),
    [
        ("transformer(dim=16, depth=1, heads=2, positions=learned)", "phm-2", {"num_classes": 2}, {"structure", "table"}),
        ("transformer_xl(dim=16, depth=1, heads=2, ffn=16)", "quaternion", {}, {"u", "v"}),
        ("gpt(dim=16, depth=1, heads=2, ffn=16)", "phm-4", {}, {"structure", "table"}),
        ("gpt(dim=16, depth=1, heads=2, ffn=16)", "phm(n=4, rank=6)", {}, {"factor_matrices", "table"}),
    ],
)  # fmt: skip
def test_learned_products_positions_u_and_v_are_not_decayed(spec, algebra, info, kept):
    net = zoo.backbone(spec, algebra, vocab_size=9, max_length=8, **info)
    task = Classification(net, 3, weight_decay=0.3, schedule="constant", warmup=0.0)
    task.trainer = type("Plan", (), {"estimated_stepping_batches": 10})()
    groups = task.configure_optimizers()["optimizer"].param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    named = {name: p for name, p in net.named_parameters() if name.rpartition(".")[2] in kept}
    assert {name.rpartition(".")[2] for name in named} == kept
    assert {decay[id(p)] for p in named.values()} == {0.0}
    components = [p for name, p in net.named_parameters() if name.endswith("components") and p.ndim == 3]
    assert components
    assert {decay[id(p)] for p in components} == {0.3}


def test_a_shared_parameter_is_kept_from_decay_under_its_first_name():
    from zoo.tasks.optimization import undecayed

    class Keeper(nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.rule = shared

        def no_weight_decay(self):
            return {"rule", "missing"}

    plain = nn.Linear(3, 3)
    assert undecayed(nn.Sequential(plain, Keeper(plain.weight))) == {"0.weight"}


@pytest.mark.parametrize("name", ["muon", "adamuon", "nadamuon"])
def test_muon_is_for_real_matrices(name):
    layer = zoo.Layers("quaternion").linear(16, 16, role="ffn")
    with pytest.raises(InputError, match=f"optimizer '{name}' needs real matrices"):
        Classification(layer, 16, optimizer=name)
    Classification(zoo.Layers("real").linear(16, 16, role="ffn"), 16, optimizer=name)


# --- dtypes (defect 6) ---


class Bigrams(nn.Module):
    """A table of logits for the next token."""

    def __init__(self, dtype):
        super().__init__()
        self.table = nn.Parameter(torch.randn(50, 50, generator=torch.Generator().manual_seed(0)).to(dtype))

    def forward(self, tokens):
        return self.table[tokens]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_loss_of_a_language_model_is_computed_in_float32_in_training_as_in_validation(dtype):
    net = Bigrams(dtype)
    tokens = torch.randint(1, 50, (4, 9), generator=torch.Generator().manual_seed(1))
    batch = tokens, tokens.roll(-1, 1), torch.full((4, 2), 9)
    task = LanguageModel(net, 50)
    train, val = task.train().step(batch).loss.detach(), task.eval().step(batch).loss
    exact = F.cross_entropy(net.table.detach()[tokens].double().flatten(0, 1), batch[1].flatten())
    assert train.dtype == val.dtype == torch.float32
    assert [float(train), float(val)] == pytest.approx([float(exact)] * 2, rel=1e-6)
    task.measure("val", task.step(batch))
    found = {name: float(metric.compute()) for name, metric in task.stage_metrics("val").items()}
    assert found["val_perplexity"] == pytest.approx(math.exp(found["val_loss"]), rel=1e-6)
    assert found["val_perplexity"] == pytest.approx(math.exp(float(exact)), rel=1e-5)
