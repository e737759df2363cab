"""The schedule: where it begins, peaks and ends."""

import math
from itertools import pairwise

import pytest

from zoo.errors import InputError
from zoo.options import Schedule
from zoo.tasks.schedule import FALLING, SCHEDULES, check_schedule, lr_factor


def factors(name: str, warmup: float = 0.2, steps: int = 50) -> list[float]:
    return [lr_factor(Schedule(name, warmup), step, steps) for step in range(steps + 1)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_starts_low_and_rises_evenly_to_the_peak(name):
    found = factors(name)
    assert found[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert max(found) == 1.0
    assert min(found[:-1]) > 0  # no step is wasted


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_it_falls_to_zero_and_never_rises_again(name):
    found = factors(name)[10:]
    assert found[-1] == pytest.approx(0, abs=1e-12)
    assert all(later < earlier for earlier, later in pairwise(found))
    assert found[20] == pytest.approx(0.5)  # half way


def test_linear_is_a_line_and_cosine_is_half_a_wave():
    linear, cosine = factors("linear", 0.0), factors("cosine", 0.0)
    assert linear == pytest.approx([1 - step / 50 for step in range(51)])
    assert cosine == pytest.approx([(1 + math.cos(math.pi * step / 50)) / 2 for step in range(51)])


def test_constant_stays():
    assert set(factors("constant", 0.0)) == {1.0}
    assert set(factors("constant")[10:]) == {1.0}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("warmup", "steps"), [(0.0, 1), (1.0, 1), (1.0, 7), (0.5, 3), (0.1, 1), (0.0, 0)])
def test_ends_of_its_range(name, warmup, steps):
    found = [lr_factor(Schedule(name, warmup), step, steps) for step in range(steps + 5)]
    assert all(0 <= factor <= 1 for factor in found)
    assert found[0] > 0


@pytest.mark.parametrize("name", ["cos", "", "Cosine"])
def test_an_unknown_schedule(name):
    with pytest.raises(InputError, match=f"unknown schedule '{name}': use cosine, linear, constant, inverse_sqrt"):
        check_schedule(Schedule(name))


@pytest.mark.parametrize("warmup", [-0.1, 1.1, math.nan, math.inf])
def test_a_warmup_that_is_no_share(warmup):
    with pytest.raises(InputError, match=r"schedule\.warmup=.*0 to 1"):
        check_schedule(Schedule(warmup=warmup))


def test_inverse_sqrt_is_the_equation_over_its_own_maximum():
    """Vaswani et al. 2017, Equation 3, steps counted from 1."""
    raw = [min(step**-0.5, step * 10**-1.5) for step in range(1, 52)]
    assert factors("inverse_sqrt") == pytest.approx([value / max(raw) for value in raw])
    assert factors("inverse_sqrt").index(1.0) == 9
    assert factors("inverse_sqrt", 0.0) == pytest.approx([step**-0.5 for step in range(1, 52)])


@pytest.mark.parametrize("name", FALLING)
def test_a_floor_is_where_the_fall_ends(name):
    found = [lr_factor(Schedule(name, 0.2, 0.1), step, 50) for step in range(60)]
    assert found[:10] == factors(name)[:10]  # the warm-up is the same
    assert found[10:51] == pytest.approx([0.1 + 0.9 * factor for factor in factors(name)[10:]])
    assert found[50:] == pytest.approx([0.1] * 10)
    assert {lr_factor(Schedule(name, 0.0, 1.0), step, 50) for step in range(50)} == {1.0}


@pytest.mark.parametrize("floor", [-0.1, 1.1, math.nan])
def test_a_floor_that_is_no_share(floor):
    with pytest.raises(InputError, match=r"schedule\.floor=.*0 to 1"):
        check_schedule(Schedule(floor=floor))


@pytest.mark.parametrize("name", sorted({*SCHEDULES} - {*FALLING}))
def test_a_floor_where_nothing_falls(name):
    check_schedule(Schedule(name))
    with pytest.raises(InputError, match=f"floor is for cosine and linear, not for {name}"):
        check_schedule(Schedule(name, floor=0.1))
