"""Every built-in algebra keeps the contract, with the laws that the textbooks give it."""

import pytest
import torch

from zoo.algebras import Algebra, Laws, algebra
from zoo.errors import InputError
from zoo.testing import AlgebraContract

FIELD = Laws(unital=True, commutative=True, associative=True, alternative=True, normed=True)


class TestReal(AlgebraContract):
    spec = "real"
    laws = FIELD


class TestComplex(AlgebraContract):
    spec = "complex"
    laws = FIELD


class TestQuaternion(AlgebraContract):
    spec = "quaternion"
    laws = FIELD._replace(commutative=False)


class TestOctonion(AlgebraContract):
    spec = "octonion"
    laws = FIELD._replace(commutative=False, associative=False)


class TestSedenion(AlgebraContract):
    spec = "sedenion"
    laws = Laws(unital=True, commutative=False, associative=False, alternative=False, normed=False)


class TestSplitComplex(AlgebraContract):
    spec = "clifford(p=1,q=0)"
    laws = FIELD._replace(normed=False)


class TestDual(AlgebraContract):
    spec = "clifford(p=0, q=0, r=1)"
    laws = FIELD._replace(normed=False)


class TestSplitQuaternion(AlgebraContract):
    spec = "clifford(p=1,q=1)"
    laws = FIELD._replace(commutative=False, normed=False)


class TestProjective(AlgebraContract):
    """Cl(2, 0, 1), the geometric algebra of the plane."""

    spec = "clifford(p=2,q=0,r=1)"
    laws = FIELD._replace(commutative=False, normed=False)


class TestPhm(AlgebraContract):
    spec = "phm-4"


class TestPhmOfThree(AlgebraContract):
    spec = "phm(n=3)"


class TestPhmShared(AlgebraContract):
    spec = "phm(n=2, shared=true)"


class TestPhmFixed(AlgebraContract):
    spec = "phm(n=5, learned=false)"


class TestPhmFromQuaternion(AlgebraContract):
    spec = "phm(n=4, rule=quaternion)"
    laws = FIELD._replace(commutative=False)


class TestGroupOfThree(AlgebraContract):
    """An algebra without a spec: the group algebra of Z_3."""

    laws = FIELD._replace(normed=False)

    def algebra(self):
        return Algebra(torch.eye(3)[(torch.arange(3)[:, None] + torch.arange(3)) % 3])


@pytest.mark.parametrize(("small", "large"), [("complex", "clifford(p=0,q=1)"), ("real", "clifford(p=0,q=0)")])
def test_clifford_algebras_with_other_names(small, large):
    assert torch.equal(algebra(small).structure, algebra(large).structure)


def test_quaternions_are_a_clifford_algebra_up_to_one_sign():
    # In Cl(0, 2) e1 e2 = e12 is i j = k; the doubling has i j = k in the same places.
    i, j, k = torch.eye(4)[1:]
    for spec in ("quaternion", "clifford(p=0,q=2)"):
        product = algebra(spec)
        assert torch.equal(product(i, j), k), spec
        assert torch.equal(product(j, k), i), spec
        assert torch.equal(product(k, k), -torch.eye(4)[0]), spec


def test_clifford_generators_square_to_their_signature():
    product = algebra("clifford(p=1,q=1,r=1)")
    for blade, square in ((1, 1.0), (2, -1.0), (4, 0.0)):
        e = torch.eye(8)[blade]
        assert torch.equal(product(e, e), square * torch.eye(8)[0])
    e, f = torch.eye(8)[1], torch.eye(8)[2]
    assert torch.equal(product(e, f), -product(f, e))


def test_phm_draws_the_energy_of_a_signed_table():
    torch.manual_seed(0)
    energy = torch.stack([algebra("phm(n=8)").structure.square().sum() for _ in range(50)]).mean()
    assert abs(energy.item() / 64 - 1) < 0.05


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("clifford(p=-1,q=0)", "counts are 0 or more"),
        ("clifford(p=9,q=0)", "at most 6"),
        ("phm(n=0)", "1 to 64"),
        ("phm(n=4, rule=complex)", "has n = 2"),
        ("phm", "needs the option 'n'"),
    ],
)
def test_bad_options_are_one_line(spec, said):
    with pytest.raises(InputError, match=said) as caught:
        algebra(spec)
    assert "\n" not in str(caught.value)
