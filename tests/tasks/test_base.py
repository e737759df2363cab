"""What every task shares: the schedule, the optimizer, and one step for all stages."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from zoo.errors import InputError
from zoo.options import Optimizer, Schedule
from zoo.tasks import Classification
from zoo.tasks.base import SCHEDULES, check_optimizer, check_schedule, lr_factor, undecayed


def factors(name: str, warmup: float = 0.2, steps: int = 50) -> list[float]:
    return [lr_factor(Schedule(name, warmup), step, steps) for step in range(steps + 1)]


# --- the schedule ---


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_starts_low_and_rises_evenly_to_the_peak(name):
    found = factors(name)
    assert found[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert found[10] == 1.0
    assert max(found) == 1.0
    assert min(found[:-1]) > 0  # no step is wasted


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_it_falls_to_zero_and_never_rises_again(name):
    found = factors(name)[10:]
    assert found[-1] == pytest.approx(0, abs=1e-12)
    assert all(later < earlier for earlier, later in pairwise(found))
    assert found[20] == pytest.approx(0.5)  # half way


def test_linear_is_a_line_and_cosine_is_half_a_wave():
    linear, cosine = factors("linear", 0.0), factors("cosine", 0.0)
    assert linear == pytest.approx([1 - step / 50 for step in range(51)])
    assert cosine == pytest.approx([(1 + math.cos(math.pi * step / 50)) / 2 for step in range(51)])


def test_constant_stays():
    assert set(factors("constant", 0.0)) == {1.0}
    assert set(factors("constant")[10:]) == {1.0}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("warmup", "steps"), [(0.0, 1), (1.0, 1), (1.0, 7), (0.5, 3), (0.1, 1), (0.0, 0)])
def test_ends_of_its_range(name, warmup, steps):
    found = [lr_factor(Schedule(name, warmup), step, steps) for step in range(steps + 5)]
    assert all(0 <= factor <= 1 for factor in found)
    assert found[0] > 0


@pytest.mark.parametrize("name", ["cos", "", "Cosine"])
def test_an_unknown_schedule(name):
    with pytest.raises(InputError, match=f"unknown schedule '{name}': use cosine, linear, constant"):
        check_schedule(Schedule(name))


@pytest.mark.parametrize("warmup", [-0.1, 1.1, math.nan, math.inf])
def test_a_warmup_that_is_no_share(warmup):
    with pytest.raises(InputError, match=r"schedule\.warmup=.*0 to 1"):
        check_schedule(Schedule(warmup=warmup))


# --- the optimizer ---


@pytest.mark.parametrize("name", ["adamw", "sgd", "lion", "nadam"])
def test_optimizers_of_timm(name):
    check_optimizer(Optimizer(name, 0.1))


def test_an_unknown_optimizer():
    with pytest.raises(InputError, match=r"unknown optimizer 'adamv': did you mean .*adam"):
        check_optimizer(Optimizer("adamv", 0.1))
    with pytest.raises(InputError, match="unknown optimizer 'qqqq': use one of timm's"):
        check_optimizer(Optimizer("qqqq", 0.1))


@pytest.mark.parametrize("lr", [0.0, -1.0, math.nan, math.inf, None])
def test_a_learning_rate_that_cannot_work(lr):
    with pytest.raises(InputError, match=r"optimizer\.lr="):
        check_optimizer(Optimizer(lr=lr))


@pytest.mark.parametrize("decay", [-0.1, math.nan, math.inf])
def test_a_decay_that_cannot_work(decay):
    with pytest.raises(InputError, match=r"optimizer\.weight_decay="):
        check_optimizer(Optimizer(lr=0.1, weight_decay=decay))
    check_optimizer(Optimizer(lr=0.1, weight_decay=0.0))


class Plan:
    """As much of a trainer as `configure_optimizers` reads."""

    estimated_stepping_batches = 20


@pytest.fixture
def configured(monkeypatch):
    def make(optimizer: Optimizer, schedule: Schedule, net: nn.Module):
        task = Classification(net, 3, optimizer, schedule)
        monkeypatch.setattr(Classification, "trainer", Plan(), raising=False)
        return task.configure_optimizers()

    return make


def test_norms_and_biases_are_not_decayed(configured):
    net = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Conv1d(1, 1, 3), nn.Linear(3, 3, bias=False))
    groups = configured(Optimizer("adamw", 0.1, 0.3), Schedule(), net)["optimizer"].param_groups
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert len(decay) == len(list(net.parameters()))
    for name, parameter in net.named_parameters():
        assert decay[id(parameter)] == (0.3 if parameter.ndim > 1 else 0.0), name


def test_hypercomplex_matrices_are_decayed_and_what_is_a_vector_is_not(configured):
    import zoo

    net = zoo.backbone("vit(dim=16,depth=1,heads=1)", "phm-2", in_channels=1, image_size=8, num_classes=3)
    groups = configured(Optimizer("adamw", 0.1, 0.3), Schedule(), net)["optimizer"].param_groups
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    found = {name: decay[id(parameter)] for name, parameter in net.named_parameters()}
    assert {value for name, value in found.items() if name.endswith("components")} == {0.3}
    assert {value for name, value in found.items() if name.endswith(".bias") or "norm" in name} == {0.0}


def test_the_rate_moves_every_step_and_peaks_at_lr(configured):
    made = configured(Optimizer("sgd", 0.5), Schedule("linear", 0.2), nn.Linear(2, 3))
    assert made["lr_scheduler"]["interval"] == "step"
    optimizer, scheduler = made["optimizer"], made["lr_scheduler"]["scheduler"]
    rates = []
    for _ in range(20):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0.5 * lr_factor(Schedule("linear", 0.2), step, 20) for step in range(20)])
    assert max(rates) == 0.5


def test_bad_options_are_refused_before_anything_is_built():
    for optimizer, schedule in ((Optimizer(lr=-1.0), Schedule()), (Optimizer(lr=1.0), Schedule("cos"))):
        with pytest.raises(InputError):
            Classification(nn.Linear(2, 3), 3, optimizer, schedule)


def test_a_task_is_its_network():
    net = nn.Linear(2, 3)
    task = Classification(net, 3, Optimizer(lr=1.0), Schedule())
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
    task = Classification(net, 2, Optimizer(lr=0.1, weight_decay=0.3), Schedule("constant", 0.0))
    task.trainer = SimpleNamespace(estimated_stepping_batches=10)
    decay = {
        id(p): group["weight_decay"] for group in task.configure_optimizers()["optimizer"].param_groups for p in group["params"]
    }
    found = {name: decay[id(p)] for name, p in net.named_parameters()}
    assert found == {"0.frequency.weight": 0.0, "0.amplitude.weight": 0.3, "1.weight": 0.3, "1.bias": 0.0}
