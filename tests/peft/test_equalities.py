"""C3A, LoKr, the PHM layer of Compacter and LoRA are configurations of our method, with weights carried both ways."""

import pytest
import torch
from torch import nn

import zoo

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore")

ZooConfig = pytest.importorskip("zoo.peft").ZooConfig
N, IN, OUT = 4, 16, 24


@pytest.fixture
def cyclic():
    """Return the spec of an algebra of another package: circular convolution, as in plugins/README.md."""
    i = torch.arange(N)
    zoo.register("algebras", "my_cyclic", lambda: zoo.Algebra(torch.eye(N)[(i[:, None] + i) % N]))
    yield "my_cyclic"
    zoo.registry.unregister("algebras", "my_cyclic")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(IN, OUT))


def theirs(**options):
    """Return PEFT's layer with random weights."""
    model = peft.get_peft_model(network(), options.pop("kind")(target_modules=["0"], **options))
    for p in model.parameters():
        if p.requires_grad:
            nn.init.normal_(p)
    return model, model.base_model.model[0]


def ours(**options):
    model = peft.get_peft_model(network(), ZooConfig(target_modules=["0"], **options))
    return model, model.base_model.model[0].zoo_update["default"]


def assert_equal(model, other):
    x = torch.randn(5, IN)
    layers = model.base_model.model[0], other.base_model.model[0]
    deltas = [layer.get_delta_weight("default") for layer in layers]
    assert deltas[0].norm() > 0
    torch.testing.assert_close(deltas[0], deltas[1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model(x), other(x), rtol=1e-6, atol=1e-5)


def assert_equal_both_ways(model, other, pairs):
    """Compare the models after the weights of each are copied into the other."""
    for mine, their in pairs:
        mine.copy_(their)
    assert_equal(model, other)
    for mine, their in pairs:
        their.copy_(nn.init.normal_(mine))
    assert_equal(model, other)


@torch.no_grad()
def test_c3a_is_the_cyclic_algebra(cyclic):
    reversal = -torch.arange(N) % N
    other, layer = theirs(kind=peft.C3AConfig, block_size=N)
    model, update = ours(algebra=cyclic, block_rank=0, channels="element", alpha=1 / IN)
    update.full.copy_(layer.c3a_kernel["default"].movedim(-1, 0)[reversal])
    assert_equal(model, other)
    nn.init.normal_(update.full)
    layer.c3a_kernel["default"].copy_(update.full[reversal].movedim(0, -1))
    assert_equal(model, other)
    assert update.full.numel() == layer.c3a_kernel["default"].numel()


@pytest.mark.parametrize("rank", [1, 8])
@torch.no_grad()
def test_lokr_is_one_kronecker_term(rank):
    other, layer = theirs(kind=peft.LoKrConfig, r=rank, alpha=2, decompose_factor=N)
    is_full = rank == 8
    model, update = ours(algebra=f"phm(n={N}, terms=1)", block_rank=0 if is_full else rank, alpha=2 / rank)
    pairs = [(update.rule.table[0], layer.lokr_w1["default"].T)]
    if is_full:
        pairs.append((update.full[0], layer.lokr_w2["default"]))
    else:
        pairs += [(update.up[0], layer.lokr_w2_a["default"]), (update.down[0], layer.lokr_w2_b["default"])]
    assert_equal_both_ways(model, other, pairs)
    counts = [sum(p.numel() for p in net.parameters() if p.requires_grad) for net in (model, other)]
    assert counts[0] == counts[1]


@torch.no_grad()
def test_the_phm_layer_of_compacter():
    """Karimi Mahabadi et al. 2021, Eq. 5: y = x W with W = sum_i A_i (x) (s_i t_i); all layers share the A_i."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(IN, OUT, bias=False), nn.Linear(OUT, IN, bias=False))
    model = peft.get_peft_model(net, ZooConfig(algebra=f"phm(n={N}, shared=True)", block_rank=1, target_modules=["0", "1"]))
    updates = [model.base_model.model[i].zoo_update["default"] for i in (0, 1)]
    assert updates[0].rule is updates[1].rule
    a = torch.randn(N, N, N)
    updates[0].rule.table.copy_(a)
    for update, (inp, out) in zip(updates, ((IN, OUT), (OUT, IN)), strict=True):
        s, t = torch.randn(N, inp // N, 1), torch.randn(N, 1, out // N)
        update.down.copy_(s.transpose(1, 2))
        update.up.copy_(t.transpose(1, 2))
        w = sum(torch.kron(a[i], (s[i] @ t[i]).contiguous()) for i in range(N))
        x = torch.randn(5, inp)
        torch.testing.assert_close(update(x), x @ w, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(update.matrix(), w.T, rtol=1e-6, atol=1e-6)
        back = sum(torch.kron(update.rule.table[i], (update.up[i] @ update.down[i]).T.contiguous()) for i in range(N))
        torch.testing.assert_close(back, w, rtol=1e-6, atol=1e-6)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == N**3 + 2 * (IN + OUT)


@pytest.mark.parametrize("rank", [3, IN])
@torch.no_grad()
def test_lora_is_an_adapter_over_the_reals(rank):
    other, layer = theirs(kind=peft.LoraConfig, r=rank, lora_alpha=6)
    model, update = ours(algebra="real", block_rank=rank, alpha=6 / rank)
    pairs = [(update.down[0], layer.lora_A["default"].weight), (update.up[0], layer.lora_B["default"].weight)]
    assert_equal_both_ways(model, other, pairs)


@torch.no_grad()
def test_lora_of_full_rank_is_our_update():
    model, update = ours(algebra="quaternion", block_rank=2)
    nn.init.normal_(update.up)
    lora, state = peft.convert_to_lora(model, rank=IN)
    other = peft.get_peft_model(network(), lora)
    peft.set_peft_model_state_dict(other, state)
    assert_equal(model, other)
