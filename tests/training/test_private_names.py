"""The private names of torch and Lightning that training uses exist in the installed versions."""

import inspect
import re
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import wandb
from lightning.pytorch.strategies import DDPStrategy, launchers

import zoo.training
from zoo.training.resume import logged_steps, set_counters

OURS = re.compile(r"\b(?:self|cls|super\(\))\._|\._(?:asdict|replace)\b|_pytree")
LOOP = {"_data_fetcher", "_results", "_batches_that_stepped"}
NAMES = LOOP | {"_signal_connector", "_sigterm_notifier_fn", "_timeout", "_sync_buffers", "_save_dir", "_wandb_init"}


def test_training_uses_no_other_private_names():
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(zoo.training.__file__).parent.glob("*.py"))
    lines = [OURS.sub("", line.split("#")[0]) for line in text.splitlines()]
    assert {name for line in lines for name in re.findall(r"(?<=\w)\.(_[a-z]\w*)", line)} == NAMES


def test_private_names_exist():
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    loop = trainer.fit_loop
    assert hasattr(loop, "_data_fetcher")
    assert hasattr(loop.epoch_loop, "_results")
    assert logged_steps(trainer) == 0
    set_counters(trainer, 1, 3)
    assert logged_steps(trainer) == 3
    assert hasattr(trainer._signal_connector, "_sigterm_notifier_fn")
    assert hasattr(DDPStrategy(), "_timeout")
    assert hasattr(launchers, "_SubprocessScriptLauncher")
    assert hasattr(torch.nn.parallel.DistributedDataParallel, "_sync_buffers")
    assert {"_save_dir", "_wandb_init"} <= set(re.findall(r"self\.(\w+)", inspect.getsource(wandb.WandbLogger.__init__)))
