"""Differences with intervals: each design against the textbook's test, and one meaning of ahead, behind and not decided."""

import math
import random
from dataclasses import replace
from statistics import mean

import pytest
from scipy.stats import t, ttest_ind, ttest_rel
from zoo_reports.statistics import Difference, Score, compare, contrast, with_interval


def decided(difference):
    return difference.verdict != "not decided"


@pytest.mark.parametrize(
    ("estimate", "verdict"),
    [(2.0, "ahead"), (-2.0, "behind"), (1.0, "not decided"), (-1.0, "not decided"), (0.0, "not decided")],
)
def test_a_difference_is_decided_if_its_interval_excludes_zero(estimate, verdict):
    difference = Difference(estimate, 1.0)
    assert (difference.low, difference.high) == (estimate - 1, estimate + 1)
    assert difference.verdict == verdict


def test_without_variance_every_difference_is_decided():
    assert [with_interval(value, []).verdict for value in (1e-9, 0.0, -1e-9)] == ["ahead", "not decided", "behind"]
    assert compare(Score((0.5, 0.5)), Score((0.53, 0.53))).verdict == "behind"


def test_independent_seeds_are_compared_by_welch():
    rng = random.Random(0)
    for _ in range(200):
        one, other = ([rng.gauss(0, scale) for _ in range(rng.randint(2, 4))] for scale in (1, 3))
        scores = Score(tuple(one)), Score(tuple(other))
        low, high = ttest_ind(one, other, equal_var=False).confidence_interval()
        difference = compare(*scores)
        assert (difference.low, difference.high) == (pytest.approx(low), pytest.approx(high))
        assert contrast({scores[0]: 1.0, scores[1]: -1.0}) == difference
        assert compare(*scores, lower=True).estimate == -difference.estimate


def test_pairs_of_runs_are_compared_by_student():
    one, other = (1.0, 2.0, 4.0), (0.5, 1.25, 3.0)
    leads = Score(tuple(a - b for a, b in zip(one, other, strict=True)))
    low, high = ttest_rel(one, other).confidence_interval()
    difference = with_interval(leads.mean, [(leads.variance, 2)])
    assert (difference.low, difference.high) == (pytest.approx(low), pytest.approx(high))
    assert leads.interval == difference.interval
    assert replace(leads, values=(1.0,)).interval is None


def test_folds_are_compared_by_nadeau_and_bengio():
    rng = random.Random(0)
    found = []
    for _ in range(200):
        ease = [rng.gauss(0.8, 0.02) for _ in range(10)]  # shared by both
        one, other = ([value + rng.gauss(lead, 0.004) for value in ease] for lead in (0, 0.005))
        # Nadeau and Bengio (2003) divide Student's t by sqrt(1 + k n_test / n_train), here of 1 / (k - 1)
        student = ttest_rel(one, other).statistic / math.sqrt(1 + 10 / 9)
        scores = [Score((mean(values),), 100, dict(enumerate(values))) for values in (one, other)]
        found.append(decided(compare(*scores)))
        assert found[-1] is bool(abs(student) > t.ppf(0.975, 9))
    assert 40 < sum(found) < 160
    fewer = Score((0.8,), None, dict(enumerate((0.7, 0.8, 0.9))))
    assert compare(fewer, scores[0]) is None  # other folds, and one seed


def test_the_variance_of_the_test_set_is_added():
    """Accuracy .5 and .6 over 400 rows have the variances .25 / 400 and .24 / 400; with many seeds no other part is left."""
    values = [tuple(p + 1e-9 * (-1) ** seed for seed in range(50)) for p in (0.6, 0.5)]
    difference = compare(*(Score(each, 400) for each in values))
    assert difference.interval == pytest.approx(1.95996 * math.sqrt(0.49 / 400), rel=1e-4)
    assert compare(*map(Score, values)).interval < 1e-8
    half = contrast({Score(values[0], 400): 0.5})
    assert half.interval == pytest.approx(1.95996 * 0.5 * math.sqrt(0.24 / 400), rel=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "tested", "expected"),
    [
        ((0.50, 0.51), (0.80, 0.81), 1000, True),
        ((0.50, 0.51), (0.80, 0.81), 10, False),  # the test set is too small
        ((0.30, 0.71), (0.60, 0.99), 1000, False),  # the spread over seeds is too large
        ((0.50, 0.50), (0.53, 0.53), 100_000, True),  # no spread
    ],
)
def test_seeds_and_the_test_set_both_count(one, other, tested, expected):
    assert decided(compare(Score(one, tested), Score(other, tested))) is expected


def test_one_seed_is_not_compared():
    assert compare(Score((0.5,), 1000), Score((0.8, 0.81), 1000)) is None
    assert contrast({Score((0.5,)): 1.0}) is None


def test_a_published_difference_counts_as_one_of_single_runs():
    """With our spread s^2 of a run, the mean of k = 2 has s^2 / 2 and the published run s^2, for both networks."""
    one, other = Score((0.8, 0.82)), Score((0.7, 0.74))
    difference = compare(one, other, published=0.3)
    parts = [1.5 * 0.0002, 1.5 * 0.0008]
    freedom = sum(parts) ** 2 / sum(part**2 for part in parts)
    assert difference.estimate == pytest.approx(0.09 - 0.3)
    assert difference.interval == pytest.approx(t.ppf(0.975, freedom) * math.sqrt(sum(parts)))
