"""What an optimizer is told, and what is refused before a run."""

import math

import pytest

from zoo.errors import InputError
from zoo.options import Optimizer
from zoo.tasks.optimizer import check_optimizer, extra


@pytest.mark.parametrize("name", ["adamw", "sgd", "lion", "nadam", "adan"])
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


def test_only_what_was_given_is_told():
    assert extra(Optimizer()) == {}
    assert extra(Optimizer(betas=(0.0, 0.5))) == {"betas": (0.0, 0.5)}
    assert extra(Optimizer(betas=(0.9, 0.997), eps=1e-9)) == {"betas": (0.9, 0.997), "eps": 1e-9}


@pytest.mark.parametrize("betas", [(0.9,), (0.9, 0.9, 0.9), (0.9, 1.0), (-0.1, 0.9), (math.nan, 0.9), ("a", "b"), "ab", 0.9])
def test_betas_that_cannot_work(betas):
    with pytest.raises(InputError, match=r"optimizer\.betas=.*two numbers"):
        check_optimizer(Optimizer(lr=0.1, betas=betas))


@pytest.mark.parametrize("eps", [0.0, -1.0, math.nan, math.inf])
def test_an_eps_that_cannot_work(eps):
    with pytest.raises(InputError, match=r"optimizer\.eps="):
        check_optimizer(Optimizer(lr=0.1, eps=eps))


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (Optimizer("sgd", 0.1, betas=(0.9, 0.99)), "'sgd' has no betas"),
        (Optimizer("sgd", 0.1, eps=1e-9), "'sgd' has no eps"),
        (Optimizer("lion", 0.1, eps=1e-9), "'lion' has no eps"),
        (Optimizer("adan", 0.1, betas=(0.9, 0.99)), "'adan' has 3 betas, not two"),
    ],
    ids=str,
)
def test_what_an_optimizer_would_not_hear_of(optimizer, message):
    with pytest.raises(InputError, match=message):
        check_optimizer(optimizer)


def test_betas_below_a_half_are_betas():
    check_optimizer(Optimizer(lr=0.1, betas=(0.0, 0.5), eps=1e-3))
    check_optimizer(Optimizer("lion", 0.1, betas=(0.95, 0.98)))
