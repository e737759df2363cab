"""What every task shares: its network, how the optimizer is built, and one step for all stages."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from torch import nn
from torch.utils.data import DataLoader

from zoo.errors import InputError
from zoo.tasks import Classification
from zoo.tasks.optimization import lr_factor, undecayed


class Plan:
    """As much of a trainer as `configure_optimizers` reads."""

    estimated_stepping_batches = 20


@pytest.fixture
def configured(monkeypatch):
    def make(net: nn.Module, **options):
        task = Classification(net, 3, **options)
        monkeypatch.setattr(Classification, "trainer", Plan(), raising=False)
        return task.configure_optimizers()

    return make


def test_norms_and_biases_are_not_decayed(configured):
    net = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Conv1d(1, 1, 3), nn.Linear(3, 3, bias=False))
    groups = configured(net, lr=0.1, weight_decay=0.3)["optimizer"].param_groups
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert len(decay) == len(list(net.parameters()))
    for name, parameter in net.named_parameters():
        assert decay[id(parameter)] == (0.3 if parameter.ndim > 1 else 0.0), name


def test_the_rate_moves_every_step_and_peaks_at_lr(configured):
    made = configured(nn.Linear(2, 3), optimizer="sgd", lr=0.5, schedule="linear", warmup=0.2)
    assert made["lr_scheduler"]["interval"] == "step"
    optimizer, scheduler = made["optimizer"], made["lr_scheduler"]["scheduler"]
    rates = []
    for _ in range(20):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0.5 * lr_factor(step, 20, "linear", 0.2) for step in range(20)])
    assert max(rates) == 0.5


def test_bad_options_are_refused_before_anything_is_built():
    for options in ({"lr": -1.0}, {"schedule": "cos"}, {"metrics": ("Nonsense",)}, {"label_smoothing": 2.0}):
        with pytest.raises(InputError):
            Classification(nn.Linear(2, 3), 3, **options)
        with pytest.raises(InputError):
            Classification.check_options(num_classes=3, **options)


def test_a_task_is_its_network():
    net = nn.Linear(2, 3)
    task = Classification(net, 3)
    x = torch.randn(5, 2)
    assert torch.equal(task(x), net(x))
    assert set(task.state_dict()) == {"net.weight", "net.bias"}


def test_modules_keep_what_they_want_from_decay():
    class Wave(nn.Module):
        def __init__(self):
            super().__init__()
            self.frequency, self.amplitude = nn.Embedding(3, 4), nn.Embedding(3, 4)

        def no_weight_decay(self):
            return {"frequency.weight"}

    net = nn.Sequential(Wave(), nn.Linear(4, 2))
    assert undecayed(net) == {"0.frequency.weight"}
    task = Classification(net, 2, lr=0.1, weight_decay=0.3, schedule="constant", warmup=0.0)
    task.trainer = SimpleNamespace(estimated_stepping_batches=10)
    decay = {
        id(p): group["weight_decay"] for group in task.configure_optimizers()["optimizer"].param_groups for p in group["params"]
    }
    found = {name: decay[id(p)] for name, p in net.named_parameters()}
    assert found == {"0.frequency.weight": 0.0, "0.amplitude.weight": 0.3, "1.weight": 0.3, "1.bias": 0.0}


class Rates(Callback):
    """Writes down the learning rate of every step of the optimizer."""

    def __init__(self):
        self.found = []

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.found.append(optimizer.param_groups[0]["lr"])


class Stop(Callback):
    """Ends a run without an end."""

    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = trainer.current_epoch == 1


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec", "ignore:.*does not have many workers")
@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_the_schedule_counts_steps_of_the_optimizer(accumulate):
    """Ten batches an epoch: gradients of the last, smaller group are used too."""
    rates = Rates()
    loader = DataLoader([(torch.randn(2), torch.tensor(1)) for _ in range(20)], batch_size=2)
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", max_epochs=2, num_sanity_val_steps=0, accumulate_grad_batches=accumulate, **settings)
    trainer.callbacks.append(rates)
    trainer.fit(
        Classification(nn.Linear(2, 3), 3, optimizer="sgd", lr=0.5, schedule="inverse_sqrt", warmup=0.25), loader, loader
    )
    steps = 2 * -(-10 // accumulate)
    assert rates.found == pytest.approx([0.5 * lr_factor(step, steps, "inverse_sqrt", 0.25) for step in range(steps)])


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec", "ignore:.*does not have many workers")
def test_a_run_without_an_end_has_a_constant_rate():
    rates, loader = Rates(), DataLoader([(torch.randn(2), torch.tensor(1)) for _ in range(4)], batch_size=2)
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", max_epochs=-1, num_sanity_val_steps=0, **settings)
    trainer.callbacks += [rates, Stop()]
    trainer.fit(Classification(nn.Linear(2, 3), 3, optimizer="sgd", lr=0.5, schedule="constant", warmup=0.0), loader, loader)
    assert rates.found == [0.5] * 4
