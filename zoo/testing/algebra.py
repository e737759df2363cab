"""The test contract of an algebra: its product and the layers over it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from zoo.algebras import Algebra, Laws, algebra, factorize, laws, unit
from zoo.kernels import axis_layout, real_matrix
from zoo.nn import Conv1d, Conv2d, Embedding, Linear
from zoo.testing import definition


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Draw standard normals in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def observe(product: Algebra) -> Laws:
    """Test the laws on random elements: a polynomial identity that does not hold fails almost everywhere."""
    x, y, z = draw(3, 5, product.n)

    def close(left: Tensor, right: Tensor) -> bool:
        return torch.allclose(left, right, atol=1e-6 * left.abs().max().item(), rtol=0)

    u = unit(product.structure)
    e = x if u is None else u.expand_as(x)
    return Laws(
        unital=close(product(e, y), y) and close(product(y, e), y),
        commutative=close(product(x, y), product(y, x)),
        associative=close(product(product(x, y), z), product(x, product(y, z))),
        alternative=close(product(product(x, x), y), product(x, product(x, y)))
        and close(product(product(y, x), x), product(y, product(x, x))),
        normed=close(product(x, y).norm(dim=-1), x.norm(dim=-1) * y.norm(dim=-1)),
    )


def compare(y: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Compare values, and the gradients of a random linear function of them."""
    torch.testing.assert_close(y, expected)
    seed = draw(*y.shape, seed=2)
    for ours, theirs in zip(*(torch.autograd.grad(t, inputs, seed, retain_graph=True) for t in (y, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)


class AlgebraContract:
    """Tests that an algebra must pass to work in every layer; subclass it in a test file and pytest runs it.

    >>> from zoo.algebras import Laws
    >>> class TestComplex(AlgebraContract):
    ...     spec = "complex"
    ...     laws = Laws(unital=True, commutative=True, associative=True, alternative=True, normed=True)
    >>> TestComplex().test_laws_are_as_declared()

    Attributes:
        spec: The algebra's spec; or override `algebra()`, which returns a new object at every call.
        laws: The expected laws, for example from a textbook; None to skip that test.
    """

    spec: str = ""
    laws: Laws | None = None

    def algebra(self) -> Algebra:
        """Create the algebra, a new object at every call."""
        return algebra(self.spec)

    def test_product_is_the_definition(self) -> None:
        """Features [..., C] are multiplied element by element, component-major."""
        product = self.algebra().double()
        n = product.n
        x, y = draw(2, 3, 2 * n)
        z = product(x, y)
        for row in range(3):
            for element in range(2):
                expected = definition.multiply(product.structure, x[row, element::2], y[row, element::2])
                torch.testing.assert_close(z[row, element::2], expected)

    def test_laws_are_as_declared(self) -> None:
        """The laws that `zoo.algebras.laws` computes are the declared ones."""
        if self.laws is None:
            pytest.skip("no laws are declared")
        assert laws(self.algebra()) == self.laws

    def test_laws_show_in_products(self) -> None:
        """The laws that `zoo.algebras.laws` computes hold for random elements, and no others."""
        product = self.algebra().double()
        assert observe(product) == laws(product)

    def test_factors_rebuild_the_table(self) -> None:
        """The factors reconstruct the structure tensor exactly, with at most one multiplication per nonzero pair."""
        table = self.algebra().double().structure.detach()
        factors = factorize(table)
        terms = zip(factors.left, factors.right, factors.result, strict=True)
        rebuilt = sum((torch.einsum("i,j,k->ijk", u, v, w) for u, v, w in terms), torch.zeros_like(table))
        assert torch.equal(rebuilt, table)
        assert factors.rank <= table.any(dim=-1).sum()

    def test_block_is_the_product(self) -> None:
        """The real matrix of w multiplies x element by element, with blocks and padding; values and gradients."""
        n = self.algebra().double().n
        for channels, blocks in (((2 * n, 3 * n), (1, 1)), ((10, 7), (1, 1)), ((2 * (n + 1), 3 * n), (2, 3))):
            a = self.algebra().double().structure.detach().clone().requires_grad_()
            inp, out = (axis_layout(c, n, b) for c, b in zip(channels, blocks, strict=True))
            w, x = draw(n, out.elements, inp.elements).requires_grad_(), draw(3, channels[0], seed=1).requires_grad_()
            compare(x @ real_matrix(a, w, out, inp).T, definition.linear(a, w, x, channels[1], blocks), a, w, x)

    def linear(self, inp: int, out: int, bias: bool = True, blocks: tuple[int, int] = (1, 1), seed: int = 0) -> Linear:
        """Create a layer in float64."""
        torch.manual_seed(seed)
        return Linear(inp, out, bias, algebra=self.algebra(), blocks=blocks).double()

    def test_linear_commutes_with_right_multiplication(self) -> None:
        """f(x q) = f(x) q if and only if the algebra is associative."""
        n = self.algebra().n
        layer, x, q = self.linear(2 * n, 3 * n, bias=False), draw(4, 2 * n), draw(n, 1, seed=1)

        def times_q(y: Tensor) -> Tensor:
            z: Tensor = layer.algebra(y, q.expand(n, y.shape[-1] // n).flatten().expand_as(y))
            return z

        before, after = layer(times_q(x)), times_q(layer(x))
        commutes = torch.allclose(before, after, atol=1e-6 * after.abs().max().item(), rtol=0)
        assert commutes == (self.laws or laws(layer.algebra)).associative

    def test_linear_takes_any_size(self) -> None:
        """Sizes that n does not divide are padded, and blocks are separate vectors."""
        for inp, out, blocks in ((10, 7, (1, 1)), (9, 12, (3, 2))):
            layer = self.linear(inp, out, blocks=blocks)
            assert layer.bias is not None
            nn.init.normal_(layer.bias)
            x = draw(2, 3, inp)
            expected = definition.linear(layer.weight_module.action(), layer.weight_module.elements, x, out, blocks)
            torch.testing.assert_close(layer(x), expected + layer.bias)
            assert layer.weight.shape == (out, inp)

    def test_linear_runs_in_every_precision(self) -> None:
        """Results in float32, float64, bfloat16 and autocast agree up to rounding and have the right dtype."""
        layer, x = self.linear(40, 24), draw(6, 40)
        exact = layer(x)
        assert exact.dtype == torch.float64
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
            y = layer.to(dtype)(x.to(dtype))
            assert y.dtype == dtype
            assert distance(y, exact) < tolerance
        layer = self.linear(40, 24).float()
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x.float())
        assert y.dtype == torch.bfloat16
        assert distance(y, exact) < 5e-2

    def test_parameters_are_counted(self) -> None:
        """There are m ceil(out / n) ceil(in / n) weights, out biases, and n^3 or 3 R n parameters of a learned product."""
        algebra = self.algebra()
        n = algebra.n
        rule = algebra.stored.numel() if algebra.kind == "learned" else 0
        for inp, out in ((10, 7), (4 * n, 2 * n)):
            expected = algebra.m * -(-out // n) * -(-inp // n) + out + rule
            assert sum(p.numel() for p in self.linear(inp, out).parameters()) == expected

    def test_output_variance_is_one(self) -> None:
        """Unit-variance input gives unit-variance output for any matrix shape."""
        n = self.algebra().n
        for inp, out in ((1024, 256), (256, 1024), (512, 512)):
            inp, out = (-(-size // n) * n for size in (inp, out))
            y = self.linear(inp, out)(draw(512, inp))
            assert abs(y.square().mean().item() - 1) < 0.1, (inp, out)

    def test_the_seed_decides_the_draw(self) -> None:
        """`torch.manual_seed` determines the weights."""
        state, same, other = (list(self.linear(10, 7, seed=seed).state_dict().values()) for seed in (3, 3, 4))
        assert all(torch.equal(a, b) for a, b in zip(state, same, strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(state, other, strict=True))

    def compare_conv(self, x: Tensor, channels: tuple[int, int], kernel: tuple[int, ...], **options: Any) -> None:
        """Compare the output and weight gradient of a layer with torch's convolution by the real kernel of its definition."""
        torch.manual_seed(0)
        build, real = (Conv1d, nn.Conv1d) if len(kernel) == 1 else (Conv2d, nn.Conv2d)
        layer = build(*channels, kernel, algebra=self.algebra(), **options).double()
        assert layer.bias is not None
        nn.init.normal_(layer.bias)
        weight, (inp, out) = layer.weight_module, channels
        whole = definition.kernel(weight.action(), weight.elements, out, inp, options.pop("groups", 1))
        twin = real(inp, out, kernel, **options)  # type: ignore[arg-type]
        compare(layer(x), functional_call(twin, {"weight": whole, "bias": layer.bias}, x), layer.components)

    def test_conv1d_is_a_sum_of_linear_layers(self) -> None:
        """Stride, padding, dilation, 'same' and padding modes match the definition, also if n does not divide the channels."""
        x = draw(2, 10, 9)
        self.compare_conv(x, (10, 7), (3,), stride=2, padding=2)
        self.compare_conv(x, (10, 7), (5,), padding="same")
        self.compare_conv(x, (10, 7), (3,), dilation=2, padding="valid")
        for mode in ("reflect", "replicate", "circular"):
            self.compare_conv(x, (10, 7), (3,), padding=1, padding_mode=mode)

    def test_conv2d_is_a_sum_of_linear_layers(self) -> None:
        """Stride, padding, dilation, 'same' and a padding mode match the definition for rectangular kernels."""
        x = draw(2, 10, 6, 5)
        self.compare_conv(x, (10, 7), (3, 2), stride=2, padding=2)
        self.compare_conv(x, (10, 7), (3, 1), padding="same")
        self.compare_conv(x, (10, 7), (1, 3), dilation=2, padding=(0, 1), padding_mode="circular")

    def test_a_group_takes_its_share_of_every_component(self) -> None:
        """Groups consist of whole elements: channels are [n, groups, width]."""
        n = self.algebra().n
        self.compare_conv(draw(2, 2 * n, 5, 5), (2 * n, 2 * n), (3, 3), padding=1, stride=2, groups=2)
        for inp, out, groups in ((3, 3, 2), (3, 3, 3), (2, 4, 3), (6, 3, 2), (4, 2, 4), (4, 6, 2)):
            if n * inp % groups == n * out % groups == 0:  # groups need not divide the elements
                self.compare_conv(draw(2, n * inp, 7), (n * inp, n * out), (3,), padding=1, groups=groups)

    def test_embedding_reads_one_hot_vectors(self) -> None:
        """The output and gradient of an embedding are those of a linear layer on one-hot vectors."""
        torch.manual_seed(0)
        table = Embedding(11, 10, algebra=self.algebra()).double()
        layer = Linear(11, 10, algebra=self.algebra(), bias=False).double()
        with torch.no_grad():
            layer.weight_module.elements.copy_(table.weight_module.elements)
            layer.algebra.load_state_dict(table.algebra.state_dict())
        words = torch.tensor([[0, 10, 3], [7, 3, 5]])
        y, expected = table(words), layer(F.one_hot(words, 11).double())
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(table.weight[words], expected)
        for ours, theirs in zip(table.parameters(), layer.parameters(), strict=True):
            left, right = (torch.autograd.grad(t.sum(), p, retain_graph=True)[0] for t, p in ((y, ours), (expected, theirs)))
            torch.testing.assert_close(left if left.shape == right.shape else left.mT, right)

    def test_state_dict_restores_the_layer(self) -> None:
        """Loading a state dict into a layer with another seed restores the output bit for bit."""
        torch.manual_seed(0)
        layer, other, x = Linear(10, 7, algebra=self.algebra()), Linear(10, 7, algebra=self.algebra()), torch.randn(3, 10)
        check_restored(layer, other, lambda net: net(x))

    def test_a_copy_is_independent(self) -> None:
        """A deep copy has the same output, and changing it does not change the original."""
        x = torch.randn(3, 10)
        check_copy(Linear(10, 7, algebra=self.algebra()), lambda net: net(x))

    def test_layers_of_one_algebra_do_not_share_a_dtype(self) -> None:
        """Changing the dtype of a layer does not affect other layers of the algebra, unless the product is shared."""
        product = self.algebra()
        layer, other = Linear(10, 7, algebra=product), Linear(10, 7, algebra=product)
        if layer.algebra is other.algebra:
            assert product.shared
            return
        layer.double()
        assert layer(torch.randn(3, 10, dtype=torch.float64)).dtype == torch.float64
        assert other(torch.randn(3, 10)).dtype == torch.float32
        assert product.structure.dtype == torch.float32

    def test_the_spec_names_the_algebra(self) -> None:
        """The repr shows the spec, and the spec creates the same algebra, with the same product unless it is random."""
        product = self.algebra()
        if not product.spec:
            pytest.skip("an algebra without a spec")
        again = algebra(product.spec)
        assert product.spec in repr(product)
        assert again.spec == product.spec
        assert (again.n, again.kind, again.shared) == (product.n, product.kind, product.shared)
        if product.kind == "fixed":
            assert torch.equal(again.structure, product.structure)


def distance(y: Tensor, exact: Tensor) -> float:
    """Return the relative error of y."""
    return float((y.detach().double() - exact.detach()).norm() / exact.detach().norm())


def check_restored(net: nn.Module, other: nn.Module, function: Callable[[nn.Module], Tensor]) -> None:
    """Check that loading the state dict of a network into another one restores its output bit for bit."""
    assert not torch.equal(function(net), function(other))
    other.load_state_dict(net.state_dict())
    assert torch.equal(function(net), function(other))


def check_copy(net: nn.Module, function: Callable[[nn.Module], Tensor]) -> None:
    """Check that a deep copy has the same output, and that changing it does not change the original."""
    y, twin = function(net), copy.deepcopy(net)
    assert torch.equal(function(twin), y)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    assert not torch.equal(function(twin), y)
    assert torch.equal(function(net), y)
