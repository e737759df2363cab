"""Perplexity and bits per character against their definitions, and the memory of networks."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.backbones.build import backbone
from zoo.data import ready
from zoo.data.corpus import CorpusData as unopened_CorpusData
from zoo.data.corpus import Text
from zoo.inference.evaluation import make_trainer
from zoo.tasks import LanguageModel, Optimizer


def CorpusData(*args, **options):
    return ready(unopened_CorpusData(*args, **options))


LETTERS = "Ein Öltank: naïve Łodzer aßen 日本の麺, süß und heiß. Çava? "
TEXTS = {
    "train": LETTERS * 8,
    "val": "Ein naïver Łodzer aß süße 麺. " * 3,
    "test": "Ein Łodz: 日本 süß, Öl heiß, aß Çava? " * 2 + "E麺",
}


class Pairs(nn.Module):
    """A bigram model with a table of logits."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, vocab_size, generator=torch.Generator().manual_seed(0)))

    def forward(self, tokens):
        return self.table[tokens]


def data_of(tokenizer: str = "char", vocab: int = 100, **options) -> CorpusData:
    splits = {name: Text(text) for name, text in TEXTS.items()}
    return CorpusData(splits, tokenizer=tokenizer, vocab=vocab, **{"max_length": 7, "batch_size": 3} | options)


def task_of(net: nn.Module, outputs: int, smoothing: float = 0.0) -> LanguageModel:
    return LanguageModel(net, outputs, optimizer=Optimizer(lr=1e-30), label_smoothing=smoothing)


# --- numbers ---


@pytest.mark.parametrize("stage", ["val", "test"])
@pytest.mark.parametrize("stream", [False, True], ids=["blocks", "stream"])
@pytest.mark.parametrize(("tokenizer", "vocab"), [("char", 100), ("bpe", 270)])
def test_metrics_on_characters_of_one_two_and_three_bytes(measured, tokenizer, vocab, stream, stage):
    data = data_of(tokenizer, vocab, stream=stream)
    net, tokens = Pairs(data.info.vocab_size), torch.as_tensor(data.splits[stage].astype("int64"))
    # In blocks of 7, three at a time: neither the last block nor the last batch is full.
    assert (len(tokens) - 1) % 7
    nats = -net.table.log_softmax(-1)[tokens[:-1], tokens[1:]].double().sum().item()
    behind = TEXTS[stage].removeprefix(data.tokenizer.decode(tokens[:1].tolist()))  # the first token is not predicted
    assert len(behind) < len(TEXTS[stage])
    assert len(behind.encode()) > 1.1 * len(behind)
    expected = {
        "loss": nats / (len(tokens) - 1),
        "perplexity": math.exp(nats / (len(tokens) - 1)),
        "bits_per_character": nats / math.log(2) / len(behind),
        "bits_per_byte": nats / math.log(2) / len(behind.encode()),
    }
    assert measured(task_of(net, data.info.vocab_size), data, stage) == pytest.approx(expected, rel=1e-5)


def test_label_smoothing_in_training_only():
    data = data_of()
    vocab = data.info.vocab_size
    task, batch = task_of(Pairs(vocab), vocab, 0.2), next(iter(data.val_dataloader()))
    tokens, targets, lengths = batch
    targets = targets.clone()
    targets[0, -3:] = 0  # as at the end of a text
    logs = task.net(tokens).log_softmax(-1)
    right, all_ = -logs.gather(-1, targets[..., None])[..., 0], -logs.mean(-1)
    kept = targets != 0
    plain = right[kept].mean()
    smooth = (0.8 * right + 0.2 * all_)[kept].mean()
    assert abs(smooth - plain) > 0.01
    assert task.train().step((tokens, targets, lengths)).loss.item() == pytest.approx(smooth.item(), rel=1e-5)
    results = task.eval().step((tokens, targets, lengths))
    assert results.loss.item() == pytest.approx(plain.item(), rel=1e-5)
    assert results.size == kept.sum()
    assert results.predictions.sum().item() == pytest.approx(plain.item() * results.size, rel=1e-5)


# --- memory ---


class Recorder(nn.Module):
    """Record whether the network is trained, and the number of batches in its memory."""

    has_memory = True

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.bias, self.seen = nn.Parameter(torch.zeros(outputs)), []

    def forward(self, tokens, memory=None):
        self.seen.append((self.training, len(memory)))
        memory.append(tokens)
        return self.bias.expand(*tokens.shape, -1)


def test_the_memory_lasts_an_epoch_and_evaluation_does_not_change_it():
    data = data_of(stream=True, batch_size=4)
    net = Recorder(data.info.vocab_size)
    settings = {"accelerator": "cpu", "max_epochs": 2, "val_check_interval": 5, "limit_train_batches": 10}
    settings |= {"limit_val_batches": 1, "num_sanity_val_steps": 1, "logger": False, "enable_checkpointing": False}
    trainer = make_trainer(settings, torch.device("cpu"), torch.nn.Identity())
    trainer.fit(task_of(net, data.info.vocab_size), data)
    trained = [count for training, count in net.seen if training]
    assert trained == [*range(10), *range(10)]
    assert [count for training, count in net.seen if not training] == [0] * (len(net.seen) - 20)
    assert len(net.seen) >= 24  # also within an epoch
    assert (False, 0) in net.seen[net.seen.index((True, 4)) : net.seen.index((True, 5))]


def test_segments_with_a_long_memory_have_the_loss_of_whole_streams(measured):
    splits = {"train": Text(LETTERS * 8), "val": Text(TEXTS["test"]), "test": Text(TEXTS["test"] * 8)}
    data = CorpusData(splits, max_length=9, stream=True)
    info = data.info
    torch.manual_seed(0)
    spec = "transformer_xl(dim=16, depth=2, heads=2, ffn=16, memory={})"
    nets = [backbone(spec.format(memory), "quaternion", **info.model_kwargs).eval() for memory in (500, 0)]
    nets[1].load_state_dict(nets[0].state_dict())
    with torch.no_grad():
        batches = list(data.test_dataloader())
        tokens, targets = (torch.cat([batch[i] for batch in batches], 1) for i in range(2))
        assert len(batches) > 2
        loss = F.cross_entropy(nets[0](tokens).flatten(0, 1), targets.flatten(), ignore_index=0).item()
    results = [measured(task_of(net, info.vocab_size), data)["loss"] for net in nets]
    assert results[0] == pytest.approx(loss, rel=1e-5)
    assert abs(results[1] - loss) > 1e-4  # control
