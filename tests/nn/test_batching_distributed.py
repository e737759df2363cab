"""All matrices of a network assembled at once, under DDP and FSDP2, with a group of one process."""

from functools import partial

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.nn.test_batching import ALGEBRAS, Net, calls, compare, on_any_device
from zoo.nn import batch_matrices

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
__all__ = ["calls", "on_any_device"]  # fixtures


@pytest.fixture(scope="module", autouse=True)
def group():
    if distributed.is_initialized():
        distributed.destroy_process_group()  # left by a training of an earlier test in this process
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("spec", ALGEBRAS)
def test_data_parallel(spec):
    compare(Net(spec), change=DistributedDataParallel, steps=2)


@pytest.mark.parametrize("spec", ALGEBRAS[1:])
def test_data_parallel_with_checkpoints(spec):
    compare(Net(spec, False), change=partial(DistributedDataParallel, static_graph=True), steps=2)


def test_data_parallel_with_unused_layers():
    class Skips(Net):
        def forward(self, x):
            return self.blocks[2](self.blocks[0](x))

    compare(Skips("phm(n=4)"), change=partial(DistributedDataParallel, find_unused_parameters=True), steps=2)


def test_data_parallel_compiled():
    compare(Net("phm(n=4)"), change=lambda net: torch.compile(DistributedDataParallel(net), backend="aot_eager"))


@pytest.mark.parametrize("shards", ["root", "blocks", "blocks, then root"])
def test_sharded_weights_are_left_to_their_layers(shards, calls):
    net, mesh = Net("quaternion"), init_device_mesh("cpu", (1,))
    plain = Net("quaternion")
    plain.load_state_dict(net.state_dict())
    batch_matrices(net)
    if "blocks" in shards:
        for block in net.blocks:
            fully_shard(block, mesh=mesh)
    if "root" in shards:
        fully_shard(net, mesh=mesh)
    x = torch.randn(5, 16)
    for one in (net, plain):
        one(x).square().sum().backward()
    for p, q in zip(net.parameters(), plain.parameters(), strict=True):
        grad = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
        torch.testing.assert_close(grad, q.grad)
    assert isinstance(net, nn.Module)
    assert calls == ([4, 2] if shards == "root" else [1] * 6) + [1] * 6
