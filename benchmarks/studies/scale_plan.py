"""The networks of `benchmarks.studies.scale`, their widths, and the runs that are due next."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import mean
from typing import Any, NamedTuple, Self

import torch
from zoo_reports.frontier import BestNetwork
from zoo_reports.statistics import compare

import zoo

TASKS = ("shakespeare", "glosses")
ALGEBRAS = ("real", "quaternion", "phm-4", "octonion")
SIZES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
"""Millions of weights."""
SHORT, LONG = 976 * 16 * 256, 3908 * 16 * 256
"""Training tokens: 4 and 16 million, rounded to whole steps."""
RATES = (0.008, 0.004, 0.016)
"""The first learning rates of every search, in the order in which they are tried."""
MAX_EXTRA_RATES = 8
HEAD_DIM, SMALL_HEAD_DIM = 32, 16
"""Channels of a head, and those of networks of the smallest size, which over the reals would otherwise have a single head."""
VOCABULARY, LENGTH = 67, 256
"""Of the text for which widths are chosen, tiny Shakespeare; another text changes the weights by less than 2 %."""

Row = Mapping[str, Any]


class Variant(NamedTuple):
    """One change of the network or of the training.

    Attributes:
        rate, decay: Powers of the dimension n of the algebra that multiply the learning rate and the weight decay of the
            components of weights; a component occurs in n rows of its real matrix.
        mup_base_width: See `zoo.tasks.optimization.mup_scales`.
    """

    rate: float = 0.0
    decay: float = 0.0
    mup_base_width: int | None = None
    dropout: float = 0.0
    depth: int = 4
    scope: str = "all"
    init: str = "variance"
    positions: str = "learned"


VARIANTS = {
    "base": Variant(),
    "rate-up": Variant(rate=0.5),
    "rate-down": Variant(rate=-0.5),
    "mup": Variant(mup_base_width=64),
    "glorot": Variant(init="glorot"),
    "decay-up": Variant(decay=1.0),
    "decay-down": Variant(decay=-1.0),
    "dropout": Variant(dropout=0.1),
    "depth-2": Variant(depth=2),
    "depth-8": Variant(depth=8),
    "rotary": Variant(positions="rotary"),
    "embed-head": Variant(scope="all+embed+head"),
}
"""``rotary`` has no real table of positions; ``embed-head`` has no real matrix at all."""
ALGEBRA_ONLY = ("rate-up", "rate-down", "decay-up", "decay-down", "embed-head")
"""Variants that are the base over the reals."""


class Network(NamedTuple):
    """A network, its data and its training tokens; ``size`` is in millions of weights."""

    task: str
    algebra: str
    size: float
    tokens: int
    variant: str = "base"

    @property
    def changed(self) -> Variant:
        """The values of the variant."""
        return VARIANTS[self.variant]

    @property
    def real(self) -> Self:
        """The network over the reals to compare with."""
        return self._replace(algebra="real", variant="base" if self.variant in ALGEBRA_ONLY else self.variant)


class Run(NamedTuple):
    """One training."""

    network: Network
    rate: float
    seed: int

    def as_row(self) -> dict[str, Any]:
        """Return the first columns of the row of the run."""
        return self.network._asdict() | {"rate": self.rate, "seed": self.seed}


def run_of(row: Row) -> Run:
    """Return the run of a row."""
    return Run(Network(*(row[name] for name in Network._fields)), row["rate"], row["seed"])


# --- widths ---


@lru_cache
def spec_of(network: Network) -> str:
    """Return the spec of the network whose number of weights is nearest to its size, with feed-forward width 4 dim.

    The number of heads is the nearest to dim / `HEAD_DIM`, that of gpt/micro, or at the smallest size to
    dim / `SMALL_HEAD_DIM`, so that dim can be any multiple of n.
    Multiples of 8 and then of 4, which are faster on a GPU, are preferred if the weights are within 2 %.
    """
    return _spec_of(network.algebra, network.size, network.variant)


@lru_cache
def _spec_of(algebra: str, size: float, variant: str) -> str:
    changed, head_dim = VARIANTS[variant], SMALL_HEAD_DIM if size == SIZES[0] else HEAD_DIM

    def spec(dim: int) -> str:
        heads = max(1, round(dim / head_dim))
        shape = f"dim={dim}, depth={changed.depth}, heads={heads}, head_dim={head_dim}, ffn={4 * dim}"
        return f"gpt({shape}, positions={changed.positions}, dropout={changed.dropout:g})"

    def error(dim: int) -> float:
        with torch.device("meta"):
            facts: dict[str, Any] = {"vocab_size": VOCABULARY, "max_length": LENGTH}
            net = zoo.backbone(spec(dim), algebra, scope=changed.scope, init=changed.init, **facts)
        return abs(math.log(zoo.count(net)["total"] / (1e6 * size)))

    with torch.random.fork_rng(devices=[]):  # the seed of a run must not depend on where a width is computed
        n = zoo.algebra(algebra).n
        step, area, line = max(2, n), 12 * changed.depth / n, VOCABULARY + LENGTH
        estimate = (math.sqrt(line**2 + 4e6 * size * area) - line) / (2 * area)  # weights = area dim^2 + line dim
        nearest = max(1, round(estimate / step))
        errors = {dim: error(dim) for dim in (step * steps for steps in range(max(1, nearest - 2), nearest + 3))}
    fast = [{dim for dim in errors if dim % multiple == 0 and errors[dim] < math.log(1.02)} for multiple in (8, 4)]
    return spec(min(fast[0] or fast[1] or errors, key=lambda dim: errors[dim]))


# --- runs that are due ---


class Found(NamedTuple):
    """The results of a network: validation and test losses by rate and seed; a diverged run has an infinite loss."""

    validation: dict[float, dict[int, float]]
    test: dict[float, dict[int, float]]
    weights: int

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Collect the rows of one network."""
        validation: dict[float, dict[int, float]] = {}
        test: dict[float, dict[int, float]] = {}
        weights = 0
        for row in sorted(rows, key=lambda row: (row["rate"], row["seed"])):
            for losses, name in ((validation, "validation"), (test, "test")):
                losses.setdefault(row["rate"], {})[row["seed"]] = math.inf if row[name] is None else row[name]
            weights = row["weights"]
        return cls(validation, test, weights)

    @property
    def best_rate(self) -> float:
        """The rate with the lowest mean validation loss; NaN if all runs diverged."""
        means = {rate: mean(losses.values()) for rate, losses in self.validation.items()}
        finite = {rate: loss for rate, loss in means.items() if math.isfinite(loss)}
        return min(finite, key=lambda rate: finite[rate], default=math.nan)

    @property
    def is_inside(self) -> bool:
        """Whether the best rate lies strictly inside the rates."""
        return bool(self.validation) and min(self.validation) < self.best_rate < max(self.validation)

    def neighbors(self) -> list[float]:
        """Return the rates next to the best one."""
        rates = sorted(self.validation)
        index = rates.index(self.best_rate)
        return rates[max(0, index - 1) : index] + rates[index + 1 : index + 2]

    def point(self, network: Network, losses: dict[float, dict[int, float]]) -> BestNetwork:
        """Return the losses of the seeds at the best rate."""
        values, rates = tuple(losses[self.best_rate].values()), tuple(self.validation)
        name = f"{network.algebra} {network.size:g}"
        sizes = {"weights": self.weights, "total": self.weights}
        return BestNetwork(values, net=name, algebra=network.algebra, lr=self.best_rate, rates=rates, **sizes)


SEARCH, REPEAT, DECIDE = range(3)
"""Stages of a network: rates with one seed, three seeds, five seeds."""


def missing(network: Network, found: Found, rates: Sequence[float], seeds: int) -> list[tuple[int, Run]]:
    """Return the stage and the runs of a network that are due next, see `benchmarks.studies.scale`; none if it is finished.

    A search starts with ``rates`` and ends after `MAX_EXTRA_RATES` others. ``seeds`` is the number at the best rate.
    """
    tried = found.validation
    wanted = [rate for rate in rates if 0 not in tried.get(rate, {})]
    if not wanted and not found.is_inside and len(tried) < len(rates) + MAX_EXTRA_RATES:
        low, high = min(tried), max(tried)
        wanted = [2 * high if found.best_rate == high else low / 2]
    if wanted:
        return [(SEARCH, Run(network, rate, 0)) for rate in wanted]
    if not found.is_inside:
        return []
    counts = {found.best_rate: seeds, **dict.fromkeys(found.neighbors(), min(seeds, 3))}
    due = [Run(network, rate, seed) for rate, count in counts.items() for seed in range(count) if seed not in tried[rate]]
    return [(REPEAT if run.seed < 3 else DECIDE, run) for run in due]


def is_undecided(network: Network, found: Mapping[Network, Found]) -> bool:
    """Return whether the comparison with the real network, or of a real one with some other, is not decided by validation."""
    others = [network.real] if network.algebra != "real" else [n for n in found if n.real == network and n != network]
    for other in others:
        pair = [(one, found[one]) for one in (network, other) if one in found and found[one].is_inside]
        points = [results.point(one, results.validation) for one, results in pair]
        if len(points) == 2 and all(len(point.values) >= 3 and math.isfinite(point.mean) for point in points):
            difference = compare(*points)
            if difference is not None and difference.verdict == "not decided":
                return True
    return False


def next_runs(networks: Sequence[Network], rows: Iterable[Row], most_seeds: int = 5) -> list[Run]:
    """Return the runs that are due, first those that come first; the rows are those of one kind of device.

    Within networks of a task, size and number of tokens, the search of rates comes before further seeds.
    """
    by_network: dict[Network, list[Row]] = {}
    for row in rows:
        by_network.setdefault(run_of(row).network, []).append(row)
    found = {network: Found.of(those) for network, those in by_network.items()}
    due: list[tuple[tuple[int, int, int, int], Run]] = []
    groups = list(dict.fromkeys((one.tokens, one.task, one.size) for one in networks))
    for position, network in enumerate(networks):
        rates = RATES if network.tokens != LONG else long_rates(network, found)
        seeds = min(most_seeds, 5 if network.variant == "base" and is_undecided(network, found) else 3)
        group = groups.index((network.tokens, network.task, network.size))
        stages = missing(network, found.get(network, Found({}, {}, 0)), rates, seeds) if rates else []
        due += [((group, stage, turn, position), run) for turn, (stage, run) in enumerate(stages)]
    return [run for _, run in sorted(due, key=lambda pair: pair[0])]


def long_rates(network: Network, found: Mapping[Network, Found]) -> tuple[float, ...]:
    """Return the first rates of longer training: around the best of `SHORT`, for the two best networks and the real one.

    Empty while networks of this size are not finished with `SHORT`, and for the other networks.
    """
    short = {algebra: network._replace(tokens=SHORT, algebra=algebra) for algebra in ALGEBRAS}
    results = {algebra: found[one] for algebra, one in short.items() if one in found and found[one].is_inside}
    means = {algebra: mean(one.validation[one.best_rate].values()) for algebra, one in results.items()}
    if len(results) < len(ALGEBRAS) or any(len(one.validation[one.best_rate]) < 3 for one in results.values()):
        return ()
    if network.algebra not in {"real", *sorted(means, key=lambda algebra: means[algebra])[:2]}:
        return ()
    best = results[network.algebra].best_rate
    return (best, best / 2, 2 * best)
