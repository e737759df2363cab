"""Intervals, and comparisons of networks over an algebra with real networks of the same number of weights.

Every network has a mean test metric m over k seeds, with the variance of the mean v = s^2 / k. A comparison is a weighted sum
of such means: the network over an algebra has weight 1, and the real networks on both sides of its size share -1 by the
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
from zoo_experiments.frontier import best_rate

SHARE = 0.2
"""If word tables hold more than this share of the weights of some network, sizes are compared without them."""
MARGIN = 0.05
"""How far a network may lie beyond the real sizes, relative to its weights, to be compared with the outermost real network."""


def half_width(variance_of_mean: float, freedom: float) -> float:
    """Return half of the 95 % t-interval of a mean."""
    return float(t.ppf(0.975, freedom)) * math.sqrt(variance_of_mean)


@dataclass(frozen=True)
class BestNetwork:
    """A network at its best learning rate.

    Attributes:
        net: Its name in the configuration.
        algebra: Its algebra.
        weights: The trainable parameters that the comparison counts.
        total: All trainable parameters.
        lr: The best learning rate by validation.
        rates: The learning rates that were tried.
        values: Test metric by seed.
        seconds: Mean training time.
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
        return half_width(self.variance, len(self.values) - 1) if len(self.values) > 1 else None


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


def contrast(coefficients: Mapping[BestNetwork, float]) -> Difference | None:
    """Return a weighted sum of means with its interval; None if a network has one seed."""
    terms = [(point, factor) for point, factor in coefficients.items() if factor]
    if any(len(point.values) < 2 for point, _ in terms):
        return None
    estimate = sum(factor * point.mean for point, factor in terms)
    parts = [(factor**2 * point.variance, len(point.values) - 1) for point, factor in terms]
    total = sum(part for part, _ in parts)
    half = half_width(total, total**2 / sum(part**2 / degrees for part, degrees in parts)) if total else 0.0
    return Difference(estimate, estimate - half, estimate + half)


def opponents(weights: int, real: Iterable[BestNetwork]) -> dict[BestNetwork, float] | None:
    """Return the coefficients of the real networks that interpolate at a size; None outside their sizes and `MARGIN`."""
    ordered = sorted(real, key=lambda point: point.weights)
    for end in (ordered[0], ordered[-1]) if ordered else ():
        if abs(math.log(weights / end.weights)) <= math.log(1 + MARGIN):
            return {end: 1.0}
    for small, large in pairwise(ordered):
        if small.weights <= weights <= large.weights:
            share = math.log(weights / small.weights) / math.log(large.weights / small.weights)
            return {small: 1 - share, large: share}
    return None


def mean_difference(pairs: Iterable[tuple[BestNetwork, Mapping[BestNetwork, float]]], lower: bool) -> Difference | None:
    """Compare the mean of networks with several seeds with their opponents; ``lower`` says that a lower metric is better."""
    pairs = [(point, others) for point, others in pairs if len(point.values) > 1]
    sign = (-1 if lower else 1) / max(len(pairs), 1)
    coefficients: dict[BestNetwork, float] = {}
    for point, others in pairs:
        coefficients[point] = coefficients.get(point, 0.0) + sign
        for other, share in others.items():
            coefficients[other] = coefficients.get(other, 0.0) - sign * share
    return contrast(coefficients) if pairs else None


def best_networks(rows: Iterable[Mapping[str, Any]], seed: int) -> list[BestNetwork]:
    """Return the networks of a frontier at their best rates, smallest first; ``seed`` is the one that searched the rates."""
    rows = list(rows)
    without = max((row["embedding"] / row["weights"] for row in rows), default=0.0) > SHARE
    networks = []
    for net in dict.fromkeys(row["net"] for row in rows):
        of_net = [row for row in rows if row["net"] == net]
        searched = [row for row in of_net if row["seed"] == seed]
        lr = best_rate(searched)
        best = [row for row in of_net if row["lr"] == lr]
        total = of_net[0]["weights"]
        weights = total - (of_net[0]["embedding"] if without else 0)
        rates = tuple(sorted(row["lr"] for row in searched if row["lr"]))
        values, seconds = tuple(row["test"] for row in best), mean(row["seconds"] for row in best)
        networks.append(BestNetwork(net, of_net[0]["algebra"], weights, total, lr or 0.0, rates, values, seconds))
    return sorted(networks, key=lambda point: point.weights)
