"""The base class of tasks: network, optimizer and learning rate schedule."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from torch import nn
from torch.utils.data import DataLoader

from zoo.errors import InputError
from zoo.tasks import Classification
from zoo.tasks.optimization import lr_factor, undecayed


def configured(net: nn.Module, **options):
    """Return the optimizers of a task in a run of 20 steps."""
    task = Classification(net, 3, **options)
    task.trainer = SimpleNamespace(estimated_stepping_batches=20)
    return task.configure_optimizers()


def weight_decays(net: nn.Module) -> dict[str, float]:
    groups = configured(net, lr=0.1, weight_decay=0.3)["optimizer"].param_groups
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert len(decay) == len(list(net.parameters()))
    return {name: decay[id(parameter)] for name, parameter in net.named_parameters()}


def test_invalid_options():
    for options in ({"lr": -1.0}, {"schedule": "cos"}, {"label_smoothing": 2.0}):
        with pytest.raises(InputError):
            Classification(nn.Linear(2, 3), 3, **options)
        with pytest.raises(InputError):
            Classification.check_options(num_classes=3, **options)


def test_modules_can_exclude_parameters_from_weight_decay():
    class Wave(nn.Module):
        def __init__(self):
            super().__init__()
            self.frequency, self.amplitude = nn.Embedding(3, 4), nn.Embedding(3, 4)

        def no_weight_decay(self):
            return {"frequency.weight"}

    net = nn.Sequential(Wave(), nn.Linear(4, 2))
    assert undecayed(net) == {"0.frequency.weight"}
    assert weight_decays(net) == {"0.frequency.weight": 0.0, "0.amplitude.weight": 0.3, "1.weight": 0.3, "1.bias": 0.0}


class Rates(Callback):
    """Record the learning rate of every optimizer step; stop after two epochs."""

    def __init__(self):
        self.rates = []

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = trainer.current_epoch == 1


def learning_rates(examples: int, schedule: str, warmup: float, **options) -> list[float]:
    """Train with batches of two examples, and return the learning rates."""
    rates, loader = Rates(), DataLoader([(torch.randn(2), torch.tensor(1)) for _ in range(examples)], batch_size=2)
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", num_sanity_val_steps=0, callbacks=[rates], **settings, **options)
    task = Classification(nn.Linear(2, 3), 3, optimizer="sgd", lr=0.5, schedule=schedule, warmup=warmup)
    trainer.fit(task, loader, loader)
    return rates.rates


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_schedule_counts_optimizer_steps(accumulate):
    """With 10 batches per epoch, the last accumulation may be smaller."""
    rates = learning_rates(20, "inverse_sqrt", 0.25, max_epochs=2, accumulate_grad_batches=accumulate)
    steps = 2 * -(-10 // accumulate)
    assert rates == pytest.approx([0.5 * lr_factor(step, steps, "inverse_sqrt", 0.25) for step in range(steps)])
