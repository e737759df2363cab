"""Every built-in algebra passes the contract, with the laws from the textbook."""

import pytest
import torch

from tests.errors import raises
from zoo.algebras import Algebra, Laws, algebra
from zoo.testing import AlgebraContract

FIELD = Laws(unital=True, commutative=True, associative=True, alternative=True, normed=True)


LAWS = {
    "real": FIELD,
    "complex": FIELD,
    "quaternion": FIELD._replace(commutative=False),
    "octonion": FIELD._replace(commutative=False, associative=False),
    "sedenion": Laws(unital=True, commutative=False, associative=False, alternative=False, normed=False),
    "clifford(p=1,q=0)": FIELD._replace(normed=False),  # split complex numbers
    "clifford(p=0, q=0, r=1)": FIELD._replace(normed=False),  # dual numbers
    "clifford(p=1,q=1)": FIELD._replace(commutative=False, normed=False),  # split quaternions
    "clifford(p=2,q=0,r=1)": FIELD._replace(commutative=False, normed=False),  # the geometric algebra of the plane
    "phm-4": None,
    "phm(n=2, shared=true)": None,
    "phm(n=5, learned=false)": None,
    "phm(n=4, rank=6)": None,
    "phm(n=4, rule=quaternion)": FIELD._replace(commutative=False),
    "phm(n=4, rule=quaternion, rank=10)": FIELD._replace(commutative=False),
    "phm(n=4, rule=phm-4, learned=false)": None,  # a random start must be saved with the weights
}
for spec, laws in LAWS.items():
    options = {"spec": spec} | ({"laws": laws} if laws else {})
    globals()[f"Test{spec}"] = type(f"Test{spec}", (AlgebraContract,), options)


class TestSubspace(AlgebraContract):
    """Quaternions whose weights are complex numbers."""

    laws = FIELD._replace(commutative=False)

    def algebra(self):
        return Algebra(algebra("quaternion").structure, left=torch.eye(4)[:2])


class TestGroupOfThree(AlgebraContract):
    """An algebra without a spec: the group algebra of Z_3."""

    laws = FIELD._replace(normed=False)

    def algebra(self):
        return Algebra(torch.eye(3)[(torch.arange(3)[:, None] + torch.arange(3)) % 3])


@pytest.mark.parametrize(("small", "large"), [("complex", "clifford(p=0,q=1)"), ("real", "clifford(p=0,q=0)")])
def test_clifford_algebras_equal_to_cayley_dickson_algebras(small, large):
    assert torch.equal(algebra(small).structure, algebra(large).structure)


def test_clifford_generators_square_to_their_signature():
    product = algebra("clifford(p=1,q=1,r=1)")
    for blade, square in ((1, 1.0), (2, -1.0), (4, 0.0)):
        e = torch.eye(8)[blade]
        assert torch.equal(product(e, e), square * torch.eye(8)[0])
    e, f = torch.eye(8)[1], torch.eye(8)[2]
    assert torch.equal(product(e, f), -product(f, e))


def test_expected_energy_of_random_products():
    torch.manual_seed(0)
    for spec in ("phm(n=8)", "phm(n=8, rank=16)"):
        n = algebra(spec).n
        energy = torch.stack([algebra(spec).structure.square().sum() for _ in range(400)]).mean()
        assert abs(energy.item() / n**2 - 1) < 0.15


@pytest.mark.parametrize(("name", "rank"), [("complex", 3), ("quaternion", 8), ("octonion", 30), ("clifford(p=1,q=1)", 12)])
def test_initial_factors_reconstruct_the_rule(name, rank):
    table = algebra(name).structure.double()
    rule = algebra(f"phm(n={len(table)}, rank={rank}, rule={name!r})").double()
    assert rule.factors.rank == rank
    torch.testing.assert_close(rule.structure, table, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("clifford(p=-1,q=0)", ["p=-1"]),
        ("clifford(p=9,q=0)", ["p=9", "6"]),
        ("phm(n=0)", ["n=0", "64"]),
        ("phm(n=4, rule=complex)", ["complex", "n = 2"]),
        ("phm(n=4, rank=17)", ["rank=17", "16"]),
        ("phm(n=4, rank=7, rule=quaternion)", ["rank=7", "'quaternion'", "8"]),
    ],
)
def test_invalid_options(spec, values):
    with raises("invalid", *values):
        algebra(spec)
