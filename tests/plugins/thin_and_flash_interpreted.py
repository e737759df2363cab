"""Tests of the kernels of few rows and of attention in Triton's interpreter; test_thin_and_flash runs them in a process."""

import pytest
import torch
from torch.nn import functional as F
from zoo_gpu import flash, thin

import zoo
from zoo.algebras import Algebra
from zoo.kernels import Operand, real_matrix
from zoo.kernels.internals import is_plain_mode
from zoo.nn import Attention, Linear, keep_matrices, scores, set_kernel
from zoo.tasks.decoding import Decoding, Prompts, generate

LAYOUTS = [(8, 16, (1, 1)), (10, 7, (1, 1)), (42, 38, (3, 2)), (70, 72, (1, 1))]


@pytest.fixture
def launched(monkeypatch):
    """The rows of each launch of the kernel of few rows, and the number of each kernel of attention."""
    calls = []
    product, launch = thin.thin_product, flash.launch

    def recorded(weight):
        multiply = product(weight)
        return lambda x, bias: calls.append(x.shape[:-1].numel()) or multiply(x, bias)

    monkeypatch.setattr(thin, "thin_product", recorded)
    monkeypatch.setattr(flash, "launch", lambda which, *rest: calls.append(f"attention {which}") or launch(which, *rest))
    return calls


# --- few rows ---


def table(n, m, sparse=False):
    a = torch.randn(m, n, n, dtype=torch.float64)
    return a.sign() * (torch.rand(m, n, n) < 0.4) if sparse else a


def expected(layer, x):
    w = layer.components.detach().double()
    matrix = real_matrix(layer.weight_module.action().detach().double(), w, layer.out, layer.inp)
    return F.linear(x.double(), matrix, layer.bias.detach().double())


def check(layer, rows, bound=1e-5, dtype=torch.float32):
    layer = layer.to(dtype)
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(rows, layer.in_features).to(dtype)
    y = thin.thin_product(Operand(layer.components.detach(), layer.algebra, layer.out, layer.inp))(x, layer.bias.detach())
    wanted = expected(layer, x)
    assert y.dtype == dtype
    assert (y.double() - wanted).abs().max() <= bound * wanted.abs().max()


@pytest.mark.parametrize("n", range(2, 9))
def test_random_products_of_all_dimensions(n):
    torch.manual_seed(n)
    for rows, sparse in ((1, n % 2 > 0), (2 * n - 1 if n < 5 else 3, n % 2 == 0)):
        inp, out, blocks = LAYOUTS[(n + rows) % 4]
        check(Linear(inp, out, algebra=Algebra(table(n, n, sparse)), blocks=blocks), rows)


@pytest.mark.parametrize("rows", [1, 5])
def test_subspaces_and_learned_products(rows):
    torch.manual_seed(0)
    check(Linear(10, 7, algebra=Algebra(table(4, 4), left=torch.eye(4)[1:])), rows)
    check(Linear(42, 38, algebra="phm-3", blocks=(3, 2)), rows)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    torch.manual_seed(0)
    for rows in (1, 3):
        check(Linear(10, 7, algebra=Algebra(table(3, 3))), rows, 2e-2, dtype)


def test_any_address_and_stride():
    torch.manual_seed(0)
    layer = Linear(12, 8, algebra="quaternion")
    buffer = torch.randn(5, 25)
    w = layer.components.detach().transpose(1, 2).contiguous().transpose(1, 2)
    for x in (buffer[:3, 1:13], buffer[:3, ::2][:, 1:], buffer[1:2, 3:15], buffer[0, 1:13]):
        y = thin.thin_product(Operand(w, layer.algebra, layer.out, layer.inp))(x, None)
        torch.testing.assert_close(y.double(), expected(layer, x))


@pytest.mark.parametrize("rows", [1, 3])
def test_memory_outside_the_result_is_not_written(rows, monkeypatch):
    layer, buffer = Linear(10, 7, algebra=Algebra(table(3, 3))), torch.full((rows * 7 + 64,), 9.0)
    result, new_empty = buffer[32:-32].view(rows, 7), torch.Tensor.new_empty

    def allocate(self, *shape, **options):
        return result if shape == (result.shape,) else new_empty(self, *shape, **options)

    monkeypatch.setattr(torch.Tensor, "new_empty", allocate)
    thin.thin_product(Operand(layer.components.detach(), layer.algebra, layer.out, layer.inp))(torch.randn(rows, 10), None)
    assert not (result == 9).any()
    assert (buffer[:32] == 9).all()
    assert (buffer[-32:] == 9).all()


@pytest.mark.parametrize("kept", [False, True])
def test_few_rows_in_inference_are_one_launch_each(kept, launched):
    layer, x = Linear(8, 8, algebra="quaternion"), torch.randn(2, 4, 8)
    with torch.no_grad():
        for _ in range(2):
            with keep_matrices(layer if kept else None):
                torch.testing.assert_close(layer(x[:, :1]), F.linear(x[:, :1], layer.weight, layer.bias))
                layer(x)
                layer(x[0, 0])
    assert launched == 2 * [2, 8, 1]


def test_everything_else_is_left_to_other_kernels(launched):
    layer, x = Linear(8, 8, algebra="quaternion"), torch.randn(17, 8)
    layer(x[:2])
    with torch.no_grad():
        layer(x)
        layer.double()(x[:2].double())
        for spec in ("sedenion", "phm-8", "real"):
            other = Linear(16, 16, algebra=spec)
            torch.testing.assert_close(other(x[:2].repeat(1, 2)), F.linear(x[:2].repeat(1, 2), other.weight, other.bias))
        with torch.autocast("cpu", torch.bfloat16):
            layer.float()(x[:2])
        layer(x[:0])
    assert launched == []
    assert is_plain_mode()


def test_a_bias_with_a_gradient(launched):
    layer, x = Linear(8, 8, algebra="quaternion"), torch.randn(2, 8)
    layer.components.requires_grad_(False)
    layer(x).sum().backward()
    assert launched == [2]
    assert torch.equal(layer.bias.grad, torch.full((8,), 2.0))


def test_decoding_uses_the_kernel(launched):
    torch.manual_seed(0)
    net = zoo.backbone("gpt(dim=16, depth=1, heads=2)", "quaternion", vocab_size=16, max_length=24).eval()
    prompts, options = Prompts(torch.randint(1, 16, (2, 12))), Decoding(length=3, temperature=0.0)
    tokens = generate(net, prompts, options)
    layers = sum(isinstance(part, Linear) and part.inp.n == 4 for part in net.modules())
    assert launched == [2] * 2 * layers  # the prompts have 24 rows
    set_kernel(net, "block")
    assert generate(net, prompts, options) == tokens
    assert len(launched) == 2 * layers


# --- attention ---


def draw(*shape):
    return torch.randn(*shape, requires_grad=True)


def attend(inputs, n, structure, mask, causal, by_definition=False, **options):
    q, k, v = inputs
    keys = scores.arrange(k, structure.to(k), "hermitian")
    if by_definition:
        return scores._attend_by_definition(q, keys, v, "hermitian", mask, causal, 0.0, q.shape[-1] ** -0.5)
    return scores.attend(q, keys, v, "hermitian", mask, causal, **options)


CASES = [
    (n, queries, keys, causal, masked)
    for n, queries, keys, causal, masked in zip(
        range(1, 9),
        (17, 5, 33, 16, 18, 3, 20, 2),
        (17, 33, 33, 19, 7, 40, 20, 21),
        (0, 1, 1, 0, 1, 0, 1, 1),
        (0, 1, 0, 1, 0, 1, 1, 0),
        strict=True,
    )
]


@pytest.mark.parametrize(("n", "queries", "keys", "causal", "masked"), CASES)
def test_attention_of_all_dimensions(n, queries, keys, causal, masked, launched):
    torch.manual_seed(n)
    structure, channels = torch.randn(n, n, n, dtype=torch.float64), n * (1 + n % 3)
    inputs = [draw(2, 1, size, width) for size, width in ((queries, channels), (keys, channels), (keys, 5))]
    mask = torch.arange(keys) >= torch.tensor([[3], [keys]]) if masked else None  # all keys of the second are padding
    y = attend(inputs, n, structure, mask, bool(causal))
    g = torch.randn_like(y)
    found = y, *torch.autograd.grad(y, inputs, g)
    assert launched == ["attention 0", "attention 1", "attention 2"]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    wanted = attend(exact, n, structure, mask, bool(causal), by_definition=True)
    for a, b in zip(found, (wanted, *torch.autograd.grad(wanted, exact, g.double())), strict=True):
        assert (a.double() - b).abs().max() <= 1e-5 * max(1.0, b.abs().max())


def test_attention_in_half_precision():
    torch.manual_seed(0)
    structure = zoo.algebra("quaternion").structure.double()
    inputs = [draw(1, 2, 18, 8) for _ in range(3)]
    y = attend([t.half() for t in inputs], 4, structure, None, True)
    wanted = attend(inputs, 4, structure, None, True, by_definition=True)
    assert y.dtype == torch.float16
    gradients = (torch.autograd.grad(t.float().square().sum(), inputs) for t in (y, wanted))
    for a, b in zip((y, *next(gradients)), (wanted, *next(gradients)), strict=True):
        assert (a.float() - b).abs().max() <= 2e-2 * b.abs().max()


def test_dropout_is_the_same_in_forward_and_backward():
    structure = zoo.algebra("complex").structure.double()
    q, k, g = draw(1, 2, 24, 4), draw(1, 2, 20, 4), torch.randn(1, 2, 24, 20)
    eye = torch.eye(20).expand(1, 2, -1, -1).clone().requires_grad_()

    def call(seed, dropout=0.4):
        torch.manual_seed(seed)
        return attend((q, k, eye), 2, structure, None, False, dropout=dropout)  # the weights, because the values are an eye

    weights = call(1)
    assert torch.equal(weights, call(1))
    assert not torch.equal(weights, call(2))
    plain, factors = call(1, 0.0), (weights > 0) / 0.6
    assert abs(factors.mean() - 1) < 0.1
    torch.testing.assert_close(weights, plain * factors)
    found = torch.autograd.grad(weights, (q, k, eye), g)
    # The same by torch: the weights times the factors, times the values.
    keys = scores.arrange(k, structure.float(), "hermitian")
    p = torch.linalg.vector_norm(q.unsqueeze(2) @ keys.mT / 2, dim=2).softmax(-1) * factors
    for a, b in zip(found, torch.autograd.grad(p @ eye, (q, k, eye), g), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_nothing_of_size_queries_times_keys_is_saved():
    inputs, sizes = [draw(1, 1, 64, 4) for _ in range(3)], []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        attend(inputs, 2, zoo.algebra("complex").structure, None, True)
    assert max(sizes) < 64 * 64


def test_gradients_at_zero_are_finite():
    inputs = [torch.zeros(1, 1, 5, 4, requires_grad=True) for _ in range(3)]
    y = attend(inputs, 2, zoo.algebra("complex").structure, None, False)
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), inputs))


@pytest.mark.parametrize(("dtype", "channels"), [(torch.float64, 4), (torch.float32, 132)])
def test_unsupported_attention_is_left_to_torch(dtype, channels, launched):
    structure, inputs = zoo.algebra("complex").structure, [torch.randn(1, 1, 3, channels, dtype=dtype) for _ in range(3)]
    y = attend(inputs, 2, structure, None, True)
    torch.testing.assert_close(y, attend(inputs, 2, structure, None, True, by_definition=True))
    attend([t[:, :, :0] for t in inputs], 2, structure, None, False)
    assert launched == []


def test_layers_train_with_the_kernel(launched):
    torch.manual_seed(0)
    layer, x = Attention(8, 2, algebra="quaternion", score="hermitian", dropout=0.1), torch.randn(2, 9, 8)
    layer(x, mask=torch.ones(2, 9, dtype=torch.bool), causal=True).sum().backward()
    assert launched == ["attention 0", "attention 1", "attention 2"]
    assert all(p.grad.isfinite().all() for p in layer.parameters())
