"""Quantization-aware training: rounded weights in the forward pass, updates of the weights before rounding."""

import json
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
from zoo.training.quantization import QuantizationAware

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


TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "limit_train_batches": 10}
RUN = {"backbone": "vit(dim=16, depth=1, heads=2)", "algebra": "quaternion", "trainer": TRAINER}


def test_a_run_stores_the_metrics_of_both_networks(tmp_path, capsys):
    summary = zoo.fit(**RUN, quantize_aware="int4", run_dir=str(tmp_path / "run"))
    lines = capsys.readouterr().out.splitlines()
    small, model = summary["quantized"], zoo.load(tmp_path / "run")
    assert json.loads((tmp_path / "run/summary.json").read_text())["quantized"] == small
    assert small["format"] == "int4"
    assert small["metrics"] != summary["metrics"]
    assert model.evaluate() == pytest.approx(summary["metrics"], abs=1e-6)
    assert zoo.quantize(model, bits=4).evaluate() == pytest.approx(small["metrics"], abs=1e-5)
    validated = zoo.quantize(model, bits=4).evaluate(split="val")[summary["validation"]["metric"]]
    assert validated == pytest.approx(summary["validation"]["value"], abs=1e-5)
    shown = next(line for line in lines if "test accuracy, int4" in line)
    assert f"{small['metrics']['accuracy']:.4f}" in shown
    rows = (tmp_path / "run/metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("test_accuracy")
    assert len([row for row in rows[1:] if row.split(",")[column]]) == 1  # those of the network in model/


def test_folds_average_the_metrics_of_quantized_networks(tmp_path, corpus):
    corpus(tmp_path / "text.tsv", "text")
    summary = zoo.fit(
        backbone="fasttext(dim=8, hidden=8)",
        algebra="quaternion",
        data=f"text(path='{tmp_path / 'text.tsv'}')",
        folds=2,
        trainer={"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False},
        quantize_aware="int8",
        run_dir=str(tmp_path / "run"),
    )
    folds = [json.loads((tmp_path / f"run/fold-0{k}/summary.json").read_text())["quantized"]["metrics"] for k in (1, 2)]
    assert summary["quantized"]["metrics"]["loss"] == pytest.approx((folds[0]["loss"] + folds[1]["loss"]) / 2)


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
