"""Tasks by their specs: classes, data and options."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.errors import raises
from zoo import registry
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
def test_every_task_has_its_class_and_monitor(task):
    kind, _, monitor = TASKS[task]
    assert type(made(task)) is kind
    assert made(task).monitor[0] == monitor
    assert monitor in made(task).stage_metrics("val")
    assert made(task).num_outputs(info_of(task)) == 2
    assert TASKS.keys() == {entry.name for entry in registry.entries("zoo.tasks") if entry.ours}


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
        (Decoding(beam=0), "invalid", "beam=0"),
        (Decoding(length=6), "invalid", "length=6"),
        ({"beem": 3}, "unknown", "'beem'"),
    ],
)
def test_decoding_is_checked_before_training(decoding, code, value):
    net = nn.Identity()
    net.max_length = 6
    with raises(code, value):
        made("seq2seq", net, decoding=decoding)
    assert made("seq2seq", net, decoding={"length": 5}).decoding.length == 5
