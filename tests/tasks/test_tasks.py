"""Tasks by their specs: which class, for which data, with which options."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.errors import raises
from zoo import registry
from zoo.errors import InputError
from zoo.tasks import (
    AnswerRanking,
    ImageClassification,
    LanguageModel,
    PairClassification,
    Regression,
    Seq2Seq,
    Task,
    TextClassification,
    VectorClassification,
    task_type,
)
from zoo.tasks.decoding import Decoding

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
def test_every_task_has_its_class_and_what_tells_its_best_epoch(task):
    kind, _, monitor = TASKS[task]
    assert type(made(task)) is kind
    assert made(task).monitor[0] == monitor
    assert monitor in made(task).stage_metrics("val")
    assert made(task).num_outputs(info_of(task)) == 2
    assert TASKS.keys() == {entry.name for entry in registry.entries("zoo.tasks") if entry.ours}


def test_the_data_say_how_many_answers_there_are():
    task = made("text_classification", outputs=3)
    assert "val_auroc" not in task.stage_metrics("val")
    assert "val_auroc" in made("text_classification").stage_metrics("val")
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 2, 1])
    task.val_metrics.update(logits, labels)
    assert float(task.val_metrics.compute()["val_accuracy"]) == pytest.approx((logits.argmax(-1) == labels).float().mean())


@pytest.mark.parametrize("task", TASKS)
def test_data_that_a_task_cannot_learn_from(task):
    with pytest.raises(InputError, match=f"the task {TASKS[task][0].__name__} learns from .*, and the data hold sound"):
        task_type(task)[0].from_info(nn.Identity(), SimpleNamespace(inputs="sound"))


@pytest.mark.parametrize("together", [tuple, list], ids=["tuple", "list"])
def test_two_texts_are_two_arguments_also_from_a_loader_that_makes_lists(together):
    net = nn.Bilinear(3, 4, 2)
    task, pair, labels = made("pair_classification", net), (torch.randn(5, 3), torch.randn(5, 4)), torch.tensor([0, 1, 1, 0, 1])
    loss, logits, targets, extra, _ = task.step(together([together(pair), labels]))
    assert torch.equal(logits, net(*pair))
    assert loss.item() == pytest.approx(nn.functional.cross_entropy(net(*pair), labels).item())
    assert (targets is labels, extra) == (True, {})
    assert torch.equal(task.predict_step(together([together(pair), labels]), 0), net(*pair).softmax(-1))


ADVISED = {"image_classification": 0, "text_classification": 0, "pair_classification": 0, "language_model": 0, "seq2seq": 0.1}


@pytest.mark.parametrize("task", ADVISED)
def test_labels_are_smoothed_where_there_are_labels(task):
    assert made(task, label_smoothing=0.3).label_smoothing == 0.3
    assert made(task).label_smoothing == ADVISED[task]


@pytest.mark.parametrize("task", ["answer_ranking", "regression"])
def test_a_task_that_smooths_nothing_says_so(task):
    with raises("unknown", "label_smoothing"):
        made(task, label_smoothing=0.1)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_a_smoothing_that_is_no_share(smoothing):
    with pytest.raises(InputError, match=r"label_smoothing=.*0 to below 1"):
        made("image_classification", label_smoothing=smoothing)


@pytest.mark.parametrize(
    ("decoding", "said"),
    [
        (Decoding(beam=0), "beam=0"),
        (Decoding(top_p=0.5), "nothing is drawn at a temperature of 0"),
        (Decoding(length=6), "length=6: this network has positions for answers of 5 tokens"),
        ({"beem": 3}, "unknown option 'beem': did you mean 'beam'"),
    ],
)
def test_answers_that_cannot_be_generated_so_are_found_before_training(decoding, said):
    net = nn.Identity()
    net.max_length = 6
    with pytest.raises(InputError, match=said):
        made("seq2seq", net, decoding=decoding)
    assert made("seq2seq", net, decoding=Decoding(length=5)).decoding.length == 5
    assert made("seq2seq", net, decoding={"length": 5}).decoding.length == 5


@pytest.mark.parametrize("task", sorted(TASKS.keys() - {"seq2seq"}))
def test_a_task_that_generates_nothing_when_it_is_tested_takes_no_decoding(task):
    with raises("unknown", "--beam"):
        made(task, decoding=Decoding(beam=4))


def test_the_options_of_decoding_need_no_torch():
    code = "import sys, zoo.tasks.decoding.options; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
