"""Metrics of two processes equal those of one, with unequal numbers of batches, also if one process has none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys, warnings
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader
from tests.tasks.test_seq2seq import Copier
from zoo.data.tokenizer import train_tokenizer
from zoo.tasks import AnswerRanking, Classification, LanguageModel, Regression, Seq2Seq

out, devices = sys.argv[1], int(sys.argv[2])
draw = torch.Generator().manual_seed(0)
WORDS = ["anna", "otto", "hannah bob", "eve", "abba a", "noon", "level deed"]
tokenizer = train_tokenizer("char", WORDS, 40, False, 1, ends=True).limited(20)
vocab = tokenizer.vocab_size


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 9, generator=torch.Generator().manual_seed(1)))

    def forward(self, tokens):
        return self.table[tokens]


class Identity(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, *inputs):
        return inputs[-1]


def parallel(rows):
    tokens = tokenizer.encode(rows, ended=True).padded() if rows else torch.zeros(0, 1, dtype=torch.int64)
    shifted = torch.cat([tokens.new_full((len(rows), 1), 2), tokens[:, :-1]], 1)
    return (tokens, shifted.masked_fill(shifted == 3, 0)), tokens, torch.arange(len(rows)), list(rows)


sizes = [3, 1, 4, 0, 2]
logits = [torch.randn(size, 2, generator=draw) for size in sizes]
labels = [torch.randint(2, (size,), generator=draw) for size in sizes]
groups = [torch.randint(3, (size,), generator=draw) for size in sizes]
tokens = [torch.randint(1, 9, (size, 5), generator=draw) for size in sizes]
TASKS = {
    "classification": (Classification(Identity(), 2), list(zip(logits, labels))),
    "ranking": (AnswerRanking(Identity()), [((x, x), y, g) for x, y, g in zip(logits, labels, groups)]),
    "regression": (Regression(Identity(), 2), [(x, x * 1.5 + 1) for x in logits]),
    "language": (LanguageModel(Table(), 9), [(t, t.flip(1), torch.full((len(t), 2), 5)) for t in tokens]),
    "seq2seq": (
        Seq2Seq(Copier(vocab, seed=2), vocab, tokenizer=tokenizer),
        [parallel(WORDS[i : i + n]) for i, n in ((0, 3), (3, 1), (4, 0), (4, 2), (6, 1))],
    ),
}
results = {}
trainer = Trainer(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", logger=False,
                  enable_checkpointing=False, enable_progress_bar=False, use_distributed_sampler=False, max_epochs=1)
for name, (task, batches) in TASKS.items():
    empty = [batch for batch in batches if not len(batch[1])]
    for case, shares in (("uneven", (batches[::2], batches[1::2])), ("one has none", (batches, empty))):
        mine = batches if devices == 1 else shares[trainer.global_rank]
        loader = DataLoader(mine, batch_size=None, collate_fn=lambda batch: batch)
        results[f"{name}, {case}, test"] = trainer.test(task, loader, verbose=False)[0]
        results[f"{name}, {case}, val"] = trainer.validate(task, loader, verbose=False)[0]
if trainer.is_global_zero:
    open(out, "w").write(json.dumps(results))
"""


def measured(folder: Path, devices: int) -> dict[str, dict[str, float]]:
    """Run the script in its own process, which starts the others."""
    script, out = folder / "script.py", folder / f"{devices}.json"
    script.write_text(SCRIPT)
    words = [sys.executable, "-W", "ignore", str(script), str(out), str(devices)]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.read_text())


@pytest.mark.slow
def test_metrics_of_two_processes_equal_those_of_one(tmp_path):
    one, two = measured(tmp_path, 1), measured(tmp_path, 2)
    assert len(one) == 20
    assert {name for results in one.values() for name in results} > {
        "test_map", "test_bleu", "test_exact_match", "test_perplexity", "test_mse", "test_f1"
    }  # fmt: skip
    for name, results in one.items():
        assert two[name] == pytest.approx(results, rel=1e-6), name
