"""Convolutions and the embedding, assembled from the definition."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.algebras import laws
from zoo.layers import Conv1d, Conv2d, Embedding, Linear
from zoo.testing import definition
from zoo.testing.product import draw
from zoo.testing.subject import Subject


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
        expected = definition.convolve(layer.algebra.structure, layer.weight_module.elements, padded, channels[1], **strides)
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
