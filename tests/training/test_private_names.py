"""The private names of torch and Lightning that training uses exist in the installed versions."""

import inspect
import re
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import wandb
from lightning.pytorch.strategies import DDPStrategy

import zoo.training
from zoo.training import state

FOLDER = Path(zoo.training.__file__).parent
OURS = re.compile(r"\b(?:self|cls|super\(\))\._|\._(?:asdict|replace)\b|_pytree")


def test_private_names_exist():
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    loop = trainer.fit_loop
    assert hasattr(loop, "_data_fetcher")
    assert hasattr(loop.epoch_loop, "_results")
    assert state.logged_steps(trainer) == 0
    state.set_counters(trainer, 1, 3)
    assert state.logged_steps(trainer) == 3
    assert hasattr(trainer._signal_connector, "_sigterm_notifier_fn")
    assert hasattr(DDPStrategy(), "_timeout")
    assert not state.starts_scripts(trainer.strategy)
    assert hasattr(torch.nn.parallel.DistributedDataParallel, "_sync_buffers")
    assert {"_save_dir", "_wandb_init"} <= set(re.findall(r"self\.(\w+)", inspect.getsource(wandb.WandbLogger.__init__)))


def test_no_other_file_uses_private_names():
    for path in FOLDER.glob("*.py"):
        lines = [line.split("#")[0] for line in path.read_text(encoding="utf-8").splitlines()]
        private = [line for line in lines if re.search(r"\w\._[a-z]", OURS.sub("", line))]
        assert path.name == "state.py" or not private, f"{path.name}: {private}"
