"""Quantization-aware training: rounded weights in the forward pass, updates of the weights before rounding."""

import shutil
from copy import deepcopy

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import zoo
from tests.errors import raises
from zoo.conversion.quantization import RoundedWeights, dequantized
from zoo.nn import Linear
from zoo.training.options import Average
from zoo.training.quantization import QuantizationAware
from zoo.training.runs import average, recover

BATCH = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))


class Recorded(pl.LightningModule):
    """Regression with SGD; records the components in the forward passes."""

    def __init__(self, net):
        super().__init__()
        self.net, self.seen, self.validated = net, [], []

    def training_step(self, batch, batch_idx):
        self.seen.append(self.net[0].components.detach().clone())
        return self.net(batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.validated.append(self.net[0].components.detach().clone())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(Linear(6, 8, algebra="quaternion"), nn.Tanh(), nn.Linear(8, 2))


def fit(net, *callbacks, steps=1, **options):
    module = Recorded(net)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_steps=steps, accelerator="cpu", callbacks=list(callbacks), **quiet, **options)
    trainer.fit(module, DataLoader([BATCH] * steps, batch_size=None), DataLoader([BATCH], batch_size=None))
    return module


@pytest.mark.parametrize("format", ["int8", "int4"])
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_a_step_is_the_gradient_at_the_rounded_weights(format):
    net = small_network()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    rounded, bits = deepcopy(net), int(format[3:])
    rounded.load_state_dict(dequantized(zoo.quantize(net, bits)).state_dict())
    rounded(BATCH).square().mean().backward()
    module = fit(net, QuantizationAware(format))
    assert torch.equal(module.seen[0], rounded[0].components)
    for name, new in net.named_parameters():
        torch.testing.assert_close(new, before[name] - 0.5 * rounded.get_parameter(name).grad, rtol=0, atol=1e-7)
    assert torch.equal(module.validated[-1], dequantized(zoo.quantize(net, bits))[0].components)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_moving_averages_are_of_the_weights_before_rounding():
    means = pl.callbacks.WeightAveraging(avg_fn=lambda mean, weight, count: mean.lerp(weight, 0.5))
    net, steps = small_network(), []

    class Kept(pl.Callback):
        def on_train_batch_end(self, trainer, module, *_):
            steps.append(module.net[0].components.detach().clone())

    module = fit(net, QuantizationAware("int8"), means, Kept(), steps=2)
    mean = steps[0].lerp(steps[1], 0.5)
    torch.testing.assert_close(net[0].components.detach(), mean, rtol=0, atol=1e-7)  # the average is the result
    assert torch.equal(module.validated[-1], dequantized(zoo.quantize(net))[0].components)


def test_rounded_weights_are_restored_bit_for_bit():
    net = zoo.backbone("gpt(dim=16, depth=1, heads=2)", "octonion", vocab_size=20, max_length=8)
    before = {name: p.clone() for name, p in net.state_dict().items()}
    weights, expected = RoundedWeights(net, 8), dequantized(zoo.quantize(net)).state_dict()
    weights.round()
    weights.round()  # once is enough
    assert all(torch.equal(p, expected[name]) for name, p in net.state_dict().items())
    weights.restore()
    assert all(torch.equal(p, before[name]) for name, p in net.state_dict().items())


def test_pruned_weights_stay_zero():
    net = nn.Linear(64, 8)
    with torch.no_grad():
        net.weight[:, ::2] = 0
    RoundedWeights(net, 4).round()
    zeros = net.weight.detach()[:, ::2]
    assert not zeros.any()
    assert not zeros.signbit().any()  # a stored ticket keeps -0.0 like a number


TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "limit_train_batches": 10}
RUN = {"backbone": "vit(dim=16, depth=1, heads=2)", "algebra": "quaternion", "trainer": TRAINER}


@pytest.mark.parametrize("format", ["int8", "int4"])
def test_the_saved_model_is_the_quantized_network(format, tmp_path):
    run, bits = tmp_path / "run", int(format[3:])
    summary = zoo.fit(**RUN, quantize_aware=format, keep=2, run_dir=str(run))
    model = zoo.load(run)
    assert model.evaluate() == pytest.approx(summary["metrics"], abs=1e-6)
    validated = model.evaluate(split="val")[summary["validation"]["metric"]]
    assert validated == pytest.approx(summary["validation"]["value"], abs=1e-5)
    exact = torch.load(summary["checkpoint"], weights_only=False)["state_dict"]
    latent = {name.removeprefix("net."): value for name, value in exact.items() if name.startswith("net.")}
    assert any((latent[name] - value).abs().max() > 1e-3 for name, value in model.net.state_dict().items())
    trained = zoo.load(run).net
    trained.load_state_dict(latent)
    for one, other in zip(zoo.quantize(model.net, bits).parameters(), zoo.quantize(trained, bits).parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=0)  # the same integers
    shutil.rmtree(run / "model")
    recover(run)
    assert all(torch.equal(value, model.net.state_dict()[name]) for name, value in zoo.load(run).net.state_dict().items())
    means = zoo.load(average(run, Average(last=2))["folder"]).net
    again = dequantized(zoo.quantize(means, bits)).state_dict()
    for name, value in means.state_dict().items():  # averaged, then rounded
        torch.testing.assert_close(again[name], value, rtol=1e-6, atol=0)


def test_invalid_quantization_aware_training(tmp_path):
    with raises("unknown", "int3", "int8, int4"):
        zoo.fit(**RUN, quantize_aware="int3", run_dir=str(tmp_path / "run"))
    net = small_network()
    nn.utils.parametrizations.weight_norm(net[2])
    with raises("unsupported", "2.parametrizations.weight", "remove_parametrizations"):
        fit(net, QuantizationAware("int8"))

    class Manual(Recorded):
        automatic_optimization = False

    with raises("unsupported", "manual optimization"):
        QuantizationAware("int8").setup(None, Manual(net), "fit")
    assert not list(tmp_path.iterdir())
