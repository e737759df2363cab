import pytest
import torch
from zoo_datasets.vectors import hamilton as unopened_hamilton
from zoo_datasets.vectors import linear_map as unopened_linear_map
from zoo_datasets.vectors import rotation as unopened_rotation

from zoo.data import ready


def hamilton(*args, **options):
    return ready(unopened_hamilton(*args, **options))


def rotation(*args, **options):
    return ready(unopened_rotation(*args, **options))


UNITS = "1ijk"
PRODUCTS = {"ij": (1, "k"), "jk": (1, "i"), "ki": (1, "j"), "ji": (-1, "k"), "kj": (-1, "i"), "ik": (-1, "j")}


def product(one, other):
    """Multiply two units by Hamilton's rules."""
    if "1" in (one, other):
        return 1, one if other == "1" else other
    return (-1, "1") if one == other else PRODUCTS[one + other]


def multiplied(w, x):
    """Multiply components [4, out, in] with x [N, 4, in], unit by unit."""
    y = torch.zeros(len(x), 4, w.shape[1], dtype=torch.float64)
    for i, one in enumerate(UNITS):
        for j, other in enumerate(UNITS):
            sign, unit = product(one, other)
            y[:, UNITS.index(unit)] += sign * x[:, j].double() @ w[i].double().T
    return y


def test_the_truth_of_rotation_is_a_rotation():
    matrix = rotation().truth
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(3))
    assert torch.linalg.det(matrix).item() == pytest.approx(1)
    assert torch.acos((matrix.trace() - 1) / 2).item() == pytest.approx(2.41, abs=5e-3)  # as documented


def test_rotated_points():
    data = rotation()
    assert data.info.model_kwargs == {"in_features": 3, "out_features": 3}
    for x, y in data.splits.values():
        torch.testing.assert_close(y, x @ data.truth.T)
        torch.testing.assert_close(x.norm(dim=1), y.norm(dim=1))


@pytest.mark.parametrize("elements", [1, 5])
def test_hamilton_is_the_hamilton_product(elements):
    data = hamilton(elements=elements, rows=50)
    w = data.truth[:, :elements].unflatten(0, (4, elements))
    for x, y in data.splits.values():
        expected = multiplied(w, x.unflatten(1, (4, elements))).flatten(1)
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def test_linear_map():
    data = ready(unopened_linear_map(features=32, rows=50))
    for x, y in data.splits.values():
        torch.testing.assert_close(y, x @ data.truth.T, rtol=1e-5, atol=1e-5)
    assert abs(32 * data.truth.var() - 1) < 0.1
