"""The head of docs/papers.md: verdicts, algebras by task, word order by data set and network; and how tables are written."""

import re
from collections import Counter
from collections.abc import Iterable
from statistics import mean, stdev

from benchmarks.papers_chance import best, counts, figure
from benchmarks.papers_rows import Row
from benchmarks.papers_verdicts import Comparison, Pairs, numbers, together, verdict
from zoo.registry import Spec

ORDERED = re.compile(r"(trec|subj|mr|mpqa|sst)_(?:print_)?(transformer|lstm|cnn|fasttext)_(none|pe|tpe|vanilla|order)")
POSITIONS = {
    "none": "none",
    "pe": "learned (PE)",
    "tpe": "trigonometric (TPE)",
    "vanilla": "complex-vanilla",
    "order": "complex-order",
}
NETS = "transformer", "lstm", "cnn", "fasttext"
CLOSER = "closer to the paper"
"""The setting with the widths, sums, batch norm and frequencies of Wang et al. 2020, as its sweeps name it."""
GUESSED = 0.6
"""An accuracy on two classes that is near guessing."""
SHOWN = {
    "accuracy": ("accuracy", 3),
    "map": ("MAP", 3),
    "bits_per_character": ("bits per character", 3),
    "bleu": ("BLEU", 1),
    "exact_match": ("exact match", 3),
}
"""What a task is measured by: the first that all of its rows have and that is not zero for all, as BLEU of short answers is."""
TOO_LITTLE_DATA = ("iwslt15",)
"""Data sets of which so little is at hand that no network learns the task; their rows are not compared."""
MEANING = {
    "holds": "all pairs of rows as printed",
    "holds in part": "more pairs beyond chance as printed than chance gives, and not so the other way round",
    "mixed": "more pairs beyond chance of both kinds than chance gives",
    "contradicted": "more pairs beyond chance the other way round than chance gives, and not so as printed",
    "not decided": "no more differences than chance gives; with so few seeds or rows only large ones could show",
    "too few seeds": "most pairs have a row of one seed, which tells nothing of chance",
}
LEADS_SMALLER = "printed leads that are smaller here or not there"
EXACT = 1e-6
"""A squared error of vectors that counts as zero."""
SHORT = {
    "complex_order": "Wang et al. 2020",
    "quaternion_nlp": "Tay et al. 2019",
    "phm": "Zhang et al. 2021",
    "fraction": "Mukhopadhyay et al. 2025",
}
"""The papers, by the names of their folders and in the order of the page."""


def table(corner: str, columns: Iterable[str], lines: dict[str, list[str]]) -> list[str]:
    """Write a table in Markdown, numbers to the right, an empty line behind it."""
    columns = list(columns)
    head = [f"| {corner} | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    return [*head, *(f"| {name} | {' | '.join(cells)} |" for name, cells in lines.items()), ""]


def cell(values: Iterable[float], digits: int = 3, bold: bool = False) -> str:
    """Show the mean over seeds, and their standard deviation where there are several."""
    values = list(values)
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"**{mean(values):.{digits}f}{spread}**" if bold else f"{mean(values):.{digits}f}{spread}"


def ordered(compared: Iterable[Comparison]) -> list[list[Comparison]]:
    """Group comparisons, see `together`, in the order of the papers."""
    authors = list(SHORT)
    return sorted(together(compared), key=lambda group: (authors.index(group[0].paper), place(group), group[0].net))


def place(group: list[Comparison]) -> str:
    """Name the table of a group, with its authors."""
    return group[0].table if "," in group[0].table else f"{SHORT[group[0].paper]}, {group[0].table}"


def judged(group: list[Comparison]) -> Pairs:
    """Return the pairs of rows of a group."""
    return [pair for one in group for pair in one.pairs()]


def minute(rows: Iterable[Row], compared: Iterable[Comparison]) -> list[str]:
    """Say in a list what the papers' orders come to: a line for each verdict."""
    found: dict[str, dict[str, list[str]]] = {}
    for group in ordered(compared):
        sets = f"{len(group)} data sets" if len(group) > 2 else data_names(group)
        setting = f" {group[0].setting}" if group[0].setting else ""
        found.setdefault(verdict(judged(group)), {}).setdefault(place(group), []).append(f"{group[0].net} on {sets}{setting}")
    lines = []
    for told in sorted(found, key=lambda told: list(MEANING).index(told.partition(",")[0])):
        word, _, more = told.partition(", ")
        meant = MEANING[word] + (f", and {LEADS_SMALLER}" if more else "")
        where = "; ".join(f"{table} ({', '.join(them)})" for table, them in found[told].items())
        lines.append(f"- **{told[0].upper()}{told[1:]}**, {meant}: {where}.")
    exact = [row.name for row in rows if row.runs and all(run["metrics"].get("mse", 1) < EXACT for run in row.runs)]
    lines += [f"- **As printed**, the loss goes to zero: Zhang et al. 2021, Figure 2 ({', '.join(exact)})."] if exact else []
    return [
        "Each table of a paper ranks systems. Of every two of them we ask whether the one that is better in print is",
        "better here too, by more than chance. The order of the table then",
        "",
        *lines,
        "- **Not run**, or run otherwise: [not here, and why](#not-here-and-why).",
        "",
        "Tickets of Mukhopadhyay et al. 2025 are on [lottery tickets](lottery.md), times in print on [speed](speed.md).",
        "",
    ]


def data_names(group: list[Comparison]) -> str:
    """Name the data sets of a group."""
    return ", ".join(f"`{one.data.partition('(')[0]}`" for one in group)


def often(names: list[str], of: int) -> str:
    """Count names on so many data sets, the most frequent first: ``order 3, none 2``; on one it stands for itself."""
    if of < 2 or not names:
        return names[0] if names else "-"
    return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common())


def line(group: list[Comparison]) -> list[str]:
    """Write the cells of a group: its table, data, best in print, best here beyond chance, verdict and pairs."""
    sets = data_names(group) + (f", {group[0].setting}" if group[0].setting else "")
    printed = [one.label(one.rows[0].name) for one in group]
    ranked = [(one, *best(one.figures, one.less)) for one in group if one.figures]
    here = [one.label(name) for one, name, sure in ranked if sure]
    firsts = [often(found, len(group)).replace("_", " ") for found in (printed, here)]  # so that long names wrap
    return [f"{place(group)}, {group[0].net}", sets, *firsts, verdict(judged(group)), *numbers(judged(group))]


def verdicts(compared: Iterable[Comparison]) -> list[str]:
    """Write what was printed as the best, what is the best here, and whether the order holds, table by table."""
    columns = (
        "network",
        "data",
        "best in print",
        "best here",
        "the paper's order",
        "as printed",
        "reversed",
        "smaller",
        "not judged",
    )
    return [
        f"| {' | '.join(columns)} |",
        "|" + "---|" * 5 + "---:|" * 4,
        *(f"| {' | '.join(line(group))} |" for group in ordered(compared)),
        "",
        "Names are the ends of the rows' names; where several data sets stand in one line, it counts on how many of them a row",
        "is best, here by more than chance. To the right, pairs of rows: those that stand as printed or reversed, in brackets",
        "how many by more than chance (equal ones are in neither); those whose lead is smaller than printed by more than",
        "chance; those not judged because a row has one seed. A dash: no row leads the next one by more than chance.",
        "[How it is judged](#how-it-is-judged) says what counts.",
        "",
    ]


def whole_cells(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, Row]]:
    """Collect the rows of Wang et al.'s Table 2 by data set and network, where all kinds of positions were run."""
    cells: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if (match := ORDERED.fullmatch(row.name)) and row.runs and row.printed:
            cells.setdefault((match[1], match[2]), {})[match[3]] = row
    return {key: cell for key, cell in cells.items() if len(cell) == len(POSITIONS)}


def first_places(rows: Iterable[Row]) -> str:
    """Say in how many cells of Wang et al.'s Table 2 complex-order is best, here and in print."""
    whole = list(whole_cells(rows).values())
    here = sum(best({name: figure(row, "accuracy") for name, row in cell.items()})[0] == "order" for cell in whole)
    told = [{name: row.printed[1] for name, row in cell.items() if row.printed} for cell in whole]
    printed = sum(max(cell, key=lambda name: cell[name]) == "order" for cell in told)
    drawn = len(whole) / len(POSITIONS)
    several = [cell for cell in whole if all(len(row.runs) > 1 for row in cell.values())]
    sure = sum(best({name: figure(row, "accuracy") for name, row in cell.items()})[0] == "order" for cell in several)
    seeds = f" ({sure} of the {len(several)} with several seeds)" if several else ""
    return (
        f"complex-order is best, by any margin, for {here} of {len(whole)} pairs of a network and a data set here{seeds} "
        f"and for {printed} of {len(whole)} in print; drawn by lot it would be for {drawn:.0f}."
    )


def near_guessing(rows: Iterable[Row]) -> str:
    """Say which of the rows on sets of two classes are near guessing, by kind of positions; nothing if none has."""
    found: dict[str, list[str]] = {}
    for (data, net), cell in whole_cells(rows).items():
        for kind, row in cell.items():
            accuracy = figure(row, "accuracy").mean
            if data != "trec" and accuracy < GUESSED:
                found.setdefault(POSITIONS[kind], []).append(f"{net} on `{data}` {accuracy:.3f}")
    said = "; ".join(f"{kind}: {', '.join(them)}" for kind, them in found.items())
    return (
        f"Near guessing, below {GUESSED} on two classes, are {said}: there our setting may fail, and not the order."
        if said
        else ""
    )


def leads(compared: Iterable[Comparison]) -> str:
    """Say over what complex-order leads by more than chance in the closer setting, and for which networks and data sets."""
    found: dict[str, list[str]] = {}
    for one in compared:
        ours = {one.label(name): seen for name, seen in one.figures.items()} if one.setting == CLOSER else {}
        for kind in POSITIONS.keys() & ours.keys() if "order" in ours else ():
            if ours["order"].mean > ours[kind].mean and counts(ours["order"], ours[kind]):
                found.setdefault(POSITIONS[kind], []).append(f"{one.net} on {data_names([one])}")
    said = "; ".join(f"over {kind}: {', '.join(them)}" for kind, them in sorted(found.items()))
    return f"It leads beyond chance {said}." if said else "It leads nowhere beyond chance."


def order(rows: Iterable[Row]) -> list[str]:
    """Write test accuracy by network, setting and positions, the mean over data sets, and the paper's in brackets."""
    rows = list(rows)
    lines = {}
    for net in NETS:
        for setting in ("", CLOSER):
            cells = whole_cells(row for row in rows if row.net == net and row.setting == setting)
            if not cells:
                continue
            means = [_mean([cell[kind] for cell in cells.values()]) for kind in POSITIONS]
            seeds = sorted({len(row.runs) for cell in cells.values() for row in cell.values()})
            told = " to ".join(dict.fromkeys((str(seeds[0]), str(seeds[-1]))))
            lines[f"{net}, {setting or 'first setting'}"] = [", ".join(f"`{data}`" for data, _ in cells), told, *means]
    return table("network", ["data sets", "seeds", *POSITIONS.values()], lines)


def _mean(rows: list[Row]) -> str:
    """Show the mean accuracy of rows on several data sets, and the printed mean."""
    printed = mean(row.printed[1] for row in rows if row.printed)
    return f"{mean(figure(row, 'accuracy').mean for row in rows):.3f} ({printed:.3f})"


def algebras(rows: Iterable[Row]) -> list[str]:
    """Write what each algebra reaches in each task that a real network and two others have been trained for."""
    groups: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        if row.paper in SHORT and row.runs and Spec.parse(row.data).name not in TOO_LITTLE_DATA:
            net = Spec.parse(row.config["backbone"])
            options = {name: value for name, value in net.options.items() if name != "score"}
            key = row.data, str(Spec(net.name, options)), str(row.config.get("embedding"))
            groups.setdefault(key, {})[algebra(row, "product")] = row
    groups = {key: group for key, group in groups.items() if "`real`" in group and len(group) > 2}
    columns, nets = [_figures(group) for group in groups.values()], [group["`real`"].net for group in groups.values()]
    labels = sorted({name for group in groups.values() for name in group}, key=_rank)
    titles = [f"`{key[0].partition('(')[0]}`, {title}" for key, (title, _) in zip(groups, columns, strict=True)]
    titles = [f"{title}, {net}" if titles.count(title) > 1 else title for title, net in zip(titles, nets, strict=True)]
    return table("algebra", titles, {name: [cells.get(name, "") for _, cells in columns] for name in labels})


def algebra(row: Row, *scores: str) -> str:
    """Name the algebra of a row, its scope unless that is all, and its score if that is one of ``scores`` or none is named."""
    scope = row.config.get("scope", "all")
    parts = [f"`{row.config['algebra']}`"] + ([] if scope == "all" else [f"{scope} only"])
    return ", ".join(parts + ([f"`{row.score}`"] if row.score and (not scores or row.score in scores) else []))


def _figures(group: dict[str, Row]) -> tuple[str, dict[str, str]]:
    """Choose what a group is measured by, and show it for every algebra, bold if it counts against the reals."""
    for name, (title, digits) in SHOWN.items():
        values = {label: [run["metrics"].get(name) for run in row.runs] for label, row in group.items()}
        if all(value is not None for several in values.values() for value in several) and any(map(any, values.values())):
            found = {label: figure(row, name) for label, row in group.items()}
            real = found["`real`"]
            return title, {label: cell(one.values, digits, counts(one, real) is True) for label, one in found.items()}
    raise ValueError(f"none of {', '.join(SHOWN)} was measured for {', '.join(group)}")


def _rank(label: str) -> tuple[int, int, str]:
    """Put the real numbers first, then the fixed algebras of the papers, then others by their size."""
    names = ["real", "complex_order", "quaternion", "octonion"]
    name, size = re.match(r"`(\w+)(?:-(\d+))?", label).groups()  # type: ignore[union-attr]
    return (names.index(name) if name in names else len(names) + int(size or 0)), len(label), label
