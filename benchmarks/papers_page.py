"""Write docs/papers.md, the answer on one page: ``python -m benchmarks.papers``."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from zoo_reports.statistics import Difference, Point, contrast
from zoo_reports.style import colors_of

from benchmarks import frontier_page
from benchmarks.frontier_page import Measured
from benchmarks.papers_rows import CONFIGS, RESULTS, ROOT, Row, read_all
from benchmarks.papers_statistics import LOWER_IS_BETTER, by_table, comparisons, score, tally, verdict
from zoo.registry import Spec

PAGE = ROOT / "docs" / "papers.md"
IMAGES = ROOT / "docs" / "images"
PAPERS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "papers.yaml").read_text(encoding="utf-8"))
METRICS = ("accuracy", "map", "bits_per_character", "bleu", "exact_match")
"""A task is compared by the first of these that all of its rows have."""
CONTROLS = ("hamilton", "linear_map")
"""Frontiers that check the method and are no tasks of their own."""
TOO_LITTLE_DATA = ("iwslt15",)
"""Data sets on which no network learns the task with the data available here."""
WORDS = """\
*Holds*: all pairs of rows are as printed, beyond chance. *Holds in part*, *contradicted*: more pairs beyond chance as
printed, or reversed, than chance gives. *Mixed*: both. *Not decided*: no more differences than chance gives; larger ones may
be hidden by the spread. *Too few seeds*: most pairs have a row of one seed. *Leads smaller*: more printed leads than chance
explains are smaller here. In brackets, the number of pairs beyond chance."""
JUDGED = """\
A difference is beyond chance if Welch's t-test over seeds finds it (p < .05) and it exceeds 1.96 standard errors of the test
set (not used for BLEU and bits per character). Rows over the same folds are compared fold by fold with the variance of Nadeau
and Bengio (2003). Pairs of rows of one table are not independent, which the count of pairs ignores. Test figures are those of
the epoch that validation chose. Each row of a paper has one learning rate; rows of the frontier have their own best rate."""


class Effect(NamedTuple):
    """An algebra compared with the real network on a task, in percent of the real network's figure."""

    task: str
    algebra: str
    found: Difference


def relative(found: Difference, real: float) -> Difference:
    """Express a difference in percent of the real network's figure."""
    return Difference(*(100 * value / abs(real) for value in (found.estimate, found.low, found.high)))


def groups(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """Collect rows of one network and data set over several algebras, the real one among them."""
    found: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        whole = row.config.get("scope", "all") == "all" and row.score in ("", "dot", "hermitian")
        if row.paper in PAPERS and row.runs and whole and Spec.parse(row.data).name not in TOO_LITTLE_DATA:
            key = row.data, row.config["backbone"], str(row.config.get("embedding"))
            found.setdefault(key, {})[str(row.config["algebra"])] = row
    return [group for group in found.values() if "real" in group and len(group) > 1]


def equal_width(rows: Iterable[Row]) -> list[Effect]:
    """Compare the papers' rows over algebras with the real row of the same network, where both have several seeds."""
    effects = []
    for group in groups(rows):
        real = group["real"]
        metric = next(name for name in METRICS if all(any_value(row, name) for row in group.values()))
        for algebra, row in group.items():
            nets = [Point(a, a, 0, 0, 0.0, (), score(r, metric).values, 0.0) for a, r in ((algebra, row), ("real", real))]
            sign = -1 if metric in LOWER_IS_BETTER else 1
            if algebra != "real" and (found := contrast({nets[0]: sign, nets[1]: -sign})):
                task = f"{Spec.parse(row.data).name.replace('_', ' ')}, {row.net.replace('_', ' ')}"
                effects.append(Effect(task, algebra, relative(found, nets[1].mean)))
    return effects


def any_value(row: Row, metric: str) -> bool:
    """Whether all runs of a row have a metric that is not zero throughout, as BLEU of short answers is."""
    values = [run["metrics"].get(metric) for run in row.runs]
    return all(value is not None for value in values) and any(values)


def frontier_effects(frontiers: Iterable[Measured], at_width: bool) -> list[Effect]:
    """Compare the networks of the frontiers with real networks of the same width or of the same number of weights."""
    effects = []
    for frontier in frontiers:
        if frontier.name in CONTROLS:
            continue
        real = sum(point.mean for point in frontier.real) / len(frontier.real)
        for algebra in frontier.algebras:
            found = frontier.equal_width(algebra) if at_width else frontier.equal_weights(algebra)
            if found:
                effects.append(Effect(f"{frontier.name.replace('_', ' ')} (frontier)", algebra, relative(found, real)))
    return effects


def forest(width: Sequence[Effect], weights: Sequence[Effect], path: Path) -> None:
    """Draw the differences with their intervals: a line for each task, a mark for each algebra."""
    tasks = list(dict.fromkeys(effect.task for effect in [*weights, *width]))
    figure = Figure(figsize=(9.0, 1.2 + 0.42 * len(tasks)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    colors = colors_of(effect.algebra for effect in [*weights, *width])
    for axes, effects, title in ((left, width, "at equal width"), (right, weights, "at equal weights")):
        draw_effects(axes, effects, tasks, colors)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("better than the real network by, %")
    left.set_yticks(range(len(tasks)), tasks, fontsize=8)
    left.invert_yaxis()
    handles = {label: handle for axes in (left, right) for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=7, frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def draw_effects(axes: Axes, effects: Sequence[Effect], tasks: list[str], colors: dict[str, str]) -> None:
    """Draw one panel of the forest."""
    labelled = set[str]()
    for task in tasks:
        own = [effect for effect in effects if effect.task == task]
        for number, (_, algebra, found) in enumerate(own):
            axes.errorbar(
                found.estimate,
                tasks.index(task) + 0.7 * (number + 0.5) / len(own) - 0.35,
                xerr=[[found.estimate - found.low], [found.high - found.estimate]],
                color=colors[algebra],
                marker="o",
                markersize=4,
                elinewidth=1,
                label=None if algebra in labelled else algebra,
            )
            labelled.add(algebra)
    axes.axvline(0, color="#222222", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=5)
    axes.set_xticks([-50, -20, -5, 0, 5, 20, 50], ["-50", "-20", "-5", "0", "5", "20", "50"])
    axes.set_xlim(-60, 60)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def answer(width: Sequence[Effect], weights: Sequence[Effect]) -> str:
    """Write the answer in one paragraph."""
    said = []
    for effects, opponent in (
        (weights, "a smaller real network with the same number of weights"),
        (width, "the real network of the same width, which has more weights"),
    ):
        counts = Counter(effect.found.verdict for effect in effects)
        tasks = len({effect.task for effect in effects})
        said.append(
            f"Against {opponent}, algebras are ahead in {counts['ahead']}, behind in {counts['behind']} and not told apart in "
            f"{counts['not decided']} of {len(effects)} comparisons on {tasks} task{'s' * (tasks != 1)}."
        )
    ahead = sorted({effect.task.removesuffix(" (frontier)") for effect in weights if effect.found.verdict == "ahead"})
    behind = sorted({effect.task.removesuffix(" (frontier)") for effect in weights if effect.found.verdict == "behind"})
    where = [f"ahead of it on {', '.join(ahead)}"] if ahead else []
    where += [f"behind it on {', '.join(behind)}"] if behind else []
    told = f" At equal weights some algebra is {' and '.join(where)}." if where else ""
    return "Is a network over an algebra better than a smaller real network? " + said[0] + told + " " + said[1]


def printed_tables(rows: Iterable[Row]) -> list[str]:
    """Write one line for each printed table, network and setting: data, verdict, pairs of rows, reason."""
    lines = ["| in print | data | here | pairs of rows | why |", "|---|---|---|---|---|"]
    found = by_table(comparisons(rows))
    order = sorted(found, key=lambda key: (list(PAPERS).index(key[0]), key[1:]))
    for key in order:
        paper, table, net, setting, _ = key
        pairs = [pair for one in found[key] for pair in one.pairs()]
        first = setting or ("first setting" if paper == "complex_order" and table == "Table 2" else "")
        data = ", ".join(Spec.parse(one.rows[0].data).name for one in found[key]) + (f", {first}" if first else "")
        reasons = PAPERS[paper]["reasons"]
        why = reasons.get(f"{table}, {first}") or reasons.get(table.rpartition(", ")[2], "")
        place = f"[{PAPERS[paper]['cite']}](papers/{paper}.md), {table}, {net.replace('_', ' ')}"
        lines.append(f"| {place} | {data} | {verdict(pairs)} | {tally(pairs)} | {why} |")
    return [*lines, ""]


def absent(rows: Iterable[Row]) -> list[str]:
    """Write what is in print and not run, and which configurations wait."""
    lines = ["| in print | why it is not here |", "|---|---|"]
    for paper in PAPERS.values():
        lines += [f"| {paper['cite']}, {place} | {why} |" for place, why in paper["absent"].items()]
    waiting: dict[str, list[bool]] = {}
    for row in rows:
        waiting.setdefault(f"{row.paper}/{row.sweep}", []).append(not row.runs)
    files = [
        f"[{name}](../configs/papers/{name}.yaml) {sum(rest)} of {len(rest)}" for name, rest in waiting.items() if any(rest)
    ]
    told = f"Rows that are configured and not run (`python -m benchmarks.papers FILE --root DATA`): {', '.join(files)}."
    return [*lines, "", *([told, ""] if files else []), *frontier_page.not_run(), ""]


def write(page: Path = PAGE, images: Path = IMAGES, results: Path = RESULTS, configs: Path = CONFIGS) -> None:
    """Write the page and its picture."""
    rows, frontiers = read_all(configs, results), frontier_page.read()
    measured = [row for row in rows if row.runs]
    if not measured:
        return
    width = [*frontier_effects(frontiers, at_width=True), *equal_width(rows)]
    weights = frontier_effects(frontiers, at_width=False)
    forest(width, weights, images / "papers_forest.png")
    seeds = Counter(len(row.runs) for row in measured)
    pictures = [
        f"![{frontier.name.replace('_', ' ')}](images/frontier_{frontier.name}.png)"
        for frontier in frontiers
        if frontier.name not in CONTROLS
    ]
    lines = [
        "# When does an algebra pay?",
        "",
        "The systems of four papers, measured again and compared with smaller real networks. Made by",
        "`python -m benchmarks.papers` from `benchmarks/results`; do not edit.",
        "",
        answer(width, weights),
        "",
        "![differences with 95 % intervals](images/papers_forest.png)",
        "",
        "Each mark is an algebra minus the real network in percent of the real figure, positive where the algebra is better,",
        "with the 95 % interval over seeds. Intervals that contain zero decide nothing. Lines marked *frontier* have the best",
        "learning rate of each network; the others have one rate for all. Tickets are on [lottery tickets](lottery.md).",
        "",
        "## Quality at equal weights",
        "",
        "Tables, intervals and controls are on [quality at equal weights](frontier.md).",
        "",
        *pictures,
        "",
        "## Printed tables",
        "",
        "Does the order of a printed table hold? Rows, settings and intervals are on the papers' pages:",
        ", ".join(f"[{paper['title']}](papers/{name}.md)" for name, paper in PAPERS.items()) + ".",
        f"{len(measured)} rows were run, {sum(n for k, n in seeds.items() if k >= 3)} of them with three seeds or more.",
        "",
        *printed_tables(rows),
        WORDS,
        "",
        "## Not run",
        "",
        *absent(rows),
        "## How differences are judged",
        "",
        JUDGED,
    ]
    page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
