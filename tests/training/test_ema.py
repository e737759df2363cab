"""The exponential moving average of the weights: its formula, and its use in validation, checkpoints and models."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from torch import nn

import zoo
from zoo.training.resume import newest
from zoo.training.trainer import moving_average

DECAY = 0.9


class Buffers(LightningModule):
    """A weight, constant and changing buffers of floats and integers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("fixed", torch.tensor([0.1, 0.7, 1 / 3]))
        self.register_buffer("index", torch.arange(50))
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("count", torch.tensor(0))


def test_floats_are_averaged_and_integers_are_copied():
    net, callback = Buffers(), moving_average(DECAY)
    callback.setup(None, net, "fit")
    mean, weights = None, []
    for step in range(300):
        with torch.no_grad():
            net.weight += torch.randn(2)
            net.mean.fill_(step)
            net.count += 1
        weights.append(net.weight.detach().double().clone())
        callback._average_model.update_parameters(net)
        mean = weights[0] if mean is None else DECAY * mean + (1 - DECAY) * weights[-1]
    average = callback._average_model.module
    assert torch.allclose(average.weight.double(), mean, rtol=1e-4, atol=1e-4)
    assert 280 < float(average.mean) < 298  # lags behind 299
    assert torch.equal(average.fixed, net.fixed)
    assert torch.equal(average.index, torch.arange(50))
    assert int(average.count) == 300


# --- runs ---


class Steps(Callback):
    """Records the weights after every optimizer step and in validation."""

    def __init__(self):
        self.trained, self.measured = [], []

    def weights(self, module):
        return nn.utils.parameters_to_vector(module.net.parameters()).detach().clone()

    def on_train_batch_end(self, trainer, module, *args):
        if trainer.global_step > len(self.trained):
            self.trained.append(self.weights(module))

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        if batch_idx == 0:
            self.measured.append(self.weights(module))


def mean_of(weights):
    mean = weights[0]
    for later in weights[1:]:
        mean = DECAY * mean + (1 - DECAY) * later
    return mean


def state_of(path):
    state = torch.load(path, weights_only=True)["state_dict"]
    return {name.removeprefix("net."): value for name, value in state.items()}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_average_is_validated_and_saved(options, accumulate):
    steps = Steps()
    trainer = {"max_epochs": 3, "limit_train_batches": 4, "callbacks": [steps], "accumulate_grad_batches": accumulate}
    summary = zoo.fit(**options(ema=DECAY, optimizer={"lr": 0.05}, schedule={"name": "constant"}, trainer=trainer))
    per_epoch = 4 // accumulate
    assert len(steps.trained) == 3 * per_epoch
    for epoch, measured in enumerate(steps.measured, 1):
        expected = mean_of(steps.trained[: epoch * per_epoch])
        assert torch.allclose(measured, expected, atol=1e-5)
        assert not torch.allclose(measured, steps.trained[epoch * per_epoch - 1], atol=1e-3)
    best = newest(Path(summary["run_dir"]))[1]["zoo_state"]["best"]["epoch"] - 1
    net = zoo.load(summary["run_dir"]).net
    assert torch.allclose(nn.utils.parameters_to_vector(net.parameters()), steps.measured[best], atol=1e-6)
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in state_of(summary["checkpoint"]).items())
