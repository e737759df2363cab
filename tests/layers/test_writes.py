"""Write to parameters in every way, then compare with a new network: no stale values are used."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import zoo
from tests.faults.process import forked
from zoo.kernels.compiled import is_available
from zoo.layers import Layers, set_kernel

KERNELS = ["auto", "block", "factored", "thin", *(["fused"] if is_available() else [])]
SPECS = ("quaternion", "phm(n=2)", "phm(n=2, rank=3)", "complex")


class Net(nn.Module):
    """Every layer that multiplies by a weight."""

    def __init__(self, spec):
        super().__init__()
        make = Layers(spec, scope="all+embed")
        self.table = make.embedding(7, 8)
        self.lstm = make.lstm(8, 8)
        self.linear = make.linear(8, 12, role="ffn")
        self.conv = make.conv1d(12, 8, 3, padding=1)

    def forward(self, tokens):
        x = self.linear(self.lstm(self.table(tokens))[0]).relu()
        return self.conv(x.transpose(1, 2))


TOKENS = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 1]])


def fresh(net, spec, kernel):
    """Create a network with the same values and empty caches."""
    other = Net(spec).to(next(net.parameters()).dtype).train(net.training)
    with torch.no_grad():
        for p, q in zip(other.parameters(), net.parameters(), strict=True):
            p.copy_(q)
    set_kernel(other, kernel)
    return other


def parameters(net, draw):
    return draw(st.lists(st.sampled_from(list(net.parameters())), min_size=1, max_size=3, unique_by=id))


def of_each(write):
    """Return a write to some of the parameters, without gradients."""

    def apply(net, draw):
        for p in parameters(net, draw):
            with torch.no_grad():
                write(p, draw(st.sampled_from([0.5, -1.0, 2.0])))

    return apply


def storage(p, factor):
    """Write to the storage of a parameter, which may be a view of a flat vector."""
    values = torch.empty(0, dtype=p.dtype).set_(p.untyped_storage())
    p.untyped_storage().copy_((factor * values).untyped_storage())


def optimizer_step(build):
    def apply(net, draw):
        net(TOKENS).square().sum().backward()
        build(net).step()
        net.zero_grad()

    return apply


def fused_adamw(net, draw):
    held = list(net.parameters())
    values = [[torch.full_like(p, 0.1) for p in held] for _ in range(3)]
    steps, options = (
        [torch.tensor(1.0) for _ in held],
        {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8},
    )
    flags = {"amsgrad": False, "maximize": False}
    with torch.no_grad():
        torch._fused_adamw_(held, *values, [], steps, **options, **flags)


def flat_vector(net, draw):
    vector = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
    nn.utils.vector_to_parameters(vector, net.parameters())
    net(TOKENS)
    vector.mul_(0.5)


def assign(net, draw):
    net.load_state_dict({name: 0.5 * value for name, value in net.state_dict().items()}, assign=True)
    net.requires_grad_(True)


def swap(net, draw):
    other = copy.deepcopy(net)
    with torch.no_grad():
        for p, q in zip(net.parameters(), other.parameters(), strict=True):
            q.mul_(-1)
            torch.utils.swap_tensors(p, q)


def replace(net, draw):
    net.linear.weight_module.components = nn.Parameter(torch.randn_like(net.linear.components))


def swapping(net, draw):
    """Load, assign and convert with swapped tensors."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.load_state_dict({name: 2 * value for name, value in net.state_dict().items()})
        net(TOKENS)
        assign(net, draw)
        net.double()
        net.float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def average(net, draw):
    other = torch.optim.swa_utils.AveragedModel(net)
    with torch.no_grad():
        for p, q in zip(net.parameters(), other.parameters(), strict=True):
            p.copy_(0.5 * q)


def in_inference_mode(net, draw):
    with torch.inference_mode():
        for p in parameters(net, draw):
            p.mul_(2)


def meta_and_back(net, draw):
    state = copy.deepcopy(net.state_dict())
    net.to("meta").to_empty(device="cpu").load_state_dict(state)


WRITES = {
    "in place": of_each(lambda p, c: p.mul_(c)),
    "data": of_each(lambda p, c: p.data.add_(c)),
    "data assigned": of_each(lambda p, c: setattr(p, "data", c * p.data.clone())),
    "detached": of_each(lambda p, c: p.detach().view(-1)[:2].fill_(c)),
    "numpy": of_each(lambda p, c: p.detach().numpy().fill(c)),
    "dlpack": of_each(lambda p, c: torch.from_dlpack(p.detach()).mul_(c)),
    "storage": of_each(storage),
    "copy": of_each(lambda p, c: p.copy_(c * torch.randn_like(p))),
    "foreach": of_each(lambda p, c: torch._foreach_mul_([p], c)),
    "set_": of_each(lambda p, c: p.set_(c * p.detach().clone())),
    "init": of_each(lambda p, c: nn.init.normal_(p, std=abs(c))),
    "sgd": optimizer_step(lambda net: torch.optim.SGD(net.parameters(), 0.1)),
    "fused adamw": optimizer_step(lambda net: torch.optim.AdamW(net.parameters(), 0.1, fused=True)),
    "held list": fused_adamw,
    "flat vector": flat_vector,
    "load_state_dict": lambda net, draw: net.load_state_dict({k: -v for k, v in net.state_dict().items()}),
    "assign": assign,
    "swap_tensors": swap,
    "replace": replace,
    "swapping": swapping,
    "average": average,
    "inference mode": in_inference_mode,
    "state dict entries": lambda net, draw: [value.mul_(0.5) for value in net.state_dict().values()],
    "one number": of_each(lambda p, c: p.view(-1)[:1].add_(c)),
    "foreach sgd": optimizer_step(lambda net: torch.optim.SGD(net.parameters(), 0.1, foreach=True)),
    "reset": lambda net, draw: net.linear.reset_parameters(),
    "meta": meta_and_back,
    "dtype": lambda net, draw: net.double().float(),
    "train": lambda net, draw: net.train(not net.training),
    "freeze": lambda net, draw: net.requires_grad_(False) and net.requires_grad_(True),
}


def compare(net, spec, kernel, mode):
    with mode():
        actual, expected = net(TOKENS), fresh(net, spec, kernel)(TOKENS)
        with zoo.keep_matrices(net):
            cached = [net(TOKENS) for _ in range(2)]
    for y in (actual, *cached):
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)


def write_and_compare(data):
    torch.manual_seed(data.draw(st.integers(0, 99), label="seed"))
    spec = data.draw(st.sampled_from(SPECS), label="algebra")
    kernel = data.draw(st.sampled_from(KERNELS), label="kernel")
    net = Net(spec).eval()
    set_kernel(net, kernel)
    compare(net, spec, kernel, torch.no_grad)
    for name in data.draw(st.lists(st.sampled_from(sorted(WRITES)), min_size=1, max_size=4), label="writes"):
        WRITES[name](net, data.draw)
        compare(net, spec, kernel, data.draw(st.sampled_from([torch.no_grad, torch.inference_mode, torch.enable_grad])))


OPTIONS = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=100, **OPTIONS)
@given(st.data())
def test_writes_take_effect(data):
    write_and_compare(data)


@pytest.mark.slow
@settings(max_examples=2000, **OPTIONS)
@given(st.data())
def test_writes_take_effect_in_many_cases(data):
    write_and_compare(data)


def test_stale_cache_is_detected(monkeypatch):
    """Control: the comparison fails in a scope that does not end."""
    net = Net("quaternion").eval()
    set_kernel(net, "block")
    with zoo.keep_matrices(net):
        compare(net, "quaternion", "block", torch.no_grad)
        with torch.no_grad():
            net.linear.components.mul_(2)
        with pytest.raises(AssertionError):
            compare(net, "quaternion", "block", torch.no_grad)


def receive(rank, folder):
    """Exchange weights by every operation of torch.distributed, and compare after each."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    dist = torch.distributed
    torch.manual_seed(rank)
    net = Net("quaternion").eval()

    def send_and_receive(p):
        dist.send(p, 1) if rank == 0 else dist.recv(p, 0)

    ways = [
        lambda p: dist.broadcast(p, 0),
        lambda p: dist.all_reduce(p),
        send_and_receive,
        lambda p: dist.broadcast(p, 1, async_op=True).wait(),
        lambda p: dist.all_reduce(p, async_op=True).wait(),
        lambda p: (dist.isend(p, 1) if rank == 0 else dist.irecv(p, 0)).wait(),
        lambda p: dist.all_gather([torch.empty_like(p), p] if rank else [p, torch.empty_like(p)], p.clone()),
    ]
    for kernel in ("block", "factored", "thin"):
        set_kernel(net, kernel)
        for way in ways:
            with torch.no_grad():
                compare(net, "quaternion", kernel, torch.no_grad)
                for p in net.parameters():
                    p.add_(0.01 * rank)
                    way(p.data)
                compare(net, "quaternion", kernel, torch.inference_mode)
    torch.distributed.destroy_process_group()


def test_writes_of_other_processes_take_effect(tmp_path):
    ranks = [forked(receive, rank, tmp_path) for rank in (0, 1)]
    for process in ranks:
        process.join(120)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()  # it would wait for a failed rank
    assert codes == [0, 0]
