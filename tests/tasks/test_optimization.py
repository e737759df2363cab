"""Learning rate schedules, and options of optimizers."""

import math
import sys
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from timm.optim import list_optimizers
from torch import nn
from torch.utils.data import DataLoader

import zoo
from tests.errors import raises
from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.nn import Conv2d, Embedding, Linear
from zoo.tasks import Classification
from zoo.tasks.base import check_task
from zoo.tasks.optimization import (
    check_network,
    check_optimizer,
    lr_factor,
    make_optimizer,
    mup_scales,
    undecayed,
)
from zoo.tasks.options import DECAYING, SCHEDULES, Optimizer, Schedule


def factors(name: str, warmup: float = 0.2, steps: int = 50) -> list[float]:
    return [lr_factor(step, steps, Schedule(name, warmup)) for step in range(steps + 1)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_warmup_is_linear(name):
    curve = factors(name)
    assert curve[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert max(curve) == 1.0
    assert min(curve[:-1]) > 0


def test_linear_and_cosine_equal_their_definitions():
    linear, cosine = factors("linear", 0.0), factors("cosine", 0.0)
    assert linear == pytest.approx([1 - step / 50 for step in range(51)])
    assert cosine == pytest.approx([(1 + math.cos(math.pi * step / 50)) / 2 for step in range(51)])


def test_inverse_sqrt_equals_its_definition():
    """Vaswani et al. 2017, Equation 3, steps counted from 1."""
    raw = [min(step**-0.5, step * 10**-1.5) for step in range(1, 52)]
    assert factors("inverse_sqrt") == pytest.approx([value / max(raw) for value in raw])
    assert factors("inverse_sqrt").index(1.0) == 9
    assert factors("inverse_sqrt", 0.0) == pytest.approx([step**-0.5 for step in range(1, 52)])


@pytest.mark.parametrize("name", DECAYING)
def test_floor_is_the_final_learning_rate(name):
    curve = [lr_factor(step, 50, Schedule(name, 0.2, 0.1)) for step in range(60)]
    assert curve[:10] == factors(name)[:10]  # the warm-up is the same
    assert curve[10:51] == pytest.approx([0.1 + 0.9 * factor for factor in factors(name)[10:]])
    assert curve[50:] == pytest.approx([0.1] * 10)
    assert {lr_factor(step, 50, Schedule(name, 0.0, 1.0)) for step in range(50)} == {1.0}


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "sgd"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_fused_steps_on_a_cpu_equal_separate_ones(name, memory_format):
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(20, 2)).double().to(memory_format=memory_format)
    x = torch.randn(7, 3, 4, 4, dtype=torch.float64)
    nets, optimizers = [net, deepcopy(net)], []
    for copy in nets:
        optimizers.append(make_optimizer(copy, Optimizer(name, 0.1, 0.1)))
    for group in optimizers[1].param_groups:
        assert group["fused"]
        group["fused"] = False
    for _ in range(3):
        for copy, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            copy(x).square().sum().backward()
            optimizer.step()
        optimizers[0].load_state_dict(deepcopy(optimizers[0].state_dict()))
    for fused, separate in zip(*(copy.parameters() for copy in nets), strict=True):
        torch.testing.assert_close(fused, separate)


def test_gradients_are_clipped_under_autocast():
    task = Classification(nn.Linear(4, 2), num_classes=2, optimizer=Optimizer(lr=1e-9))
    norms = []

    class Norm(Callback):
        def on_before_zero_grad(self, trainer, module, optimizer):
            norms.extend(parameter.grad.norm() for parameter in module.parameters() if parameter.grad is not None)

    data = DataLoader([(1e3 * torch.ones(4), torch.tensor(index % 2)) for index in range(8)], batch_size=4)
    options = {"max_steps": 2, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(accelerator="cpu", precision="bf16-mixed", gradient_clip_val=1e-3, callbacks=Norm(), **options)
    trainer.fit(task, data)
    assert norms
    assert max(norms) < 1.1e-3


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"name": "cosine", "warmup": 1.1}, "warmup=1.1"),
        ({"name": "cosine", "floor": math.nan}, "floor=nan"),
        ({"name": "constant", "floor": 0.1}, "constant"),
    ],
    ids=str,
)
def test_invalid_schedules(options, value):
    with raises("invalid", value):
        Schedule(**options)
    with raises("unknown", "'cos'"):
        Schedule("cos")


def test_betas_and_eps_default_to_those_of_the_optimizer():
    net = nn.Linear(2, 3)
    options = Optimizer(lr=0.1), Optimizer(lr=0.1, betas=(0.0, 0.5), eps=1e-9)
    default, given = (make_optimizer(net, option).param_groups[0] for option in options)
    assert (default["betas"], default["eps"]) == ((0.9, 0.999), 1e-8)
    assert (given["betas"], given["eps"]) == ((0.0, 0.5), 1e-9)
    assert make_optimizer(net, Optimizer(lr=0.1, betas=(0.5, 0.6))).param_groups[0]["eps"] == 1e-8


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"name": "adamv"}, "'adamv'"),
        ({"lr": 0.0}, "lr=0.0"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1"),
        ({"betas": (0.9, 1.0)}, "betas="),
        ({"name": "sgd", "betas": (0.9, 0.99)}, "betas"),
        ({"name": "lion", "eps": 1e-9}, "eps"),
        ({"name": "sgd", "mup_base_width": 64}, "mup_base_width"),
        ({"mup_base_width": 0}, "mup_base_width=0"),
        ({"name": "adahessian"}, "cannot use optimizer"),
    ],
    ids=str,
)
def test_invalid_optimizers(options, value):
    with raises("unknown" if "'" in value else "invalid", value):
        check_optimizer(Optimizer(**options))


@pytest.mark.filterwarnings("ignore")
def test_every_optimizer_trains_or_is_refused():
    refused = []
    for name in list_optimizers():
        net = nn.Sequential(Linear(8, 8, algebra=zoo.algebra("quaternion")), nn.LayerNorm(8))
        try:
            check_optimizer(Optimizer(name, 0.01))
            check_network(net, name)
        except InputError:
            refused.append(name)
            continue
        optimizer = make_optimizer(net, Optimizer(name, 0.01, 0.1))
        net(torch.ones(2, 8)).square().sum().backward()
        optimizer.step()
    # The others need two-dimensional parameters, CUDA, or a package.
    assert [name for name in refused if "muon" not in name and not name.startswith(("bnb", "fused"))] == ["adahessian"]


def test_mup_learning_rates():
    """Fan-in 64 and base width 32: half the rate over the reals, sqrt(n) times that over a signed table."""
    product = zoo.algebra("quaternion")
    dual = Algebra(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]]]))
    net = nn.ModuleDict(
        {
            "table": Embedding(10, 64, algebra=zoo.algebra("real")),
            "real": Linear(64, 16, algebra=zoo.algebra("real")),
            "quaternion": Linear(64, 16, algebra=product),
            "octonion": Linear(64, 16, algebra=zoo.algebra("octonion")),
            "dual": Linear(64, 16, algebra=dual),
            "conv": Conv2d(16, 16, 3, algebra=product),
            "norm": nn.LayerNorm(16),
            "torch": nn.Linear(64, 16),
        }
    )
    groups = make_optimizer(net, Optimizer("adamw", 0.01, 0.1, mup_base_width=32)).param_groups
    rates = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    settings = {name.removesuffix(".weight_module.components"): rates[id(p)] for name, p in net.named_parameters()}
    assert settings["real"] == pytest.approx((0.005, 0.1))
    assert settings["quaternion"] == pytest.approx((0.01, 0.1))
    assert settings["octonion"] == pytest.approx((0.005 * math.sqrt(8), 0.1))
    assert settings["dual"] == pytest.approx((0.005 * 2**1.5 / math.sqrt(3), 0.1))  # three products of units are not zero
    assert settings["conv"] == pytest.approx((0.01 * 2 * 32 / 144, 0.1))
    assert {settings[name] for name in ("table", "torch.weight")} == {(0.01, 0.1)}
    assert {settings[name] for name in ("real.bias", "quaternion.bias", "norm.weight", "torch.bias")} == {(0.01, 0.0)}
    plain = make_optimizer(net, Optimizer("adamw", 0.01, 0.1)).param_groups
    assert {group["lr"] for group in plain} == {0.01}


@pytest.mark.parametrize("algebra", ["complex", "quaternion", "octonion"])
def test_a_mup_step_changes_outputs_equally_at_every_width_and_algebra(algebra):
    """The mean move of an output along the gradient, after one update of size one.

    Over the reals it is d E|x| = d sqrt(2 / pi); a sum of n products is more like a normal variable, which gives up to d.
    """

    def move(algebra, width):
        torch.manual_seed(0)
        layer, moves = Linear(width, width, algebra=zoo.algebra(algebra), bias=False), []
        (scale,) = mup_scales(layer, 64).values()
        for _ in range(20):
            x, g = torch.randn(width), torch.randn(width)
            layer.zero_grad()
            (layer(x) @ g).backward()
            with torch.no_grad():
                before, w = layer(x), layer.weight_module.components
                step = scale * w.grad.sign()
                w += step
                moves.append(float((layer(x) - before) @ g / g.abs().sum()))
                w -= step
        return sum(moves) / len(moves)

    assert 1 <= move(algebra, 128) / move("real", 64) <= 1.05 * math.sqrt(math.pi / 2)


def configured(net: nn.Module, **options):
    """Return the optimizers of a task in a run of 20 steps."""
    task = Classification(net, 3, **options)
    task.trainer = SimpleNamespace(estimated_stepping_batches=20)
    return task.configure_optimizers()


def weight_decays(net: nn.Module) -> dict[str, float]:
    groups = configured(net, optimizer=Optimizer(lr=0.1, weight_decay=0.3))["optimizer"].param_groups
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert len(decay) == len(list(net.parameters()))
    return {name: decay[id(parameter)] for name, parameter in net.named_parameters()}


def test_invalid_options():
    for options in ({"optimizer": {"lr": -1.0}}, {"schedule": "cos"}, {"label_smoothing": 2.0}):
        with pytest.raises(InputError):
            Classification(nn.Linear(2, 3), 3, **options)
        with pytest.raises(InputError):
            check_task(Classification, {"num_classes": 3} | options)


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
    task = Classification(nn.Linear(2, 3), 3, optimizer="sgd(lr=0.5)", schedule=Schedule(schedule, warmup))
    trainer.fit(task, loader, loader)
    return rates.rates


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_schedule_counts_optimizer_steps(accumulate):
    """With 10 batches per epoch, the last accumulation may be smaller."""
    rates = learning_rates(20, "inverse_sqrt", 0.25, max_epochs=2, accumulate_grad_batches=accumulate)
    steps = 2 * -(-10 // accumulate)
    assert rates == pytest.approx([0.5 * lr_factor(step, steps, Schedule("inverse_sqrt", 0.25)) for step in range(steps)])


def test_a_task_imports_timm_only_for_an_optimizer_that_is_chosen(monkeypatch):
    """Predictions do not need it."""
    monkeypatch.setitem(sys.modules, "timm.optim", None)
    assert Classification(nn.Linear(2, 3), 3).optimizer == Optimizer()
    with pytest.raises(ImportError):
        Classification(nn.Linear(2, 3), 3, optimizer="sgd")
