"""The number of threads of a run depends on its network and batch size, not on the load of the machine."""

import os
import subprocess
import sys

import pytest
import torch
from lightning.pytorch import Callback
from torch import nn

import zoo
from zoo.training.threads import WORK, average_work, count_threads


@pytest.mark.parametrize("cores", [1, 2, 16, 128])
def test_threads_grow_with_the_work_up_to_the_cores(cores):
    counts = [count_threads(factor * WORK, cores) for factor in (0, 0.3, 1.9, 2, 16, 1e6)]
    assert counts == [min(cores, wanted) for wanted in (1, 1, 1, 2, 16, 10**6)]


def test_work_is_the_average_of_the_matrix_products():
    net = nn.Sequential(nn.Linear(10, 30), nn.Dropout(0.5), nn.ReLU(), nn.Linear(30, 20))
    net[1].eval()
    assert average_work(net, (torch.zeros(2, 10),), batch_size=64) == 64 * (10 * 30 + 30 * 20) / 2
    assert [module.training for module in net] == [True, False, True, True]


def test_work_of_a_recurrent_network():
    net = nn.LSTM(12, 16)  # two matrices
    assert average_work(net, (torch.zeros(2, 5, 12),), batch_size=2) == 2 * 5 * 4 * 16 * (12 + 16) / 2


class Recorded(Callback):
    def __init__(self):
        self.threads = []

    def on_train_batch_start(self, *args):
        self.threads.append(torch.get_num_threads())


@pytest.mark.parametrize(("variable", "expected"), [(None, 1), ("2", 2)])
def test_a_small_network_trains_on_one_thread_unless_the_environment_sets_them(variable, expected, options, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    recorded, before = Recorded(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        zoo.fit(**options({"callbacks": [recorded]}), verbose=False)
        assert set(recorded.threads) == {expected}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("given", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_the_environment_says_otherwise(given, expected):
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    code = "import sys, zoo, os; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected, "False"]
