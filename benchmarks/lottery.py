"""Run experiments with lottery tickets: ``python -m benchmarks.lottery configs/lottery/*.yaml --root DATA --runs FOLDER``.

Every file in configs/lottery/ is an experiment that ``zoo lottery -c FILE`` runs too; a file in configs/tickets/ compares
networks of several widths, see `benchmarks.tickets`. The folder of each, in ``--runs``, is resumed if it exists, and kept.
Writes results/lottery/NAME.json after an experiment, docs/images/lottery_NAME.png and docs/lottery.md; ``--collect`` takes
the rounds that are done, without training more; no file writes the page alone.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from zoo_reports.crossing import METHOD, compare_all, crossing_table
from zoo_reports.lottery import rounds_table
from zoo_reports.plots import curves, styles
from zoo_reports.rows import collect, read_runs
from zoo_reports.style import pictures

import zoo
from benchmarks import machine, tickets
from benchmarks.papers import commit, rooted
from benchmarks.papers_page import IMAGES

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "lottery"
PAGE = ROOT / "docs" / "lottery.md"
HEAD = """# Lottery tickets: results

Made by `python -m benchmarks.lottery` from `benchmarks/results/lottery`; do not edit. [pruning.md](pruning.md) explains how
tickets are trained and how to read the pictures. Epochs and masks are chosen on training and validation data; all figures
are test figures. All arms of an experiment share one learning rate.

Differences from Algorithm 1 of Mukhopadhyay et al. (2025): the paper prunes only Q, K and V, each component matrix
separately, at rates of .4 (CIFAR), .3 (MedMNIST) and .3, .5, .7 (Shakespeare). Here all matrices of the network's body are
pruned unless an experiment says otherwise, all components of a matrix together, and networks, data and epochs are smaller.
Algorithm 1 itself has not been run.

**Equal weights.** In most experiments below the real network is as wide as the others, so it must be pruned further to reach
the same number of weights; a narrower real network starts near that number. A lead there does not show that an algebra pays.
The sections *at equal weights* compare with tickets of real networks of several widths.
"""


def main() -> None:
    """Run experiments and write their results and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="configurations in configs/lottery or configs/tickets"
    )
    parser.add_argument("--root", type=Path, help="read data sets from the folders of their names here, instead of the Hub")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the folders of the experiments are")
    parser.add_argument("--collect", action="store_true", help="train nothing, and take the rounds that are done")
    given = parser.parse_args()
    for file in given.files:
        if file.parent.name == "tickets":
            tickets.run(file, given.runs, given.root)
            continue
        options, folder = yaml.safe_load(file.read_text(encoding="utf-8")), given.runs / f"lottery-{file.stem}"
        if not given.collect:
            begun = {"resume": str(folder)} if (folder / "lottery.json").exists() else {"run_dir": str(folder)}
            zoo.lottery(**{**options, "data": rooted(options["data"], given.root), **begun})
        RESULTS.mkdir(parents=True, exist_ok=True)
        record = json.loads((folder / "lottery.json").read_text(encoding="utf-8")) | {"data": options["data"]}
        found = {"config": options, "commit": commit(), "machine": machine.info(), "lottery": record}
        (RESULTS / f"{file.stem}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write(PAGE, IMAGES)


def write(page: Path, images: Path) -> None:
    """Write the page and its pictures."""
    parts = [HEAD]
    parts += [line for file in sorted(tickets.RESULTS.glob("*.json")) for line in tickets.section(file.stem, images)]
    parts += [METHOD, ""]
    for file in sorted(RESULTS.glob("*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        name, record = f"lottery_{file.stem}", found["lottery"]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "lottery.json").write_text(json.dumps(record), encoding="utf-8")
            runs = read_runs([folder])
        metric, mode = record["metric"], record["mode"]
        arms = collect(runs, "test", metric)
        look = styles(arms)
        title = f"{record['backbone']} on {record['data']}"
        picture = pictures(name, lambda: curves(arms, look, metric, "test", title))  # noqa: B023 (called at once)
        (images / f"{name}.png").write_bytes(picture[f"{name}.png"])
        crossings, said = compare_all(arms, mode)
        parts += [f"## {file.stem.replace('_', ' ')}", "", about(file.stem, found), "", f"![{title}](images/{name}.png)", ""]
        parts += [*(f"- {one.statement}." for one in crossings), *(f"- {text}" for text in said), ""]
        for table in (crossing_table(crossings), rounds_table(arms, metric, "test")):
            parts += [f"{table.title}:", "", *table.as_markdown(), ""]
    page.write_text("\n".join(parts), encoding="utf-8")


def about(name: str, found: dict[str, Any]) -> str:
    """Say what an experiment is, how much of it is done, and on what it was run."""
    record, where = found["lottery"], found["machine"]
    stopped = f" {len(record['stopped'])} arms ended early because their accuracy had collapsed." if record["stopped"] else ""
    hours = sum(row["seconds"] for row in record["rows"]) / 3600
    return (
        f"[configs/lottery/{name}.yaml](../configs/lottery/{name}.yaml): {len(record['rows'])} trainings, {hours:.1f} hours. "
        f"{pruned(record['pruning'], record['rate'])}{stopped} {where['date']}, {where['cores']} cores of "
        f"{where['processor']}, torch {where['torch']}, commit {machine.short(found['commit'])}.{found.get('note', '')}"
    )


def pruned(options: dict[str, Any], rate: float) -> str:
    """Say what an experiment pruned, at which rate, and to which step the weights were rewound."""
    matrices = "all matrices of the body" if options["matrices"] == "all" else f"the matrices {options['matrices']}"
    scope = {"tensor": "each parameter by itself (all components of a matrix together)", "global": "all parameters together"}
    start = f"step {options['rewind_step']}" if options["rewind_step"] else "the initialisation (step 0)"
    return (
        f"Pruned: {matrices}, by {options['score']}, {scope.get(options['scope'], options['scope'])}, {rate:.0%} of the "
        f"remaining weights in each round, rewound to {start}."
    )


if __name__ == "__main__":
    main()
