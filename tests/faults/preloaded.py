"""Import the modules of all commands in the process that `tests.faults.process` forks from."""

import gc
import os
import warnings
from contextlib import suppress
from importlib import import_module

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
warnings.simplefilter("ignore")

MODULES = """
    torch sklearn.datasets lightning.pytorch lightning.pytorch.loggers rich.progress tensorboard.compat.proto zoo.cli.fit
    zoo.cli.models zoo.inference.model zoo.training.fit zoo_experiments.folds
    zoo.cli.parser zoo_experiments.command zoo_experiments.lottery timm huggingface_hub docstring_parser
"""

for name in MODULES.split():
    import_module(name)
import_module("torch").set_num_threads(1)

registry = import_module("zoo.registry")
for group in registry.GROUPS:
    for entry in registry.entries(group):
        with suppress(registry.PluginError):
            registry.load(entry)

gc.collect()
gc.freeze()  # so that forked processes share the pages of these objects
