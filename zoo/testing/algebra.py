"""The contract of an algebra: its product, and the layers over it."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import algebra, laws
from zoo.layers import Conv1d, Conv2d, Embedding, Linear
from zoo.testing import definition
from zoo.testing.product import KernelContract, ProductContract, Subject, draw


class LinearContract(Subject):
    """A linear layer over the algebra multiplies from the left, for any size, layout and precision."""

    def linear(self, inp: int, out: int, bias: bool = True, blocks: tuple[int, int] = (1, 1), seed: int = 0) -> Linear:
        """Make a layer in float64."""
        torch.manual_seed(seed)
        return Linear(self.algebra(), inp, out, bias, blocks=blocks).double()

    def test_linear_commutes_with_right_multiplication(self) -> None:
        """f(x q) = f(x) q in an associative algebra, and in no other."""
        layer = self.linear(2 * self.algebra().n, 3 * self.algebra().n, bias=False)
        product, n = layer.algebra, layer.algebra.n
        x, q = draw(4, 2 * n), draw(n, 1, seed=1)
        before = layer(product(x, q.expand(n, 2).flatten().expand(4, -1)))
        after = product(layer(x), q.expand(n, 3).flatten().expand(4, -1))
        same = torch.allclose(before, after, atol=1e-6 * after.abs().max().item(), rtol=0)
        assert same == (self.laws or laws(product)).associative

    def test_linear_takes_any_size(self) -> None:
        """Sizes are padded inside, vectors side by side are cut, elements multiplied by the definition, and padding removed."""
        for inp, out, blocks in ((10, 7, (1, 1)), (9, 12, (3, 2))):
            layer = self.linear(inp, out, blocks=blocks)
            assert layer.bias is not None
            nn.init.normal_(layer.bias)
            x = draw(2, 3, inp)
            expected = definition.linear(layer.weight_module.action(), layer.weight_module.elements, x, out, blocks)
            torch.testing.assert_close(layer(x), expected + layer.bias)
            assert layer.weight.shape == (out, inp)

    def test_each_gate_is_a_layer_of_its_own(self) -> None:
        """Four gates side by side give the numbers of four layers, each made of whole elements."""
        n = self.algebra().n
        fused = self.linear(3 * n, 8 * n, bias=False, blocks=(1, 4))
        x = draw(5, 3 * n)
        for gate, y in enumerate(fused(x).chunk(4, -1)):
            one = self.linear(3 * n, 2 * n, bias=False)
            with torch.no_grad():
                one.weight_module.elements.copy_(fused.weight_module.elements[:, 2 * gate : 2 * gate + 2])
                one.algebra.load_state_dict(fused.algebra.state_dict())
            torch.testing.assert_close(one(x), y)

    def test_linear_runs_in_every_precision(self) -> None:
        """float32, float64, bfloat16 and autocast give the same numbers up to their rounding, and autocast's own dtype."""
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
        """The weights are m ceil(out / n) ceil(in / n), m = n without `left`, the biases `out`, a learned rule n^3 or 3 R n."""
        algebra = self.algebra()
        n = algebra.n
        numbers = n**3 if algebra.factors is None else 3 * algebra.factors.rank * n
        rule = numbers if algebra.learned else 0
        for inp, out in ((10, 7), (4 * n, 2 * n)):
            expected = algebra.m * -(-out // n) * -(-inp // n) + out + rule
            assert sum(p.numel() for p in self.linear(inp, out).parameters()) == expected

    def test_output_variance_is_one(self) -> None:
        """Unit input gives unit variance over all output channels, for every rectangle."""
        n = self.algebra().n
        for inp, out in ((1024, 256), (256, 1024), (512, 512)):
            inp, out = (-(-size // n) * n for size in (inp, out))
            y = self.linear(inp, out)(draw(512, inp))
            assert abs(y.square().mean().item() - 1) < 0.1, (inp, out)

    def test_the_seed_decides_the_draw(self) -> None:
        """The same `torch.manual_seed` gives the same weights, another seed other ones."""
        one, same, other = (list(self.linear(10, 7, seed=seed).state_dict().values()) for seed in (3, 3, 4))
        assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def distance(y: Tensor, exact: Tensor) -> float:
    """Return the relative error of y."""
    return float((y.detach().double() - exact.detach()).norm() / exact.detach().norm())


class ConvContract(Subject):
    """A convolution is the sum of its taps, each of them a linear layer; an embedding reads one-hot vectors."""

    def compare_conv(
        self, x: Tensor, pad: tuple[int, ...], kernel: tuple[int, ...], channels: tuple[int, int], **options: Any
    ) -> None:
        """Compare a layer, values and weight gradient, with the taps summed over input that is padded by hand."""
        torch.manual_seed(0)
        build = Conv1d if len(kernel) == 1 else Conv2d
        layer = build(self.algebra(), *channels, kernel, **options).double()
        torch.nn.init.normal_(layer.bias)  # type: ignore[arg-type]
        mode = options.get("padding_mode", "zeros")
        padded = F.pad(x, pad, mode="constant" if mode == "zeros" else mode)
        strides = {name: options.get(name, 1) for name in ("stride", "dilation", "groups")}
        expected = definition.convolve(
            layer.weight_module.action(), layer.weight_module.elements, padded, channels[1], **strides
        )
        expected = expected + layer.bias.view(-1, *[1] * len(kernel))  # type: ignore[union-attr]
        y = layer(x)
        torch.testing.assert_close(y, expected)
        seed = draw(*y.shape, seed=2)
        ours, theirs = (torch.autograd.grad(t, layer.components, seed, retain_graph=True)[0] for t in (y, expected))
        torch.testing.assert_close(ours, theirs)

    def test_conv1d_is_a_sum_of_linear_layers(self) -> None:
        """For stride, padding, dilation, 'same' and every padding mode, at sizes that n does not divide."""
        x = draw(2, 10, 9)
        self.compare_conv(x, (2, 2), (3,), (10, 7), stride=2, padding=2)
        self.compare_conv(x, (2, 2), (5,), (10, 7), padding="same")
        self.compare_conv(x, (0, 0), (3,), (10, 7), dilation=2, padding="valid")
        for mode in ("reflect", "replicate", "circular"):
            self.compare_conv(x, (1, 1), (3,), (10, 7), padding=1, padding_mode=mode)

    def test_conv2d_is_a_sum_of_linear_layers(self) -> None:
        """For stride, padding, dilation, 'same' and a padding mode, with a kernel that is not square."""
        x = draw(2, 10, 6, 5)
        self.compare_conv(x, (2, 2, 2, 2), (3, 2), (10, 7), stride=2, padding=2)
        self.compare_conv(x, (0, 0, 1, 1), (3, 1), (10, 7), padding="same")
        self.compare_conv(x, (1, 1, 0, 0), (1, 3), (10, 7), dilation=2, padding=(0, 1), padding_mode="circular")

    def test_a_group_takes_its_share_of_every_component(self) -> None:
        """Channels [n, groups, width] are convolved group by group, each made of whole elements."""
        n = self.algebra().n
        self.compare_conv(draw(2, 4 * n, 7), (1, 1), (3,), (4 * n, 6 * n), padding=1, groups=2)
        self.compare_conv(draw(2, 2 * n, 5, 5), (1, 1, 1, 1), (3, 3), (2 * n, 2 * n), padding=1, stride=2, groups=2)
        for inp, out, groups in self.shares():
            self.compare_conv(draw(2, inp, 7), (1, 1), (3,), (inp, out), padding=1, groups=groups)

    def test_groups_commute_with_right_multiplication(self) -> None:
        """f(x q) = f(x) q in an associative algebra, and in no other, however many elements a group has."""
        for inp, out, groups in self.shares():
            torch.manual_seed(0)
            layer = Conv1d(self.algebra(), inp, out, 3, groups=groups, bias=False).double()
            product, n = layer.algebra, layer.algebra.n
            x, q = draw(2, 5, inp), draw(n, 1, seed=1)
            before = layer(product(x, q.expand(n, inp // n).flatten()).mT).mT
            after = product(layer(x.mT).mT, q.expand(n, out // n).flatten())
            same = torch.allclose(before, after, atol=1e-6 * after.abs().max().item(), rtol=0)
            assert same == (self.laws or laws(product)).associative, (inp, out, groups)

    def shares(self) -> list[tuple[int, int, int]]:
        """List input channels, output channels and groups: whole elements, as many as the groups share evenly or not."""
        n = self.algebra().n
        sizes = [(3 * n, 3 * n, 2), (3 * n, 3 * n, 3), (2 * n, 4 * n, 3), (6 * n, 3 * n, 2), (4 * n, 2 * n, 4)]
        return [(inp, out, groups) for inp, out, groups in sizes if inp % groups == out % groups == 0]

    def test_embedding_reads_one_hot_vectors(self) -> None:
        """An embedding is the linear layer with its weights, applied to one-hot vectors; so is its gradient."""
        torch.manual_seed(0)
        table = Embedding(self.algebra(), 11, 10).double()
        layer = Linear(self.algebra(), 11, 10, bias=False).double()
        with torch.no_grad():
            layer.weight_module.elements.copy_(table.weight_module.elements)
            layer.algebra.load_state_dict(table.algebra.state_dict())
        words = torch.tensor([[0, 10, 3], [7, 3, 5]])
        y, expected = table(words), layer(F.one_hot(words, 11).double())
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(table.weight[words], expected)
        seed = draw(2, 3, 10)
        for ours, theirs in zip(table.parameters(), layer.parameters(), strict=True):
            left, right = (torch.autograd.grad(t, p, seed, retain_graph=True)[0] for t, p in ((y, ours), (expected, theirs)))
            torch.testing.assert_close(left if left.shape == right.shape else left.mT, right)


class StateContract(Subject):
    """Layers can be saved, copied and moved, one without the other; the algebra can be named."""

    def test_state_dict_restores_the_layer(self) -> None:
        """Weights loaded into another instance, drawn with another seed, give the same bits."""
        torch.manual_seed(0)
        one = Linear(self.algebra(), 10, 7)
        torch.manual_seed(1)
        other, x = Linear(self.algebra(), 10, 7), torch.randn(3, 10)
        assert not torch.equal(one(x), other(x))
        other.load_state_dict(one.state_dict())
        assert torch.equal(one(x), other(x))

    def test_a_copy_is_independent(self) -> None:
        """A deep copy computes the same, and training it leaves the original alone."""
        layer, x = Linear(self.algebra(), 10, 7), torch.randn(3, 10)
        y, twin = layer(x), copy.deepcopy(layer)
        assert torch.equal(twin(x), y)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.add_(1)
        assert not torch.equal(twin(x), y)
        assert torch.equal(layer(x), y)

    def test_layers_of_one_algebra_do_not_share_a_dtype(self) -> None:
        """Moving one layer leaves another one of the same algebra alone; only a shared rule is one object."""
        rule = self.algebra()
        one, other = Linear(rule, 10, 7), Linear(rule, 10, 7)
        if one.algebra is other.algebra:
            assert rule.shared
            return
        one.double()
        assert one(torch.randn(3, 10, dtype=torch.float64)).dtype == torch.float64
        assert other(torch.randn(3, 10)).dtype == torch.float32
        assert rule.structure.dtype == torch.float32

    def test_the_spec_names_the_algebra(self) -> None:
        """The repr shows the spec, and the spec makes an algebra of the same n, with the same table unless it is drawn."""
        one = self.algebra()
        if not one.spec:
            pytest.skip("an algebra without a spec")
        again = algebra(one.spec)
        assert one.spec in repr(one)
        assert again.spec == one.spec
        assert (again.n, again.learned, again.shared) == (one.n, one.learned, one.shared)
        if one.known:
            assert torch.equal(again.structure, one.structure)


class AlgebraContract(ProductContract, KernelContract, LinearContract, ConvContract, StateContract):
    """What an algebra must fulfil to work in every layer of the zoo; subclass it in a test file and pytest runs it.

    >>> from zoo.algebras import Laws
    >>> class TestComplex(AlgebraContract):
    ...     spec = "complex"
    ...     laws = Laws(unital=True, commutative=True, associative=True, alternative=True, normed=True)
    >>> TestComplex().test_laws_are_as_declared()

    Attributes:
        spec: The algebra's spec; or override `algebra()`, which returns a new object at every call.
        laws: What the textbook says of it; None if there is no such promise.
    """
