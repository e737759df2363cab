"""Write docs/scale.md from the results of `benchmarks.studies.scale`, and a sentence of README.md."""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from zoo_reports.frontier import BestNetwork, mean_difference, opponents, text_of
from zoo_reports.page import MARKERS, Table, colors_of, log_axis, pictures, plain_axes
from zoo_reports.statistics import Difference

from benchmarks import machine
from benchmarks.machine import IMAGES, ROOT, short
from benchmarks.studies.scale_plan import ALGEBRAS, LONG, SHORT, SIZES, TASKS, VARIANTS, Found, Network, run_of

RESULTS = machine.RESULTS / "scale.json"
FIRST_LOOK, FIRST_LOOK_SIZE = machine.RESULTS / "scale_first_look.csv", 3.2
TEMPLATE = Path(__file__).parent / "scale_template.md"
PAGE = ROOT / "docs" / "scale.md"
PICTURE = "scale"
TITLES = {"shakespeare": "Tiny Shakespeare", "glosses": "WordNet glosses"}
SEEDS = 3
"""Seeds that an interval needs."""
HEAD = (
    "task",
    "network",
    "weights",
    "training tokens",
    "learning rate",
    "seeds",
    "test loss",
    "against real",
    "verdict",
    "ms/step",
)

Row = Mapping[str, Any]


class Measured(NamedTuple):
    """A network with at least one finished run on one kind of device."""

    network: Network
    found: Found
    step_ms: float | None

    @property
    def point(self) -> BestNetwork:
        """The test losses at the rate that validation selects."""
        return self.found.point(self.network, self.found.test)

    @property
    def is_finished(self) -> bool:
        """Whether the best rate lies inside the rates, and it and its neighbors have enough seeds for an interval."""
        rates = [self.point.lr, *self.found.neighbors()]
        return self.found.is_inside and all(len(self.found.validation[rate]) >= SEEDS for rate in rates)


class Panel(NamedTuple):
    """The networks of a task with the same number of training tokens on one kind of device."""

    kind: str
    task: str
    tokens: int
    networks: list[Measured]

    @property
    def title(self) -> str:
        """The title."""
        device = "a CPU" if self.kind == "cpu" else "a GPU"
        return f"{TITLES[self.task]}, {self.tokens / 1e6:.0f} million tokens, {device}"

    def opponents(self, one: Measured, real: Sequence[Measured]) -> dict[BestNetwork, float] | None:
        """Return the real networks that interpolate at the weights of a network, or that of its size; None without."""
        if one.network.algebra == "real":
            return None
        same = [other.point for other in real if other.network.size == one.network.size]
        return opponents(one.point.weights, [other.point for other in real]) or dict.fromkeys(same, 1.0) or None

    def against_real(self, one: Measured) -> Difference | None:
        """Compare a finished network with finished real ones of its number of weights; None if there are none."""
        real = [other for other in self.networks if other.network.algebra == "real" and other.is_finished]
        others = self.opponents(one, real) if one.is_finished else None
        return mean_difference([(one.point, others)], lower=True) if others else None

    def lead(self, one: Measured) -> float | None:
        """Return the lead over real networks, also of one seed; None before the searches of rates are finished."""
        real = [other for other in self.networks if other.network.algebra == "real" and other.found.is_inside]
        others = self.opponents(one, real) if one.found.is_inside else None
        return sum(share * other.mean for other, share in others.items()) - one.point.mean if others else None


def read_rows(path: Path | None = None) -> list[dict[str, Any]]:
    """Return the stored rows."""
    path = path or RESULTS
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return rows


def measured(rows: Iterable[Row], kind: str) -> list[Measured]:
    """Return the networks with a run that did not diverge, in the order of the plan."""
    by_network: dict[Network, list[Row]] = {}
    for row in rows:
        if row["kind"] == kind:
            by_network.setdefault(run_of(row).network, []).append(row)
    order = list(VARIANTS), list(TASKS), list(ALGEBRAS)
    ordered = sorted(
        by_network,
        key=lambda one: (
            order[0].index(one.variant),
            one.tokens,
            order[1].index(one.task),
            one.size,
            order[2].index(one.algebra),
        ),
    )
    networks = [Measured(one, Found.of(by_network[one]), by_network[one][0]["step_ms"]) for one in ordered]
    return [one for one in networks if not math.isnan(one.found.best_rate)]


def panels(rows: Sequence[Row]) -> Iterator[Panel]:
    """Yield the panels that have a network."""
    for kind in sorted({row["kind"] for row in rows}):
        networks = [one for one in measured(rows, kind) if one.network.variant == "base"]
        for tokens, task in dict.fromkeys((one.network.tokens, one.network.task) for one in networks):
            those = [one for one in networks if (one.network.tokens, one.network.task) == (tokens, task)]
            yield Panel(kind, task, tokens, those)


def rate_text(one: Measured) -> str:
    """Format the selected rate and those that were tried."""
    rates = sorted(one.found.validation)
    unfinished = "" if one.found.is_inside else " (search not finished)"
    return f"{one.point.lr:g} of {rates[0]:g} to {rates[-1]:g}{unfinished}"


def cells(panel: Panel, one: Measured) -> list[str]:
    """Return the cells of a network."""
    point, difference = one.point, panel.against_real(one)
    has_interval = len(point.values) >= SEEDS and point.interval is not None
    loss = f"{point.mean:.4f} ± {point.interval:.4f}" if has_interval else f"{point.mean:.4f}"
    compared = [text_of(difference), difference.verdict] if difference else ["-", "-"]
    step = "-" if one.step_ms is None else f"{one.step_ms:,.1f}"
    sizes = [f"{point.weights:,}", f"{one.network.tokens:,}"]
    return [panel.title, point.net, *sizes, rate_text(one), str(len(point.values)), loss, *compared, step]


def results(rows: Sequence[Row]) -> Table:
    """Tabulate all networks of the study."""
    return Table("", HEAD, [cells(panel, one) for panel in panels(rows) for one in panel.networks])


def variants(rows: Sequence[Row]) -> Table:
    """Tabulate the validation losses of networks with one change beside those without it."""
    head = ["change", "task", "network", "learning rate", "seeds", "validation loss", "without the change"]
    lines = []
    for kind in sorted({row["kind"] for row in rows}):
        networks = {one.network: one for one in measured(rows, kind)}
        for network, one in networks.items():
            base = networks.get(network._replace(variant="base"))
            if network.variant != "base":
                losses = [found_loss(other) for other in (one, base) if other]
                name, seeds = f"{network.algebra} {network.size:g}", len(one.found.validation[one.found.best_rate])
                task = TITLES[network.task]
                lines.append([network.variant, task, name, rate_text(one), str(seeds), *losses, *(["-"] if not base else [])])
    return Table("", head, lines)


def found_loss(one: Measured) -> str:
    """Format the mean validation loss at the best rate."""
    return f"{mean(one.found.validation[one.found.best_rate].values()):.4f}"


def has_picture(rows: Sequence[Row]) -> bool:
    """Return whether there are networks of several sizes, at rates that are the best of those around them."""
    return len({one.network.size for panel in panels(rows) for one in panel.networks if one.found.is_inside}) > 1


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the test loss against the number of weights, axes for each task and kind of device; longer training is dashed."""
    by_data: dict[tuple[str, str], list[Panel]] = {}
    for panel in panels(rows):
        by_data.setdefault((panel.kind, panel.task), []).append(panel)
    figure = Figure(figsize=(4.8 * len(by_data), 4.2), layout="constrained")
    colors = colors_of(ALGEBRAS)
    for axes, shown in zip(figure.subplots(1, len(by_data), squeeze=False)[0], by_data.values(), strict=True):
        for panel, (algebra, marker) in product(shown, zip(ALGEBRAS, MARKERS, strict=False)):
            points = [one.point for one in panel.networks if one.network.algebra == algebra and one.found.is_inside]
            if points:
                bars = [point.interval if len(point.values) >= SEEDS and point.interval else 0.0 for point in points]
                label = algebra + (f", {panel.tokens / 1e6:.0f} million tokens" if panel.tokens == LONG else "")
                style: dict[str, Any] = {"color": colors[algebra], "marker": marker, "markersize": 5, "capsize": 3}
                style |= {"linewidth": 2.2 if algebra == "real" else 1.3, "elinewidth": 1, "yerr": bars, "label": label}
                style |= {"linestyle": "--", "markerfacecolor": "white"} if panel.tokens == LONG else {}
                axes.errorbar([point.weights for point in points], [point.mean for point in points], **style)
        log_axis(axes, "x")
        plain_axes(axes)
        axes.set_title(shown[0].title, fontsize=10)
        axes.set_xlabel("weights")
        axes.set_ylabel("test loss, nats (lower is better)")
        axes.legend(frameon=False)
    return figure


def not_run(rows: Sequence[Row]) -> list[str]:
    """List what is not finished on any kind of device."""
    kinds = {row["kind"] for row in rows}
    finished = {one.network for kind in kinds for one in measured(rows, kind) if one.is_finished}
    if not finished:
        return ["all comparisons"]
    lines = []
    for tokens, task in product((SHORT, LONG), TASKS):
        sizes = []
        for size in SIZES:
            those = [algebra for algebra in ALGEBRAS if Network(task, algebra, size, tokens) in finished]
            if not those or (tokens == SHORT and len(those) < len(ALGEBRAS)):
                done = f" (finished: {', '.join(those)})" if those else ""
                sizes.append(f"{size:g}{done}")
        if sizes:
            listed = "all sizes" if sizes == [f"{size:g}" for size in SIZES] else f"{', '.join(sizes)} million weights"
            lines.append(f"{TITLES[task]}, {tokens / 1e6:.0f} million tokens: {listed}")
    return lines


def findings(rows: Sequence[Row]) -> list[str]:
    """Say for each panel and algebra at which sizes it is ahead, behind or not decided."""
    texts = []
    for panel in panels(rows):
        for algebra in ALGEBRAS[1:]:
            verdicts: dict[str, list[str]] = {}
            for one in panel.networks:
                if one.network.algebra == algebra and (difference := panel.against_real(one)):
                    verdicts.setdefault(difference.verdict, []).append(f"{one.network.size:g} ({text_of(difference)})")
            if verdicts:
                parts = [f"{verdict} at {', '.join(sizes)} million weights" for verdict, sizes in verdicts.items()]
                texts.append(f"**{algebra}**, {panel.title}: {'; '.join(parts)}.")
    return texts


def first_look() -> str:
    """Say what is known of sizes that the study has not reached."""
    best: dict[tuple[str, str], dict[str, str]] = {}
    for row in csv.DictReader(FIRST_LOOK.read_text(encoding="utf-8").splitlines()):
        key = row["million weights"], row["network"].split()[0]
        best[key] = min(best.get(key, row), row, key=lambda row: float(row["validation loss"]))
    losses = {key: float(row["test loss"]) for key, row in best.items()}
    leads = [loss - losses[size, "real"] for (size, algebra), loss in losses.items() if algebra != "real"]
    return (
        f"In a first look at 3.2 to 12.8 million weights (500 steps, rates not searched to the end), real networks "
        f"are ahead by {min(leads):.2f} to {max(leads):.2f} nats."
    )


def limit(rows: Sequence[Row]) -> str:
    """Say for the README how networks of each size compare with the real one of as many weights."""
    leads: dict[int, dict[float, list[tuple[float, str]]]] = {}
    spread, is_decided = 0.0, False
    for panel in panels(rows):
        for one in panel.networks:
            if one.found.is_inside:
                spread = max(spread, max(one.point.values) - min(one.point.values))
            if (lead := panel.lead(one)) is not None:
                difference = panel.against_real(one)
                is_decided |= difference is not None
                verdict = difference.verdict if difference else "without an interval"
                leads.setdefault(panel.tokens, {}).setdefault(one.network.size, []).append((lead, verdict))
    if not leads:
        return first_look()
    parts = []
    for tokens, by_size in sorted(leads.items()):
        sizes = [f"{range_of(found, is_decided)} at {size:g} million" for size, found in sorted(by_size.items())]
        parts.append(f"{', '.join(sizes)} after {tokens / 1e6:.0f} million{'' if parts else ' training tokens'}")
    start = "In nats of test loss, GPTs of depth 4 over algebras lead real ones of as many weights by"
    sentences = [f"{start} {'; '.join(parts)}."]
    if not is_decided:
        doubt = f"runs of one network differ by up to {spread:.2f}" if spread else "each has one seed"
        sentences.append(f"This decides nothing: {doubt}.")
    largest = max(size for by_size in leads.values() for size in by_size)
    return " ".join([*sentences, *([] if largest >= FIRST_LOOK_SIZE else [first_look()])])


def range_of(found: Sequence[tuple[float, str]], with_verdicts: bool) -> str:
    """Format the smallest and the largest lead, and how many have each verdict."""
    values, verdicts = zip(*found, strict=True)
    text = " to ".join(dict.fromkeys(f"{value:+.3f}" for value in (min(values), max(values))))
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
    return f"{text} ({counts})" if with_verdicts else text


def text(rows: Sequence[Row]) -> str:
    """Write the page."""
    found, missing = [f"- {finding}" for finding in findings(rows)], [f"- {line}" for line in not_run(rows)]
    picture = [f"![Test loss against the number of weights](images/{PICTURE}.png)"] if has_picture(rows) else []
    parts = {"answer": limit(rows), "findings": "\n".join(found), "picture": "\n".join(picture)}
    parts |= {"missing": "\n".join(missing) or "- nothing", "about": " ".join(about(rows)) or "No run is finished."}
    return re.sub(r"\n{3,}", "\n\n", TEMPLATE.read_text(encoding="utf-8").format_map(parts))


def tables(rows: Sequence[Row]) -> dict[str, Table]:
    """Return the tables that are too long for the page, by the names of their CSV files."""
    return {"scale.csv": results(rows), "scale_variants.csv": variants(rows)}


def write(page: Path = PAGE, images: Path = IMAGES, folder: Path = RESULTS.parent) -> None:
    """Write docs/scale.md, its picture and the CSV files of its tables."""
    rows = read_rows()
    if has_picture(rows):
        (images / f"{PICTURE}.png").write_bytes(pictures(PICTURE, partial(draw, rows))[f"{PICTURE}.png"])
    for name, table in tables(rows).items():
        (folder / name).write_text(table.as_csv(), encoding="utf-8")
    page.write_text(text(rows), encoding="utf-8")


def about(rows: Sequence[Row]) -> list[str]:
    """Describe the devices and versions of the rows."""
    lines = []
    for kind in sorted({row["kind"] for row in rows}):
        those = [row for row in rows if row["kind"] == kind]
        devices = " and ".join(sorted({row["processor"] if kind == "cpu" else row["device"] for row in those}))
        dates = " to ".join(sorted({min(row["date"] for row in those), max(row["date"] for row in those)}))
        commits = ", ".join(sorted({short(row["commit"]) for row in those}))
        versions = ", ".join(sorted({row["torch"] for row in those}))
        diverged = sum(row["diverged"] is not None for row in those)
        hours = sum(row["seconds"] for row in those) / 3600
        work = f"{len(those)} runs on {devices}, {diverged} of them diverged, {hours:.1f} hours"
        lines.append(f"{work}; {dates}, torch {versions}, commit {commits}.")
    return lines
