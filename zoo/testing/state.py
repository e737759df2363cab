"""What a layer remembers, and what it shares with the next one."""

import copy

import pytest
import torch

from zoo.algebras import algebra
from zoo.layers import Linear
from zoo.testing.subject import Subject


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
        if "structure" not in one.state_dict():
            assert torch.equal(again.structure, one.structure)
