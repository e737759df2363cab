"""Two processes have the same masks with different seeds, and stop if their weights differ."""

import json
import os
import subprocess
import sys

import torch

from tests.pruning.test_callback import Net
from zoo.pruning import Pruning, prunable
from zoo.pruning import masks as lib

SCRIPT = """
import json, os, sys
import torch
from lightning.pytorch.strategies import DDPStrategy
from tests.pruning.test_callback import Net, data, tensors, trainer
from zoo.errors import InputError
from zoo.pruning import LotteryTicket, iterate_rounds
from zoo.pruning.masks import tensor_digest

torch.set_num_threads(1)
rank, results = int(os.environ.get("LOCAL_RANK", 0)), {}


def ddp(*callbacks):
    return trainer(*callbacks, strategy=DDPStrategy(process_group_backend="gloo"), devices=2)


def fit_one(ticket):
    torch.manual_seed(rank + 1)  # different initialization and dropout on every rank
    module = Net()
    ddp(ticket).fit(module, data())
    torch.save([tensors(module), ticket.masks], f"round-{score}-{ticket.round}-{rank}.pt")


for score in ("magnitude", "random"):
    ticket = LotteryTicket(0.4, score=score, seed=rank)
    results[score] = [[done.survivors, tensor_digest(ticket.masks)] for done in iterate_rounds(fit_one, ticket, 2)]
    results[score].append(tensor_digest(ticket.rewind_point))
if rank:
    ticket.rewind_point["head.bias"][1] += 1
try:
    ddp(ticket).fit(Net(), data())
except InputError as error:
    results["error"] = [error.code, str(error)]
with open(f"rank-{rank}.json", "w") as file:
    json.dump(results, file)
torch.distributed.barrier()
torch.distributed.destroy_process_group()  # a thread of gloo that outlives Python ends it with SIGABRT
"""


def test_two_ranks_have_the_same_ticket(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert one == two
    assert [count for count, _ in one["magnitude"][:3]] == [80, 48, 28]
    assert one["error"] == ["mismatch", "the weights of rank 1 differ from those of rank 0 at the start of round 2"]
    # A single rank computes the same masks from the same weights.
    (weights, masks), (_, expected) = (torch.load(tmp_path / f"round-magnitude-{number}-0.pt") for number in (1, 2))
    matrices = prunable(Net())
    values = {name: weights[name] for name in matrices}
    assert lib.tensor_digest(lib.next_masks(matrices, values, masks, Pruning(0.4))) == lib.tensor_digest(expected)
