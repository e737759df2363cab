"""Compare networks over an algebra with real networks of the same number of weights.

Every network has a mean test figure over seeds, m, with the variance of the mean v = s^2 / k over k seeds. A comparison is a
weighted sum of such means: an algebra's network has weight 1, the real networks on both sides of its size share -1 by the
position of its size between theirs on a logarithmic axis. Networks are independent, so the variances add up,
V = sum c^2 v, and the interval is t * sqrt(V) with the degrees of freedom of Welch and Satterthwaite,
V^2 / sum((c^2 v)^2 / (k - 1)).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, variance
from typing import Any

from scipy.stats import t

LEVEL = 0.05
SHARE = 0.2
"""Where word tables hold more than this share of the weights of some network, sizes are compared without them."""

MARGIN = 0.05
"""Share of the weights by which a network may lie beyond the real ones and be compared with the outermost."""


@dataclass(frozen=True)
class Point:
    """A network at its best learning rate.

    Attributes:
        net: Its name in the configuration.
        algebra: Its algebra.
        weights: Trainable parameters on the axis of the comparison.
        total: All trainable parameters.
        lr: The best learning rate by validation.
        rates: The learning rates that were tried.
        values: Test figures, one for each seed.
        seconds: Mean time of a run.
    """

    net: str
    algebra: str
    weights: int
    total: int
    lr: float
    rates: tuple[float, ...]
    values: tuple[float, ...]
    seconds: float

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    @property
    def variance(self) -> float:
        """The variance of the mean over seeds; needs two seeds."""
        return variance(self.values) / len(self.values)

    @property
    def interval(self) -> float | None:
        """Half of the 95 % t-interval of the mean; None for one seed."""
        found = contrast({self: 1.0})
        return None if found is None else (found.high - found.low) / 2


@dataclass(frozen=True)
class Difference:
    """An estimate with its 95 % interval; positive favours the algebra."""

    estimate: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``ahead`` or ``behind`` if the interval excludes zero, else ``not decided``."""
        return "ahead" if self.low > 0 else "behind" if self.high < 0 else "not decided"


def contrast(coefficients: Mapping[Point, float]) -> Difference | None:
    """Return a weighted sum of means with its interval; None if a network has one seed."""
    terms = [(point, factor) for point, factor in coefficients.items() if factor]
    if any(len(point.values) < 2 for point, _ in terms):
        return None
    estimate = sum(factor * point.mean for point, factor in terms)
    parts = [(factor**2 * point.variance, len(point.values) - 1) for point, factor in terms]
    total = sum(part for part, _ in parts)
    if total == 0:
        return Difference(estimate, estimate, estimate)
    freedom = total**2 / sum(part**2 / degrees for part, degrees in parts)
    half = float(t.ppf(1 - LEVEL / 2, freedom)) * math.sqrt(total)
    return Difference(estimate, estimate - half, estimate + half)


def opponents(weights: int, real: Iterable[Point]) -> dict[Point, float] | None:
    """Return the shares of the real networks that interpolate at a size in log weights; None outside of their sizes.

    A size less than `MARGIN` beyond the smallest or largest real network is compared with that network.
    """
    ordered = sorted(real, key=lambda point: point.weights)
    for end in (ordered[0], ordered[-1]) if ordered else ():
        if abs(math.log(weights / end.weights)) <= math.log(1 + MARGIN):
            return {end: 1.0}
    for small, large in pairwise(ordered):
        if small.weights <= weights <= large.weights:
            share = math.log(weights / small.weights) / math.log(large.weights / small.weights)
            return {small: 1 - share, large: share}
    return None


def at_equal_weights(points: Iterable[Point], real: Iterable[Point], lower: bool) -> Difference | None:
    """Compare the mean of some networks with the real networks interpolated at their sizes.

    Networks with one seed and those outside of the real sizes are left out.

    Args:
        points: Networks over one algebra.
        real: The real networks.
        lower: Whether a lower figure is better.
    """
    real = list(real)
    pairs = [(point, opponents(point.weights, real)) for point in points if len(point.values) > 1]
    inside = [(point, shares) for point, shares in pairs if shares is not None]
    sign = -1 if lower else 1
    coefficients: dict[Point, float] = {}
    for point, shares in inside:
        coefficients[point] = coefficients.get(point, 0.0) + sign / len(inside)
        for other, share in shares.items():
            coefficients[other] = coefficients.get(other, 0.0) - sign * share / len(inside)
    return contrast(coefficients) if inside else None


def at_equal_width(points: Iterable[tuple[Point, Point]], lower: bool) -> Difference | None:
    """Compare networks with the real networks of the same widths, given as pairs (algebra, real), of several seeds."""
    pairs = [pair for pair in points if all(len(point.values) > 1 for point in pair)]
    sign = -1 if lower else 1
    coefficients: dict[Point, float] = {}
    for point, twin in pairs:
        coefficients[point] = sign / len(pairs)
        coefficients[twin] = coefficients.get(twin, 0.0) - sign / len(pairs)
    return contrast(coefficients) if pairs else None


def best_rate(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the learning rate of the best run of one network and seed by its validation figure; None without runs."""
    runs = [row for row in rows if row["validation"] is not None]
    sign = -1 if runs and runs[0]["mode"] == "max" else 1
    return min(runs, key=lambda row: sign * row["validation"])["lr"] if runs else None


def points(rows: Iterable[Mapping[str, Any]], seed: int) -> list[Point]:
    """Return the networks of stored rows at their best rates, smallest first.

    Args:
        rows: Rows of benchmarks/results/frontier.
        seed: The seed that searched the rates.
    """
    rows = list(rows)
    without = max((row["embedding"] / row["weights"] for row in rows), default=0.0) > SHARE
    made = []
    for net in dict.fromkeys(row["net"] for row in rows):
        own = [row for row in rows if row["net"] == net]
        searched = [row for row in own if row["seed"] == seed]
        lr = best_rate(searched)
        best = [row for row in own if row["lr"] == lr]
        weights = own[0]["weights"] - (own[0]["embedding"] if without else 0)
        rates = tuple(sorted(row["lr"] for row in searched if row["lr"]))
        values = tuple(row["test"] for row in best)
        seconds = mean(row["seconds"] for row in best)
        made.append(Point(net, own[0]["algebra"], weights, own[0]["weights"], lr or 0.0, rates, values, seconds))
    return sorted(made, key=lambda point: point.weights)
