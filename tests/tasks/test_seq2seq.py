"""Exact match, BLEU, chrF and loss of sequence-to-sequence tasks against their definitions."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchmetrics.functional.text import sacre_bleu_score

from zoo.data.module import ready
from zoo.data.parallel import ParallelData
from zoo.data.text import Table
from zoo.data.tokens import BEGIN, END, UNKNOWN
from zoo.inference.predictions import collate, prediction_rows, read_inputs
from zoo.tasks import Seq2Seq
from zoo.tasks.seq2seq import BLEU, CHRF

WORDS = ["anna", "otto", "hannah", "bob", "eve", "abba", "noon", "level", "radar", "deed", "a bob", "an otto", "bad eve"]


def Pairs(sources, targets):
    return Table({"first": sources, "second": targets})


TRAIN = Pairs([*WORDS, "~"] * 2, [*WORDS, "~"] * 2)


class KVCache:
    def __init__(self, source):
        self.source, self.length = source, 0

    def select(self, rows):
        self.source = self.source[rows]


class Copier(nn.Module):
    """Copy the source, with logits that also depend on the last token, so that some texts are wrong."""

    max_length = None

    def __init__(self, vocab_size: int, firmness: float = 3.0, seed: int = 0) -> None:
        super().__init__()
        table = torch.randn(vocab_size, vocab_size, generator=torch.Generator().manual_seed(seed))
        table[:, [0, UNKNOWN, BEGIN]] = -9.0
        self.table, self.firmness = nn.Parameter(table), firmness

    def _logits(self, source, tokens, start):
        places = (start + torch.arange(tokens.shape[1])).clamp(max=source.shape[1] - 1)
        return self.table[tokens] + self.firmness * F.one_hot(source[:, places], self.table.shape[0])

    def forward(self, source, tokens):
        return self._logits(source, tokens, 0)

    def init_cache(self, source=None):
        return KVCache(source)

    def decode_step(self, tokens, cache, mask=None):
        cache.length += tokens.shape[1]
        return self._logits(cache.source, tokens, cache.length - tokens.shape[1])


def data_of(test: Table, tokenizer: str = "char", **options) -> ParallelData:
    splits = {"train": TRAIN, "val": test, "test": test}
    return ready(ParallelData(splits, tokenizer=tokenizer, **{"batch_size": 3} | options))


TEST = Pairs(
    ["anna bob", "deed", "otto", "eve", "noon abba", "bad", "hannah"],
    ["anna bob", "deed", "otto", "eve", "noon abba", "bed", "hannah"],
)


def task_of(net: nn.Module, smoothing: float = 0.1, tokenizer=None, **decoding) -> Seq2Seq:
    return Seq2Seq(net, 40, tokenizer=tokenizer, label_smoothing=smoothing, decoding=decoding)


@pytest.fixture
def evaluated(measured):
    """Return the function that evaluates a task with the tokenizer of the data."""

    def evaluate(task: Seq2Seq, data: ParallelData, stage: str = "test") -> dict[str, float]:
        task.tokenizer = data.tokenizer
        return measured(task, data, stage)

    return evaluate


def copier(data: ParallelData, **options) -> Copier:
    return Copier(data.info.vocab_size, **options)


def by_hand(net: nn.Module, data: ParallelData) -> list[str]:
    """Decode greedily without a cache, in the order of the test split."""
    found = [""] * len(data.splits["test"])
    for (source, _), _, rows, _ in data.test_dataloader():
        for one, row in zip(source, rows.tolist(), strict=True):
            text = [BEGIN]
            while text[-1] != END and len(text) <= data.tokenizer.max_length:
                with torch.no_grad():
                    logits = net(one[None], torch.tensor([text]))[0, -1]
                logits[[0, UNKNOWN, BEGIN]] = -torch.inf
                text.append(int(logits.argmax()))
            found[row] = data.tokenizer.decode(text[1:])
    return found


# --- exact match ---


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("size", [1, 10])
def test_exact_match_of_validation_equals_that_of_generation(evaluated, size, seed):
    """Validation uses teacher forcing, testing generates."""
    data = data_of(TEST, batch_size=size)
    net = copier(data, seed=seed)
    val, test = (evaluated(task_of(net), data, stage) for stage in ("val", "test"))
    expected = sum(one == other for one, other in zip(by_hand(net, data), TEST.texts[1], strict=True)) / len(TEST)
    assert val.keys() == {"loss", "exact_match"}
    assert test["exact_match"] == val["exact_match"] == pytest.approx(expected)
    assert test["loss"] == val["loss"]


def test_an_unknown_character_is_also_wrong_in_validation(evaluated):
    unknown = Pairs(["d\N{SNOWMAN}eed", "eve"], ["d\N{SNOWMAN}eed", "eve"])
    data = data_of(unknown)
    net = copier(data, firmness=100.0)  # copies the unknown token, which decoding never generates
    assert [evaluated(task_of(net), data, stage)["exact_match"] for stage in ("val", "test")] == [0.5, 0.5]


def test_a_truncated_reference_is_wrong(evaluated):
    data = data_of(Pairs(["a bob", "eve"], ["a bob an otto", "eve"]), max_length=6)
    assert [len(text) for text in data._tokens["test"][1]] == [6, 4]  # "a bob" and its end
    assert evaluated(task_of(copier(data, firmness=100.0)), data)["exact_match"] == 0.5


# --- scores ---


def score(metric, written, references):
    for text, reference in zip(written, references, strict=True):
        metric.update([text], [[reference]])
    return metric.compute().item()


@pytest.mark.parametrize("tokenizer", ["char", "bpe"])
@pytest.mark.parametrize("beam", [1, 3])
def test_scores_equal_those_of_the_written_texts(evaluated, tokenizer, beam):
    """References are the original texts, with unknown characters and not truncated."""
    references = [*TEST.texts[1][:-2], "b\N{SNOWMAN}d", "hannah" * 3]
    data = data_of(Pairs(TEST.texts[0], references), tokenizer, max_length=12, vocab=300)
    net = copier(data, seed=2)
    task = task_of(net, tokenizer=data.tokenizer, beam=beam)
    written = [""] * len(references)
    for (source, _), _, rows, _ in data.test_dataloader():
        for row, text in zip(rows.tolist(), task.answer(source), strict=True):
            written[row] = data.tokenizer.decode(text)
    if beam == 1:
        assert written == by_hand(net, data)
    found = evaluated(task, data)
    assert found["bleu"] == pytest.approx(score(BLEU(), written, references), abs=1e-4)
    assert found["chrf"] == pytest.approx(score(CHRF(), written, references), abs=1e-4)
    assert 0 < found["chrf"] < 100


@pytest.mark.parametrize(
    ("written", "reference", "expected"),
    [
        ("the cat sat on the mat", "the cat is on the mat", 37.991784),  # 5/6, 3/5, 1/4, and 0/3 counts as 1/6
        ("the cat sat on a mat", "the cat is on the mat", 100 * (4 / 6 * 1 / 5 * 1 / 8 * 1 / 12) ** 0.25),
        ("a b c d", "a b c d e", 100 * math.exp(-1 / 4)),
        ("a b c", "a b c", 0.0),  # there is no 4-gram
        ("x y z v w", "a b c d e", 0.0),
        ("", "a b c d e", 0.0),
    ],
)
def test_bleu_is_smoothed_as_by_sacrebleu(written, reference, expected):
    assert score(BLEU(), [written], [reference]) == pytest.approx(expected, abs=1e-4)


def test_bleu_of_long_texts_equals_that_of_torchmetrics():
    references = ['It\'s a "small" test, of 3.5 words - or more.', "the cat is on the mat"]
    written = ['It\'s a "small" test, of 3,5 words - or less.', "the cat is on a mat"]
    expected = 100 * sacre_bleu_score(written, [[reference] for reference in references]).item()
    assert score(BLEU(), written, references) == pytest.approx(expected, abs=1e-4)


def f2(precisions, recalls):
    precision, recall = (sum(parts) / len(parts) for parts in (precisions, recalls))
    return 100 * 5 * precision * recall / (4 * precision + recall)


@pytest.mark.parametrize(
    ("written", "references", "expected"),
    [
        (["cat"], ["cat"], 100.0),  # it has no n-grams of 4 characters and no pair of words
        (["ab"], ["abc"], f2([2 / 2, 1 / 1, 0], [2 / 3, 1 / 2, 0])),  # characters, pairs of them, words
        (["abc"], ["ab"], f2([2 / 3, 1 / 2, 0], [2 / 2, 1 / 1, 0])),
        (["a b.\tb"], ["ab. c"], f2([3 / 4, 2 / 3, 1 / 2, 0, 1 / 4, 0], [3 / 4, 2 / 3, 1 / 2, 0, 1 / 3, 0])),
        (["cat", "", "x"], ["cat", "dog", "owl"], f2([3 / 4, 1, 1, 1 / 2], [3 / 9, 2 / 6, 1 / 3, 1 / 3])),
        (["", ""], ["cat", "dog"], 0.0),
    ],
)
def test_chrf_equals_that_of_sacrebleu(written, references, expected):
    """A text without any match counts, and lengths of n-grams that no text has do not."""
    assert score(CHRF(), written, references) == pytest.approx(expected, abs=1e-4)


# --- decoding ---


def test_the_default_length():
    data = data_of(TEST)
    net = copier(data)
    with torch.no_grad():
        net.table[:, END] = -50.0  # never ends
    source, longest = torch.tensor([[4, 5, END]]), data.tokenizer.max_length
    assert len(task_of(net, tokenizer=data.tokenizer).answer(source)[0]) == longest
    assert len(task_of(net, tokenizer=data.tokenizer, length=30).answer(source)[0]) == 30
    net.max_length = 6
    assert len(task_of(net, tokenizer=data.tokenizer).answer(source)[0]) == 5
    assert len(task_of(net, tokenizer=data.tokenizer, length=3).answer(source)[0]) == 3


def test_samples_do_not_depend_on_the_batch():
    data = data_of(TEST)
    task = task_of(copier(data, firmness=0.0), tokenizer=data.tokenizer, temperature=1.0, length=6)
    task.info = data.info
    examples = list(read_inputs(task, ["bob", "bob", ("",), "eve"]))
    found = []
    for size in (1, 2, 4):
        parts = [examples[first : first + size] for first in range(0, 4, size)]
        found.append(
            [row["target"] for part in parts for row in prediction_rows(task, part, task.predict_step(collate(task, part)))]
        )
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]
    by_row = [{}, {}]
    for texts, loader in zip(by_row, (data, data_of(TEST, batch_size=2)), strict=True):
        for batch in loader.test_dataloader():
            texts |= dict(zip(batch[2].tolist(), task.predict_step(batch), strict=True))
    assert by_row[0] == by_row[1]


# --- loss ---


@pytest.mark.parametrize("stage", ["val", "test"])
def test_the_loss_is_a_mean_over_tokens(evaluated, stage):
    data = data_of(TEST, batch_size=2)
    net = copier(data)
    nats, count = 0.0, 0
    with torch.no_grad():
        for (source, shifted), targets, *_ in data.test_dataloader():
            nats += F.cross_entropy(
                net(source, shifted).flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum"
            ).item()
            count += int((targets != 0).sum())
    assert count == sum(map(len, TEST.texts[1])) + len(TEST)
    assert evaluated(task_of(net), data, stage)["loss"] == pytest.approx(nats / count, rel=1e-5)
