"""The test contract of a backbone."""

from collections.abc import Sequence
from contextlib import suppress
from inspect import signature
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import registry
from zoo.algebras import Algebra, reals
from zoo.algebras import algebra as named
from zoo.errors import InputError
from zoo.nn import Layers
from zoo.nn.weight import Weight
from zoo.testing.algebra import check_copy, check_restored


def installed_algebras() -> list[str]:
    """List a spec of every installed algebra that can be created; a required option n is 4, any other 1."""
    specs = []
    for entry in registry.entries("zoo.algebras"):
        with suppress(InputError, ValueError):
            parameters = signature(registry.load(entry)).parameters.values()
            required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
            spec = registry.Spec(entry.name, {name: 4 if name == "n" else 1 for name in required})
            specs.append(named(str(spec)).spec)
    return specs


def fitting_dim(n: int, least: int = 32) -> int:
    """Return the smallest size >= ``least`` that splits into two heads of whole elements, also with rotary positions.

    >>> [fitting_dim(n) for n in (1, 4, 5, 16)]
    [32, 32, 40, 64]
    """
    return -(-least // (4 * n)) * 4 * n


class BackboneContract:
    """Tests that a backbone must pass to train over every algebra; subclass it in a test file and pytest runs it.

    Every test runs once for each algebra and has its spec in the test id.

    Attributes:
        spec: Spec of a small backbone, in which ``{dim}`` is replaced by a size that splits into two heads of whole elements.
        info: Keyword arguments that describe the data.
        algebras: Specs of the algebras; by default one of every installed algebra.
    """

    spec: str = ""
    info: ClassVar[dict[str, Any]] = {"in_channels": 3, "image_size": 32, "num_classes": 10}
    algebras: ClassVar[Sequence[str] | None] = None

    def batch(self) -> Any:
        """Return a small batch, a tensor or a tuple of arguments; by default images in [0, 1]."""
        side = self.info["image_size"]
        noise = torch.Generator().manual_seed(0)
        return torch.rand(4, self.info["in_channels"], side, side, generator=noise)

    def build(self, algebra: str | Layers, seed: int = 0, n: int | None = None) -> nn.Module:
        """Create the backbone over an algebra, with sizes for dimension n; by default that of the algebra."""
        torch.manual_seed(seed)
        layers = algebra if isinstance(algebra, Layers) else Layers(algebra)
        spec = self.spec.replace("{dim}", str(fitting_dim(n or layers.n)))
        model = registry.create("zoo.backbones", spec, layers, **self.info)
        assert isinstance(model, nn.Module)
        return model

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize every test by the algebras."""
        if "algebra" in metafunc.fixturenames:
            metafunc.parametrize("algebra", installed_algebras() if self.algebras is None else self.algebras)

    def test_output_is_one_finite_row_per_example(self, algebra: str) -> None:
        """Logits are finite and [B, num_classes], or [B, L, vocab_size] for a generative network, in both modes."""
        model, batch = self.build(algebra), self.batch()
        last = batch[-1] if isinstance(batch, tuple) else batch
        outputs = self.info.get("num_classes", self.info.get("out_features"))
        shape = (*last.shape, self.info["vocab_size"]) if outputs is None else (len(last), outputs)
        for mode in (True, False):
            y = classify(model.train(mode), batch)
            assert y.shape == shape
            assert y.isfinite().all()

    def test_every_parameter_gets_a_gradient(self, algebra: str) -> None:
        """Every parameter receives a finite gradient."""
        model = self.build(algebra)
        loss(model, self.batch()).backward()
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        assert trained
        assert [name for name, p in trained.items() if p.grad is None or not p.grad.isfinite().all()] == []

    def test_a_small_step_lowers_the_loss(self, algebra: str) -> None:
        """A gradient step of length 0.01 lowers the loss of its batch."""
        model, batch = self.build(algebra), self.batch()
        before = loss(model, batch)
        trained = [p for p in model.parameters() if p.requires_grad]
        steps = torch.autograd.grad(before, trained)
        length = torch.stack([g.norm() for g in steps]).norm()
        with torch.no_grad():
            for parameter, step in zip(trained, steps, strict=True):
                parameter.sub_(step * 0.01 / length)
        assert loss(model, batch) < before

    def test_matrices_have_one_nth_of_the_weights(self, algebra: str) -> None:
        """Some matrices are over the algebra, and have 1 / n of the weights if n divides their sizes."""
        n, model = named(algebra).n, self.build(algebra)
        twin = self.build(Layers(reals()), n=n)
        real, ours = matrices(twin), {name: m for name, m in matrices(model).items() if m.algebra.n == n}
        assert ours
        for name in ours.keys() & real.keys():
            axes = [(getattr(ours[name], axis), getattr(real[name], axis)) for axis in ("out", "inp")]
            if all(axis.channels == whole.channels and axis.size == axis.n * axis.width for axis, whole in axes):
                assert n * ours[name].components.numel() == real[name].components.numel(), name
        if not named(algebra).defaults:  # defaults may replace layers
            assert ours.keys() <= real.keys()
            assert weights(model) < weights(twin) if n > 1 else weights(model) == weights(twin)

    def test_state_dict_restores_the_network(self, algebra: str) -> None:
        """Loading a state dict into a network with another seed restores the output bit for bit."""
        batch = self.batch()
        model, other = (self.build(algebra, seed).eval() for seed in (0, 1))
        check_restored(model, other, lambda net: classify(net, batch))

    def test_examples_do_not_see_their_neighbours(self, algebra: str) -> None:
        """In evaluation the output of an example does not depend on the rest of its batch."""
        model, batch = self.build(algebra).eval(), self.batch()
        y = classify(model, batch)
        order = torch.arange(len(y) - 1, -1, -1)
        torch.testing.assert_close(classify(model, take(batch, order)), y[order], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(classify(model, take(batch, slice(1))), y[:1], rtol=1e-3, atol=1e-4)

    def test_a_copy_is_independent(self, algebra: str) -> None:
        """A deep copy has the same output, and changing it does not change the original."""
        batch = self.batch()
        check_copy(self.build(algebra).eval(), lambda net: classify(net, batch))


def classify(model: nn.Module, batch: object) -> Tensor:
    """Run a network on a batch, a tensor or a tuple of arguments, with a fixed seed."""
    torch.manual_seed(0)
    y = model(*batch) if isinstance(batch, tuple) else model(batch)
    assert isinstance(y, Tensor)
    return y


def loss(model: nn.Module, batch: object) -> Tensor:
    """Return the cross-entropy against the labels 0, 1, 2, ..., one for each row of logits."""
    y = classify(model, batch).flatten(0, -2)
    return F.cross_entropy(y, torch.arange(len(y)) % y.shape[1])


def take(batch: Any, index: Any) -> Any:
    """Index the examples of a batch."""
    return tuple(take(part, index) for part in batch) if isinstance(batch, tuple) else batch[index]


def weights(model: nn.Module) -> int:
    """Count the trainable parameters without learned products."""
    products = {id(p) for m in model.modules() if isinstance(m, Algebra) for p in m.parameters()}
    return sum(p.numel() for p in model.parameters() if p.requires_grad and id(p) not in products)


def matrices(model: nn.Module) -> dict[str, Any]:
    """Return the weights of the layers by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, Weight)}
