"""Sparse weights files: small, bit-equal, errors for damage; two processes have the same masks with different seeds."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import zoo
from tests.errors import raises
from tests.faults.hostile import seal
from tests.pruning.test_callback import Net
from zoo.pruning import Pruning, prunable
from zoo.pruning import masks as lib

SIZES = {"in_channels": 1, "image_size": 8, "num_classes": 3}


def pruned(rate=0.9, spec="vit(dim=64, depth=2)", algebra="quaternion", dtype=torch.float32):
    torch.manual_seed(0)
    net = zoo.backbone(spec, algebra, **SIZES).to(dtype).eval()
    matrices = prunable(net)
    weights = {name: matrix.parameter for name, matrix in matrices.items()}
    masks = lib.next_masks(matrices, weights, lib.full_masks(matrices), Pruning(rate))
    for name, weight in weights.items():
        lib.clear_bits(weight, lib.bit_mask(masks[name], weight))
    return net, masks


def stored(net, folder, spec="vit(dim=64, depth=2)", **options):
    return zoo.save(net, folder, backbone=spec, algebra="quaternion", **{"sparse": True} | options, **SIZES)


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


@pytest.mark.parametrize(("rate", "dtype"), [(0.1, torch.float32), (0.9, torch.bfloat16), (0.99, torch.float64)])
def test_a_sparse_folder_is_small_and_loads_bit_for_bit(tmp_path, rate, dtype):
    net, masks = pruned(rate, dtype=dtype)
    with torch.no_grad():
        net.head.weight[0, 0] = -0.0  # a bit is set
    file = stored(net, tmp_path / "model") / "model.safetensors"
    loaded = zoo.load(tmp_path / "model").net.state_dict()
    assert loaded.keys() == net.state_dict().keys()
    for name, value in net.state_dict().items():
        assert torch.equal(bits(loaded[name].to(dtype)), bits(value)), name
    numbers = sum(p.numel() for name, p in net.named_parameters() if name not in masks)
    item = torch.finfo(dtype).bits / 8
    survivors = (lib.remaining(masks) + numbers) * item
    mask_bytes = sum(mask.numel() for mask in masks.values()) / 8
    data = file.stat().st_size - int.from_bytes(file.read_bytes()[:8], "little") - 8
    assert data <= 1.1 * (survivors + mask_bytes)


def test_shared_tensors_and_learned_products_are_loaded(tmp_path):
    net = nn.ModuleDict({"a": nn.Linear(64, 64), "b": nn.Linear(64, 64), "c": nn.Linear(64, 64)})
    zoo.convert(net, "phm-4", skip=["b", "c"])
    net["c"].weight = net["b"].weight
    with torch.no_grad():
        net["b"].weight[1:] = 0
        net["a"].components[1:] = 0
        net["a"].algebra.structure[0] = 0
    zoo.save(net, tmp_path / "model", sparse=True)
    real = nn.ModuleDict({"a": nn.Linear(64, 64), "b": nn.Linear(64, 64), "c": nn.Linear(64, 64)})
    real["c"].weight = real["b"].weight
    loaded = zoo.load(tmp_path / "model", module=real).net
    assert loaded["c"].weight is loaded["b"].weight
    for name, value in net.state_dict().items():
        assert torch.equal(bits(loaded.state_dict()[name]), bits(value)), name


NAME = "blocks.0.attn.qkv.weight_module.components"


def change_config(**changes):
    return lambda config, tensors: config["sparse"].update(changes)


def past_the_end(config, tensors):
    config["sparse"]["cls_token"], tensors["cls_token.mask"] = [1, 1, 60], torch.zeros(8, dtype=torch.uint8)
    tensors["cls_token.mask"][-1] = 128
    tensors["cls_token"] = torch.ones(1)


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        (change_config(**{NAME: [4, 48, 17]}), "corrupt", "[4, 48, 17]"),
        (change_config(**{NAME: [48, 4, 16]}), "invalid", "[48, 4, 16]"),
        (lambda config, tensors: tensors[f"{NAME}.mask"][:1].bitwise_xor_(1), "corrupt", NAME),
        (past_the_end, "corrupt", "[1, 1, 60]"),
    ],
)
def test_damaged_files(tmp_path, change, code, value):
    net, _ = pruned()
    folder = stored(net, tmp_path / "model")
    config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    change(config, tensors)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    seal(folder)
    with raises(code, value):
        zoo.load(folder)


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
