"""The linear layer: sizes, blocks, precision, initial weights."""

import torch
from torch import Tensor, nn

from zoo.algebras import laws
from zoo.layers import Linear
from zoo.testing import definition
from zoo.testing.product import draw
from zoo.testing.subject import Subject


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
        """10 -> 7 channels are padded inside, multiplied by the definition, and cut."""
        layer = self.linear(10, 7)
        assert layer.bias is not None
        nn.init.normal_(layer.bias)
        x = draw(2, 3, 10)
        expected = definition.linear(layer.algebra.structure, layer.weight_module.elements, x, 7)
        torch.testing.assert_close(layer(x), expected + layer.bias)
        assert layer.weight.shape == (7, 10)

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

    def test_heads_may_change_places(self) -> None:
        """Permuting the heads of a projection permutes its outputs, and undone by the next projection changes nothing."""
        n, order = self.algebra().n, [2, 0, 1]
        size = n + 1
        first, last = self.linear(10, 3 * size, False, (1, 3)), self.linear(3 * size, 7, False, (3, 1), seed=1)
        x = draw(5, 10)
        heads = first(x)
        y = last(heads)
        with torch.no_grad():
            w, v = first.weight_module.elements, last.weight_module.elements
            w.copy_(w.unflatten(1, (3, -1))[:, order].flatten(1, 2))
            v.copy_(v.unflatten(2, (3, -1))[:, :, order].flatten(2, 3))
        torch.testing.assert_close(first(x), heads.unflatten(-1, (3, size))[:, order].flatten(1))
        torch.testing.assert_close(last(first(x)), y)

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
        """N ceil(out / n) ceil(in / n) weights, `out` biases, and the n^3 numbers of a rule that is learned."""
        algebra = self.algebra()
        n = algebra.n
        rule = n**3 if algebra.learned else 0
        for inp, out in ((10, 7), (4 * n, 2 * n)):
            expected = n * -(-out // n) * -(-inp // n) + out + rule
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
