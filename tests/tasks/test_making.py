"""Data name their task, and one text or two reach the network as it reads them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from zoo.errors import InputError
from zoo.options import Decoding, Optimizer, Schedule
from zoo.tasks import Classification, LanguageModel, Ranking, Regression, Seq2Seq, Task, TextClassification, make_task
from zoo.tasks.making import TASKS

KINDS = {
    "image_classification": (Classification, "val_loss"),
    "text_classification": (TextClassification, "val_accuracy"),
    "pair_classification": (TextClassification, "val_accuracy"),
    "answer_ranking": (Ranking, "val_map"),
    "regression": (Regression, "val_loss"),
    "language_model": (LanguageModel, "val_loss"),
    "seq2seq": (Seq2Seq, "val_loss"),
}


def made(task: str, net: nn.Module | None = None) -> Task:
    return make_task(task, SimpleNamespace(out_features=2), net or nn.Identity(), Optimizer(lr=1.0), Schedule())


@pytest.mark.parametrize("task", KINDS)
def test_every_task_has_its_module_and_what_tells_its_best_epoch(task):
    kind, monitor = KINDS[task]
    assert type(made(task)) is kind
    assert made(task).monitor[0] == monitor
    assert monitor.removeprefix("val_") in {"loss", *made(task).val_metrics.keys(keep_base=True)}
    assert KINDS.keys() == TASKS.keys()


def test_the_data_say_how_many_answers_there_are():
    task = make_task("text_classification", SimpleNamespace(out_features=3), nn.Identity(), Optimizer(lr=1.0), Schedule())
    assert "auroc" not in task.val_metrics.keys(keep_base=True)
    assert "auroc" in made("text_classification").val_metrics.keys(keep_base=True)
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 2, 1])
    task.val_metrics.update(logits, labels)
    assert float(task.val_metrics.compute()["val_accuracy"]) == pytest.approx((logits.argmax(-1) == labels).float().mean())


def test_an_unknown_task():
    with pytest.raises(InputError, match="task 'text_generation': use one of image_classification, text_classification"):
        made("text_generation")


@pytest.mark.parametrize("together", [tuple, list], ids=["tuple", "list"])
def test_two_texts_are_two_arguments_also_from_a_loader_that_makes_lists(together):
    net = nn.Bilinear(3, 4, 2)
    task, pair, labels = made("pair_classification", net), (torch.randn(5, 3), torch.randn(5, 4)), torch.tensor([0, 1, 1, 0, 1])
    loss, logits, targets, extra, _ = task.loss(together([together(pair), labels]))
    assert torch.equal(logits, net(*pair))
    assert loss.item() == pytest.approx(nn.functional.cross_entropy(net(*pair), labels).item())
    assert (targets is labels, extra) == (True, {})
    assert torch.equal(task.predict_step(together([together(pair), labels]), 0), net(*pair).softmax(-1))


def test_one_text_is_one_argument():
    net = nn.Linear(3, 2)
    task, x = made("text_classification", net), torch.randn(5, 3)
    assert torch.equal(task.loss((x, torch.zeros(5, dtype=torch.long))).predictions, net(x))
    assert torch.equal(task.predict_step(x, 0), net(x).softmax(-1))


def smoothed(task: str, smoothing: float) -> Task:
    return make_task(task, SimpleNamespace(out_features=2), nn.Identity(), Optimizer(lr=1.0), Schedule(), smoothing)


ADVISED = {"image_classification": 0, "text_classification": 0, "pair_classification": 0, "language_model": 0, "seq2seq": 0.1}


@pytest.mark.parametrize("task", ADVISED)
def test_labels_are_smoothed_where_there_are_labels(task):
    assert smoothed(task, 0.3).label_smoothing == 0.3
    assert made(task).label_smoothing == ADVISED[task]


@pytest.mark.parametrize("task", ["answer_ranking", "regression"])
def test_a_task_that_smooths_nothing_says_so(task):
    with pytest.raises(InputError, match=rf"label_smoothing=0\.1: the task {task} smooths no labels"):
        smoothed(task, 0.1)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_a_smoothing_that_is_no_share(smoothing):
    with pytest.raises(InputError, match=r"label_smoothing=.*0 to below 1"):
        smoothed("image_classification", smoothing)


@pytest.mark.parametrize(
    ("decoding", "said"),
    [
        (Decoding(beam=0), "beam=0"),
        (Decoding(top_p=0.5), "nothing is drawn at a temperature of 0"),
        (Decoding(length=6), "length=6: this network has positions for answers of 5 tokens"),
    ],
)
def test_answers_that_cannot_be_written_so_are_found_before_training(decoding, said):
    net = nn.Identity()
    net.max_length = 6
    info = SimpleNamespace(vocab_size=9)
    with pytest.raises(InputError, match=said):
        make_task("seq2seq", info, net, Optimizer(lr=1.0), Schedule(), decoding=decoding)
    assert make_task("seq2seq", info, net, Optimizer(lr=1.0), Schedule(), decoding=Decoding(length=5)).decoding.length == 5
