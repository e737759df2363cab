"""Pruning schedules: constant, cubic and user-defined."""

import re
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

from tests.errors import raises
from zoo.pruning import ConstantRate, CubicSparsity, LotteryTicket, lottery, rounds_until


def survivors(rate, rounds):
    def fit_one(ticket):
        Trainer(fast_dev_run=True, callbacks=[ticket], accelerator="cpu").fit(BoringModel())

    return [done.survivors for done in lottery(fit_one, LotteryTicket(rate), rounds)]


@pytest.mark.filterwarnings("ignore")
def test_any_function_of_the_round_is_a_schedule():
    assert survivors(lambda round: (0.5, 0.0, 0.75)[round], 3) == [64, 32, 32, 8]
    assert survivors("cubic(final=0.75, rounds=2)", 3) == [64, 22, 16, 16]


def test_the_cubic_schedule_reaches_its_sparsity():
    schedule, survivors = CubicSparsity(final=0.9, rounds=4), 1.0
    for number in range(4):
        survivors *= 1 - schedule(number)
        assert 1 - survivors == pytest.approx(0.9 * (1 - (1 - (number + 1) / 4) ** 3))
    assert schedule(4) == 0
    assert rounds_until(0.1, schedule) == 4


@pytest.mark.parametrize(("share", "rate", "rounds"), [(0.01, 0.4, 10), (0.25, 0.5, 2), (0.9, 0.5, 1)])
def test_rounds_until(share, rate, rounds):
    assert rounds_until(share, rate) == rounds


def test_errors():
    with raises("invalid", "rate=0.0"):
        ConstantRate(0.0)
    with raises("invalid", "until=0.01"):
        rounds_until(0.01, CubicSparsity(0.9))


def test_the_code_of_the_documentation_runs(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "pruning.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "pruning.md", "exec"), names)
    saved, loaded = names["net"].state_dict(), names["same"].state_dict()
    assert all(torch.equal(saved[name], loaded[name]) for name in saved)
    assert names["done"].number == 2
    assert 0.35 < names["done"].survivors / names["done"].weights < 0.37
