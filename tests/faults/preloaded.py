"""What a command imports before it does anything, imported once: `tests.faults.process` forks from a process that has it."""

import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
warnings.simplefilter("ignore")

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger

import zoo.cli.fit
import zoo.cli.models
import zoo.inference.model
import zoo.training.api
import zoo.training.fit
import zoo.training.folds
from zoo import registry

torch.set_num_threads(1)
__all__ = ["TensorBoardLogger", "Trainer"]

for kind in registry.GROUPS:
    for entry in registry.entries(kind):
        registry.load(entry)
