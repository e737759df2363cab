"""Products against textbook tables, and the algebra object."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.errors import raises
from zoo.algebras import Algebra, FactoredAlgebra, action, algebra, laws, unit
from zoo.checkpoint.folder import fingerprint
from zoo.nn import Linear, set_kernel


def cayley_dickson(x, y):
    """Multiply nested pairs of floats: (a, b)(c, d) = (a c - d* b, d a + b c*)."""
    if not isinstance(x, tuple):
        return x * y
    (a, b), (c, d) = x, y
    return (
        add(cayley_dickson(a, c), cayley_dickson(star(d), b), -1),
        add(cayley_dickson(d, a), cayley_dickson(b, star(c)), 1),
    )


def star(x):
    return (star(x[0]), scale(x[1], -1)) if isinstance(x, tuple) else x


def scale(x, s):
    return tuple(scale(part, s) for part in x) if isinstance(x, tuple) else s * x


def add(x, y, s):
    return tuple(add(p, q, s) for p, q in zip(x, y, strict=True)) if isinstance(x, tuple) else x + s * y


def nest(values):
    half = len(values) // 2
    return (nest(values[:half]), nest(values[half:])) if half else float(values[0])


def flatten(x):
    return [v for part in x for v in flatten(part)] if isinstance(x, tuple) else [x]


@pytest.mark.parametrize(("spec", "n"), [("real", 1), ("complex", 2), ("quaternion", 4), ("octonion", 8), ("sedenion", 16)])
def test_doubling_equals_nested_pairs(spec, n):
    product = algebra(spec).double()
    x, y = np.random.default_rng(n).standard_normal((2, n))
    expected = flatten(cayley_dickson(nest(x), nest(y)))
    np.testing.assert_allclose(product(torch.tensor(x), torch.tensor(y)).numpy(), expected)


def test_unit_in_any_basis():
    # In the basis f = B e the table is B B A B^-1 and one is e_0 in the coordinates of f.
    basis = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a = algebra("quaternion").structure.double()
    table = torch.einsum("ai,bj,ijk,kc->abc", basis, basis, a, basis.inverse())
    torch.testing.assert_close(unit(table), torch.eye(4, dtype=torch.float64)[0] @ basis.inverse())


def rotated(table, seed):
    """The same product in another orthonormal basis, rounded to float32."""
    draw = torch.randn(*table.shape[:2], dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    basis = torch.linalg.qr(draw).Q
    return torch.einsum("ai,bj,ck,ijk->abc", basis, basis, basis, table.double()).float()


@pytest.mark.parametrize("spec", ["octonion", "clifford(p=3,q=0)", "clifford(p=1,q=1)", "clifford(p=0,q=0,r=1)", "cross"])
@pytest.mark.parametrize("seed", range(3))
def test_laws_do_not_depend_on_the_basis(spec, seed):
    table = algebra("octonion").structure[1:4, 1:4, 1:4] if spec == "cross" else algebra(spec).structure
    other = Algebra(rotated(table, seed))
    assert laws(other) == laws(Algebra(table))
    assert (unit(other.structure) is not None) == laws(other).unital


def test_rounding_does_not_create_a_unit():
    # x y = 0 up to rounding in the second direction: nothing there acts as one.
    table = torch.zeros(2, 2, 2)
    table[0, 0, 0] = 1
    table[1, 1, 1] = 1e-8
    assert unit(table) is None


@pytest.mark.parametrize(
    ("make", "named"),
    [
        *((lambda table=table: Algebra(table), "[n, n, n]") for table in ([[1]], "quaternion")),
        *((lambda s=s: Algebra(torch.zeros(s)), "[n, n, n]") for s in ((2, 2), (2, 2, 3), (0, 0, 0), (2, 2, 2, 2))),
        (lambda: Algebra(torch.full((2, 2, 2), float("nan"))), "finite"),
        (lambda: Algebra(torch.ones(2, 2, 2, device="meta")), "meta"),
        (lambda: Algebra(torch.ones(1, 1, 1, dtype=torch.complex64)), "real numbers"),
        *((lambda s=s: Algebra(algebra("quaternion").structure, left=torch.ones(s)), "[m, 4]") for s in ((1, 3), (5, 4))),
        *((lambda s=s: FactoredAlgebra(torch.ones(s)), "[3, R, n]") for s in ((2, 4, 4), (3, 0, 4))),
        (lambda: algebra(3), "zoo.Algebra"),
    ],
)
def test_invalid_arguments(make, named):
    with raises("invalid", named):
        make()


def test_polar_initialization_needs_a_real_part():
    with raises("unsupported", "polar"):
        Linear(4, 4, algebra=algebra("complex_order(weights=shared)"), init="polar")


def test_state_dict_contains_only_random_and_learned_products():
    assert list(algebra("quaternion").state_dict()) == []
    assert list(algebra("phm-2").state_dict()) == ["structure"]
    assert list(algebra("phm(n=2, learned=false)").state_dict()) == ["structure"]
    assert list(algebra("phm(n=2, learned=false)").parameters()) == []
    assert [p.shape for p in algebra("phm-2").parameters()] == [(2, 2, 2)]


def test_layers_have_separate_products_unless_shared():
    apart, together, fixed = algebra("phm-2"), algebra("phm(n=2, shared=true)"), algebra("quaternion")
    one, other = apart.for_layer(), apart.for_layer()
    assert not torch.equal(one.structure, other.structure)
    assert together.for_layer() is together
    assert fixed.for_layer() is not fixed
    assert torch.equal(fixed.for_layer().structure, fixed.structure)
    copied = algebra("phm(n=2, rule=complex)").for_layer()
    assert torch.equal(copied.structure, algebra("complex").structure)


QUADRATIC = ["complex", "quaternion", "octonion", "sedenion", "clifford(p=1,q=0)", "clifford(p=1,q=1)", "clifford(p=0,q=0,r=1)"]


def elements(count, n, seed=0):
    return torch.randn(count, 5, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("spec", QUADRATIC)
def test_an_element_and_its_conjugate_have_a_real_product_and_sum(spec):
    product = algebra(spec).double()
    x, y = elements(2, product.n)
    one = product.basis[0]
    for value in (product(x, product.conj(x)), product(product.conj(x), x), x + product.conj(x)):
        torch.testing.assert_close(value, value[..., :1] * one)
    torch.testing.assert_close(product.conj(product.conj(x)), x)
    torch.testing.assert_close(product.conj(product(x, y)), product(product.conj(y), product.conj(x)))


def test_conjugate_and_norm_do_not_depend_on_the_basis():
    quaternion = algebra("quaternion").double()
    basis = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    other = Algebra(torch.einsum("ai,bj,ijk,kc->abc", basis, basis, quaternion.structure, basis.inverse())).double()
    (x,) = elements(1, 4)  # coordinates in the other basis
    torch.testing.assert_close(other.conj(x) @ basis, quaternion.conj(x @ basis), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other.norm(x), (x @ basis).norm(dim=-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", ["complex", "quaternion", "octonion", "sedenion"])
def test_the_norm_of_cayley_dickson_algebras_is_euclidean(spec):
    product = algebra(spec).double()
    (x,) = elements(1, product.n)
    torch.testing.assert_close(product.norm(x), x.norm(dim=-1))


def test_the_norm_of_dual_numbers_is_that_of_the_real_part():
    (x,) = elements(1, 2)
    torch.testing.assert_close(algebra("clifford(p=0,q=0,r=1)").double().norm(x), x[..., 0].abs())


@pytest.mark.parametrize("spec", [*QUADRATIC, "clifford(p=3,q=0)"])
def test_exponential_is_the_series(spec):
    product = algebra(spec).double()
    (x,) = elements(1, product.n)
    power = total = product.basis[0].expand_as(x)
    for k in range(1, 60):
        power = product(x, power) / k
        total = total + power
    torch.testing.assert_close(product.exp(x), total)


def test_exponential_of_complex_numbers_is_that_of_torch():
    (x,) = elements(1, 2)
    torch.testing.assert_close(algebra("complex").double().exp(x), torch.view_as_real(torch.view_as_complex(x).exp()))


def test_a_unit_quaternion_rotates_vectors():
    H = algebra("quaternion").double()
    i, j, k = H.basis[1:]
    q = H.exp(0.3 * k)
    torch.testing.assert_close(H.rotate(i, q), math.cos(0.6) * i + math.sin(0.6) * j)
    torch.testing.assert_close(H.rotate(i, 5 * q), H.rotate(i, q))
    x, q = elements(2, 8)
    octonion = algebra("octonion").double()
    torch.testing.assert_close(octonion.norm(octonion.rotate(x, q)), octonion.norm(x))


def test_operations_on_elements_are_differentiable():
    H = algebra("quaternion").double()
    x, q = elements(2, 4).requires_grad_()
    for function in (H.conj, H.norm, H.exp, lambda x: H.rotate(x, q)):
        assert torch.autograd.gradcheck(function, x)


@pytest.mark.parametrize(
    ("operation", "spec"),
    [
        *(("conj", spec) for spec in ("clifford(p=3,q=0)", "phm-4")),
        *(("norm", spec) for spec in ("clifford(p=1,q=0)", "phm-4")),
        *(("rotate", spec) for spec in ("sedenion", "clifford(p=1,q=1)")),
        ("exp", "phm-4"),
    ],
)
def test_operations_that_an_algebra_does_not_have(operation, spec):
    product = algebra(spec)
    with raises("unsupported", spec.partition("(")[0]):
        getattr(product, operation)(*([product.basis] * (1 + (operation == "rotate"))))


def test_elements_of_any_batch_shape():
    H = algebra("quaternion")
    i, j, k = H.basis[1:]
    assert torch.equal(H(i, j), k)
    assert torch.equal(H(j, i), -k)
    assert H(torch.randn(2, 1, 4), torch.randn(5, 4)).shape == (2, 5, 4)


def test_products_of_basis_elements():
    split = Algebra.from_products(2, {(1, 1): {0: +1}})
    assert torch.equal(split.structure, algebra("clifford(p=1, q=0)").structure)
    hamilton = {(1, 1): {0: -1}, (2, 2): {0: -1}, (3, 3): {0: -1}, (1, 2): {3: 1}, (2, 3): {1: 1}, (3, 1): {2: 1}}
    hamilton |= {(2, 1): {3: -1}, (3, 2): {1: -1}, (1, 3): {2: -1}}
    assert torch.equal(Algebra.from_products(4, hamilton).structure, algebra("quaternion").structure)
    assert Algebra.from_products(2, {(0, 0): {1: 0.5}}).structure[0, 0].tolist() == [0, 0.5]
    for invalid in ((0, {}), (2, {(0, 2): {0: 1}}), (2, {(0, 1): {2: 1}})):
        with raises("invalid", str(invalid[0])):
            Algebra.from_products(*invalid)


def test_an_algebra_prints_its_table():
    text = str(algebra("quaternion"))
    assert text.splitlines()[0] == "quaternion, n = 4: unital, not commutative, associative, alternative, normed"
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["1", "e1", "e2", "e3"],
        ["1", "1", "e1", "e2", "e3"],
        ["e1", "e1", "-1", "e3", "-e2"],
        ["e2", "e2", "-e3", "-1", "e1"],
        ["e3", "e3", "e2", "-e1", "-1"],
    ]
    mixed = Algebra.from_products(2, {(0, 0): {0: 0.5, 1: -1}, (1, 1): {}})
    assert "0.5 e0 - e1" in str(mixed)
    assert str(algebra("phm-4")) == "phm-4, n = 4, learned"
    assert repr(algebra("quaternion")) == "Algebra(quaternion, n=4)"


@pytest.mark.parametrize("spec", ["phm-3", "phm(n=3, rank=5)", "phm(n=3, rank=5, learned=false)"])
def test_factors_of_learned_products(spec):
    rule = algebra(spec).double()
    if "rank" not in spec:
        assert not hasattr(rule, "factors")
        return
    factors = rule.factors
    assert (factors.rank, rule.n, [f.shape for f in factors]) == (5, 3, [(5, 3)] * 3)
    expected = sum(torch.einsum("i,j,k->ijk", u, v, w) for u, v, w in zip(*factors, strict=True))
    torch.testing.assert_close(rule.structure, expected)
    assert list(rule.state_dict()) == ["factor_matrices"]
    assert [p.shape for p in rule.parameters()] == [(3, 5, 3)] * (rule.kind == "learned")
    assert not torch.equal(algebra(spec).for_layer().structure, algebra(spec).structure)


@pytest.mark.parametrize("left", [None, torch.eye(4)[1:]])
def test_learned_tables_are_computed_without_matrix_products(left):
    """Matrix products round on a GPU under `torch.set_float32_matmul_precision`."""
    names = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    rule = FactoredAlgebra(torch.randn(3, 9, 4), learned=True, left=left)
    with Record():
        table = action(rule, torch.zeros(1))
        table.sum().backward()
    assert "mul" in names
    assert not {"mm", "bmm", "addmm", "baddbmm"} & set(names)


@pytest.mark.parametrize("spec", ["phm-4", "phm(n=4, learned=false)"])
def test_assigned_product_initializes_every_layer(spec):
    rule = algebra(spec)
    with torch.no_grad():
        rule.structure.copy_(algebra("quaternion").structure)
    assigned = rule.structure.detach().clone()
    one, other = rule.for_layer(), Linear(8, 8, algebra=rule).algebra
    for own in (one, other, one.for_layer(), pickle.loads(pickle.dumps(rule)).for_layer()):
        assert own is not rule
        assert torch.equal(own.structure, assigned)
        assert own.structure.requires_grad == (rule.kind == "learned")
    rule.reset_parameters()
    assert not torch.equal(rule.for_layer().structure, rule.for_layer().structure)


def test_layer_gradients_of_factors():
    torch.manual_seed(0)
    layer = Linear(6, 9, algebra=algebra("phm(n=3, rank=4)")).double()
    x, names = torch.randn(5, 6, dtype=torch.float64), [name for name, _ in layer.named_parameters()]

    def call(*values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert any(name.endswith("factor_matrices") for name in names)
    assert torch.autograd.gradcheck(call, tuple(layer.parameters()))


@pytest.mark.parametrize("spec", ["real", "quaternion", "complex_order(weights=shared)", "phm-4"])
def test_fixed_product_keeps_its_values_on_the_meta_device(spec):
    """No state dict brings them back."""
    torch.manual_seed(0)
    layer, x = Linear(8, 8, algebra=algebra(spec)), torch.randn(3, 8)
    with torch.device("meta"):
        other = Linear(8, 8, algebra=algebra(spec))
    assert all(tensor.is_meta for tensor in [*other.parameters(), *other.buffers()])
    assigned, filled = copy.deepcopy(other), copy.deepcopy(other).to(torch.float64).to_empty(device="cpu").float()
    assigned.load_state_dict(layer.state_dict(), assign=True)
    filled.load_state_dict(layer.state_dict())
    again = copy.deepcopy(layer).to("meta").to_empty(device="cpu")
    again.load_state_dict(layer.state_dict())
    for one in (assigned, filled, again):
        torch.testing.assert_close(one(x), layer(x), rtol=0, atol=0)


@pytest.mark.parametrize("spec", ["quaternion", "octonion"])
def test_fixed_product_is_replaced_by_assignment_only(spec):
    layer = Linear(16, 16, algebra=algebra(spec))
    x, before = torch.randn(3, 16), layer.components.detach().clone()
    expected = {}
    for kernel in ("block", "factored", "thin"):
        set_kernel(layer, kernel)
        with torch.no_grad():
            expected[kernel] = layer(x)
    for write in (torch.Tensor.neg_, lambda t: t[0].zero_(), lambda t: t.data.mul_(2), lambda t: t.unbind()[1].zero_()):
        write(layer.algebra.structure)  # a copy
    for kernel, y in expected.items():
        set_kernel(layer, kernel)
        with torch.no_grad():
            assert torch.equal(layer(x), y)
    layer.algebra.structure = -layer.algebra.structure
    for kernel, y in expected.items():
        set_kernel(layer, kernel)
        with torch.no_grad():
            torch.testing.assert_close(layer(x), -y)
    assert torch.equal(layer.components, before)


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("quaternion", "Algebra(quaternion, n=4)"),
        ("phm( n=8 )", "Algebra(phm(n=8), n=8, learned)"),
        ("phm(shared=true, n=2)", "Algebra(phm(n=2, shared=True), n=2, learned, shared)"),
        ("phm(rank=6, n=4)", "FactoredAlgebra(phm(n=4, rank=6), n=4, learned, rank=6)"),
    ],
)
def test_repr_shows_the_spec_in_canonical_spelling(spec, shown):
    assert repr(algebra(spec)) == shown
    assert repr(copy.deepcopy(algebra(spec))) == shown
    assert repr(algebra(algebra(spec).spec)) == shown


def test_fingerprint_depends_on_the_structure():
    prints = {spec: fingerprint(algebra(spec)) for spec in ("real", "complex", "quaternion", "octonion", "clifford(p=1,q=0)")}
    assert len(set(prints.values())) == len(prints)
    assert prints["complex"] == fingerprint(algebra("clifford(p=0,q=1)"))
    assert prints["complex"] == "c22d39fab158ad5ce65d6943a8e6c952cd4554449a87f5deef6688169990169c"


def test_fingerprint_ignores_dtype_and_signed_zeros():
    rule = algebra("quaternion")
    assert fingerprint(rule.double()) == fingerprint(algebra("quaternion"))
    assert fingerprint(Algebra(rule.structure * 1.0000001)) != fingerprint(rule)
    signed = torch.where(rule.structure == 0, -0.0, rule.structure)
    assert fingerprint(Algebra(signed)) == fingerprint(rule)
    swapped = Algebra(rule.structure.transpose(0, 1))
    assert fingerprint(swapped) != fingerprint(rule)
