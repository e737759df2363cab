"""Write docs/papers.md, the summary of all papers: ``python -m benchmarks.studies.papers``."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from zoo_reports.curves import compare_all
from zoo_reports.page import colors_of, plain_axes
from zoo_reports.statistics import Difference, compare

from benchmarks.machine import IMAGES, ROOT
from benchmarks.studies import frontier_page, lottery
from benchmarks.studies.frontier_page import CONTROLS, RANDOM_PRODUCTS, Measured
from benchmarks.studies.papers_rows import CONFIGS, RESULTS, Row, read_all
from benchmarks.studies.papers_verdicts import LOWER_IS_BETTER, by_table, comparisons, score, tally, verdict
from zoo.registry import Spec

PAGE = ROOT / "docs" / "papers.md"
PAPERS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "papers.yaml").read_text(encoding="utf-8"))
METRICS = ("accuracy", "map", "bits_per_character", "bleu", "exact_match")
"""Metrics in order of preference; a task is compared by the first one that all of its rows have."""
TOO_LITTLE_DATA = ("iwslt15",)
"""Data sets that are too small here for any network to learn the task."""
TEMPLATE = Path(__file__).parent / "papers_template.md"


class Effect(NamedTuple):
    """Difference between an algebra and real networks on a task, in percent of the mean result of the real networks."""

    task: str
    algebra: str
    difference: Difference


def relative(difference: Difference, real: float) -> Difference:
    """Convert a difference to percent of a result."""
    return Difference(100 * difference.estimate / abs(real), 100 * difference.interval / abs(real))


def groups(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """Group rows by data set and network; return the groups that have the reals and another algebra."""
    by_network: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        is_default = row.config.get("scope", "all") == "all" and row.score in ("", "dot", "hermitian")
        if row.paper in PAPERS and row.runs and is_default and Spec.parse(row.data).name not in TOO_LITTLE_DATA:
            key = row.data, row.config["backbone"], str(row.config.get("embedding"))
            by_network.setdefault(key, {})[str(row.config["algebra"])] = row
    return [group for group in by_network.values() if "real" in group and len(group) > 1]


def equal_width(rows: Iterable[Row]) -> list[Effect]:
    """Compare rows of the papers with the real row of the same network if both have several seeds."""
    effects = []
    for group in groups(rows):
        metric = next(name for name in METRICS if all(has_metric(row, name) for row in group.values()))
        real = score(group["real"], metric)
        for algebra, row in group.items():
            difference = compare(score(row, metric), real, lower=metric in LOWER_IS_BETTER)
            if algebra != "real" and difference:
                task = f"{Spec.parse(row.data).name}, {row.net}".replace("_", " ")
                effects.append(Effect(task, algebra, relative(difference, real.mean)))
    return effects


def has_metric(row: Row, metric: str) -> bool:
    """Check that all runs of a row have a metric and at least one value is not zero (BLEU of short answers is always 0)."""
    values = [run["metrics"].get(metric) for run in row.runs]
    return all(value is not None for value in values) and any(values)


def frontier_effects(frontiers: Iterable[Measured], at_width: bool) -> list[Effect]:
    """Compare the algebras of each frontier with real networks of the same width, or with the same number of weights."""
    effects = []
    for frontier in frontiers:
        if frontier.name in CONTROLS:
            continue
        real = sum(point.mean for point in frontier.real) / len(frontier.real)
        for algebra in frontier.algebras:
            difference = frontier.equal_width(algebra) if at_width else frontier.equal_weights(algebra)
            if difference and algebra != RANDOM_PRODUCTS:
                effects.append(Effect(label(frontier), algebra, relative(difference, real)))
    return effects


def label(frontier: Measured) -> str:
    """Return the name of a frontier as a task."""
    return f"{frontier.name.replace('_', ' ')} (frontier)"


def depends_on_size(frontier: Measured) -> bool:
    """Check that the largest real network of a frontier is better than the smallest."""
    return frontier.size_effect is not None and frontier.size_effect.verdict == "ahead"


def forest(width: Sequence[Effect], weights: Sequence[Effect], path: Path) -> None:
    """Draw a forest plot of the differences: one line per task, one mark with an interval per algebra."""
    tasks = list(dict.fromkeys(effect.task for effect in [*weights, *width]))
    figure = Figure(figsize=(9.0, 1.2 + 0.42 * len(tasks)), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    colors = colors_of(effect.algebra for effect in [*weights, *width])
    for axes, effects, title in ((left, width, "at equal width"), (right, weights, "at equal weights")):
        draw_effects(axes, effects, tasks, colors)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("better than the real network (%)")
    left.set_yticks(range(len(tasks)), tasks, fontsize=8)
    left.invert_yaxis()
    handles = {label: handle for axes in (left, right) for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=7, frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def draw_effects(axes: Axes, effects: Sequence[Effect], tasks: list[str], colors: dict[str, str]) -> None:
    """Draw one panel of the forest plot."""
    labeled = set[str]()
    for task in tasks:
        of_task = [effect for effect in effects if effect.task == task]
        for number, (_, algebra, difference) in enumerate(of_task):
            axes.errorbar(
                difference.estimate,
                tasks.index(task) + 0.7 * (number + 0.5) / len(of_task) - 0.35,
                xerr=[[difference.estimate - difference.low], [difference.high - difference.estimate]],
                color=colors[algebra],
                marker="o",
                markersize=4,
                elinewidth=1,
                label=None if algebra in labeled else algebra,
            )
            labeled.add(algebra)
    axes.axvline(0, color="#222222", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=5)
    axes.set_xticks([-50, -20, -5, 0, 5, 20, 50], ["-50", "-20", "-5", "0", "5", "20", "50"])
    axes.set_xlim(-60, 60)
    plain_axes(axes)


def answer(width: Sequence[Effect], weights: Sequence[Effect], sized: Collection[str]) -> str:
    """Summarize all comparisons in one paragraph; ``sized`` are the tasks where the largest real network beats the smallest."""
    smaller, others = ([effect for effect in weights if (effect.task in sized) is kind] for kind in (True, False))
    return (
        f"Is a network over an algebra better than a smaller real network with the same number of weights? Where more weights "
        f"help a real network, algebras are {counted(smaller)}. Where they do not help significantly, algebras are "
        f"{counted(others)}. Compared with the real network of the same width, which has more weights, algebras are "
        f"{counted(width)}."
    )


def counted(effects: Sequence[Effect]) -> str:
    """Count the verdicts of comparisons, and name the tasks if there are few."""
    counts = Counter(effect.difference.verdict for effect in effects)
    tasks = list(dict.fromkeys(effect.task.removesuffix(" (frontier)") for effect in effects))
    where = f" ({', '.join(tasks)})" if 0 < len(tasks) < 8 else ""
    text = f"ahead in {counts['ahead']}, behind in {counts['behind']} and not significantly different in"
    return f"{text} {counts['not decided']} of {len(effects)} comparisons on {len(tasks)} task{'s' * (len(tasks) != 1)}{where}"


def printed_tables(rows: Iterable[Row]) -> list[str]:
    """Write one line for each published table, network and setting: data, verdict, pairs of rows, remark."""
    lines = ["| published table | data | our verdict | pairs of rows | remark |", "|---|---|---|---|---|"]
    tables = by_table(comparisons(rows))
    for key in sorted(tables, key=lambda key: (list(PAPERS).index(key[0]), key[1:])):
        paper, table, net, setting, _ = key
        pairs = [pair for comparison in tables[key] for pair in comparison.pairs()]
        setting = setting or ("our first setting" if paper == "complex_order" and table == "Table 2" else "")
        data = ", ".join([*(Spec.parse(one.rows[0].data).name for one in tables[key]), *([setting] if setting else [])])
        keys = (f"{table}, {setting}, {net}", f"{table}, {setting}", f"{table}, {data}", table.rpartition(", ")[2])
        reason = next((text for name in keys if (text := PAPERS[paper]["reasons"].get(name))), "")
        source = f"[{PAPERS[paper]['cite']}](papers/{paper}.md), {table}, {net.replace('_', ' ')}"
        lines.append(f"| {source} | {data} | {verdict(pairs)} | {tally(pairs)} | {reason} |")
    return [*lines, *tickets_of_fraction()]


def tickets_of_fraction() -> list[str]:
    """Write one line for each experiment with tickets of quaternion and real networks of the same width."""
    lines = []
    for file in sorted(lottery.RESULTS.glob("*.json")):
        results, arms = lottery.read(file)
        record = results["lottery"]
        (crossing,) = [one for one in compare_all(arms, record["mode"])[0] if one.arm == "quaternion"]
        found = crossing.difference
        verdict = {"ahead": "holds", "behind": "reversed here"}.get(found.verdict if found else "", "not decided")
        interval = f"± {found.interval:.2g}" if found else "one seed"
        difference = f"{crossing.lead:+.2g} {record['metric']} {interval} at {crossing.low:.2g} % of the weights"
        scope = "Algorithm 1" if record["pruning"]["scope"] == "component" else "all matrices of the blocks pruned"
        scope += f", rate {record['rate']:g}"
        backbone, data = (Spec.parse(record[key]).name for key in ("backbone", "data"))
        source = f"[{PAPERS['fraction']['cite']}](papers/fraction.md), Figures 3 to 9, {backbone}"
        lines.append(f"| {source} | {data} | {verdict} | {difference} | {scope}; see [lottery tickets](lottery.md) |")
    return lines


def not_run(rows: Iterable[Row]) -> list[str]:
    """List the published results that are not reproduced, and the configurations that are not run."""
    lines = ["| published | why it is missing |", "|---|---|"]
    for paper in PAPERS.values():
        lines += [f"| {paper['cite']}, {table} | {reason} |" for table, reason in paper["absent"].items()]
    missing: dict[str, list[bool]] = {}
    for row in rows:
        missing.setdefault(f"{row.paper}/{row.sweep}", []).append(not row.runs)
    files = [
        f"[{name}](../configs/papers/{name}.yaml) {sum(flags)} of {len(flags)}" for name, flags in missing.items() if any(flags)
    ]
    text = f"Rows that are configured but not run (`python -m benchmarks.studies.papers FILE --root DATA`): {', '.join(files)}."
    return [*lines, "", *([text, ""] if files else []), *frontier_page.not_run(), ""]


def write(page: Path = PAGE, images: Path = IMAGES, results: Path = RESULTS, configs: Path = CONFIGS) -> None:
    """Write the page and its picture; do nothing if no row has results."""
    rows, frontiers = read_all(configs, results), sorted(frontier_page.read(), key=depends_on_size, reverse=True)
    measured = [row for row in rows if row.runs]
    if not measured:
        return
    width = [*frontier_effects(frontiers, at_width=True), *equal_width(rows)]
    weights = frontier_effects(frontiers, at_width=False)
    forest(width, weights, images / "papers_forest.png")
    pictures = [
        f"![{frontier.name.replace('_', ' ')}](images/frontier_{frontier.name}.png)"
        for frontier in frontiers
        if frontier.name not in CONTROLS
    ]
    parts = {
        "answer": answer(width, weights, {label(frontier) for frontier in frontiers if depends_on_size(frontier)}),
        "pictures": "\n".join(pictures),
        "pages": ", ".join(f"[{paper['title']}](papers/{name}.md)" for name, paper in PAPERS.items()),
        "rows": str(len(measured)),
        "repeated": str(sum(len(row.runs) >= 3 for row in measured)),
        "tables": "\n".join(printed_tables(rows)),
        "not_run": "\n".join(not_run(rows)),
    }
    page.write_text(TEMPLATE.read_text(encoding="utf-8").format_map(parts), encoding="utf-8")
