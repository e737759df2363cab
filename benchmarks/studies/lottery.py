"""Run lottery tickets: ``python -m benchmarks.studies.lottery configs/lottery/*.yaml --root DATA --runs FOLDER``.

Each file in configs/lottery/ is an experiment that ``zoo lottery -c FILE`` can also run; a file in configs/tickets/ compares
networks of several widths, see `benchmarks.studies.tickets`. Experiments are kept in ``--runs`` and resumed if they exist.
Results are written to results/lottery/NAME.json, pictures to docs/images/lottery_NAME.png, and the page to docs/lottery.md.
``--collect`` collects the finished rounds without training; without files, only the page is written.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from zoo_reports.curves import Curve, collect, compare_all, crossing_table, read_runs
from zoo_reports.lottery import ALL, Layer, curves, histograms, read_ticket_weights, rounds_table
from zoo_reports.page import Table, colors_of, pictures

import zoo
from benchmarks import machine
from benchmarks.machine import IMAGES, ROOT
from benchmarks.studies import tickets
from benchmarks.studies.papers_rows import rooted

RESULTS = machine.RESULTS / "lottery"
PAGE = ROOT / "docs" / "lottery.md"
TEMPLATE = Path(__file__).parent / "lottery_template.md"


def main() -> None:
    """Run the experiments and write their results and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files in configs/lottery or configs/tickets")
    parser.add_argument("--root", type=Path, help="folder that contains a folder for each data set, read instead of the Hub")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the experiments")
    parser.add_argument("--collect", action="store_true", help="collect the finished rounds without training")
    arguments = parser.parse_args()
    for file in arguments.files:
        if file.parent.name == "tickets":
            tickets.run(file, arguments.runs, arguments.root)
            continue
        options, folder = yaml.safe_load(file.read_text(encoding="utf-8")), arguments.runs / f"lottery-{file.stem}"
        if not arguments.collect:
            start = {"resume": str(folder)} if (folder / "lottery.json").exists() else {"run_dir": str(folder)}
            zoo.lottery(**{**options, "data": rooted(options["data"], arguments.root), **start})
        record = json.loads((folder / "lottery.json").read_text(encoding="utf-8")) | {"data": options["data"]}
        results = {"config": options, "commit": machine.commit(), "machine": machine.info(), "lottery": record}
        results["weights"] = surviving_weights(folder)
        machine.write(RESULTS / f"{file.stem}.json", results)
    write(PAGE, IMAGES)


def surviving_weights(folder: Path) -> dict[str, Any]:
    """Return the histograms of the weights of every arm whose models are readable, by its label."""
    runs = read_runs([str(folder)])
    layers = {arm.label: read_ticket_weights(arm)[0] for arm in collect(runs, "test", runs[0].results.metric)}
    return {label: layer[ALL]._asdict() for label, layer in layers.items() if layer}


def draw_weights(weights: dict[str, Any], arms: list[Curve], title: str) -> bytes:
    """Draw the histograms of the weights of every arm."""
    colors = colors_of(arm.algebra for arm in arms)
    rows = []
    for arm in (arm for arm in arms if arm.label in weights):
        by_round = {
            key: {int(number): value for number, value in weights[arm.label][key].items()} for key in ("counts", "left")
        }
        rows.append((arm.label, Layer(**weights[arm.label] | by_round), colors[arm.algebra]))
    return pictures("weights", lambda: histograms(rows, f"Surviving weights, {title}"))["weights.png"]


def write(page: Path = PAGE, images: Path = IMAGES, folder: Path = RESULTS.parent) -> None:
    """Write the page, its pictures and the CSV files of its tables."""
    for file in sorted(RESULTS.glob("*.json")):
        results, arms = read(file)
        name, record = f"lottery_{file.stem}", results["lottery"]
        title = f"{record['backbone']} on {record['data']}"
        drawn = pictures(name, partial(curves, arms, record["metric"], "test", title))
        (images / f"{name}.png").write_bytes(drawn[f"{name}.png"])
        if weights := results.get("weights"):
            (images / f"{name}_weights.png").write_bytes(draw_weights(weights, arms, title))
    for file in sorted(tickets.RESULTS.glob("*.json")):
        tickets.draw(json.loads(file.read_text(encoding="utf-8")), images / f"tickets_{file.stem}.png")
    for name, table in (tables() | tickets.tables()).items():
        (folder / name).write_text(table.as_csv(), encoding="utf-8")
    page.write_text(text(), encoding="utf-8")


def text() -> str:
    """Return the text of the page."""
    parts = {"equal_weights": "\n".join(tickets.answers()), "equal_width": "\n".join(at_equal_width().as_markdown())}
    parts |= totals() | {"missing": ", ".join(missing()) or "nothing"}
    return TEMPLATE.read_text(encoding="utf-8").format_map(parts)


def at_equal_width() -> Table:
    """Tabulate how tickets over the quaternions compare with real ones of the same width at the sparse end."""
    rows = []
    for file in sorted(RESULTS.glob("*.json")):
        results, arms = read(file)
        record, name = results["lottery"], f"[{file.stem.replace('_', ' ')}](images/lottery_{file.stem}.png)"
        (crossing,) = [one for one in compare_all(arms, record["mode"])[0] if one.arm == "quaternion"]
        found = crossing.difference
        lead = f"{crossing.lead:+.2g} {f'± {found.interval:.2g}' if found else 'one seed'} {record['metric']}"
        rows.append([name, f"{record['rate']:g}", f"{crossing.low:.2g} %", lead, found.verdict if found else "not decided"])
    return Table("", ["experiment", "rate", "weights left", "lead of the quaternions", "verdict"], rows)


def tables() -> dict[str, Table]:
    """Return the tables of the experiments at equal width, by the names of their CSV files."""
    rounds, crossings, about = [], [], []
    round_head: Sequence[str] = ()
    crossing_head: Sequence[str] = ()
    for file in sorted(RESULTS.glob("*.json")):
        results, arms = read(file)
        record = results["lottery"]
        found, _ = compare_all(arms, record["mode"])
        table, crossed = rounds_table(arms, record["metric"], "test"), crossing_table(found)
        round_head, crossing_head = ["experiment", "metric", *table.head[:-1], "test"], ["experiment", *crossed.head, "result"]
        rounds += [[file.stem, record["metric"], *row] for row in table.rows]
        crossings += [[file.stem, *row, one.statement] for one, row in zip(found, crossed.rows, strict=True)]
        about.append([file.stem, *details(results)])
    head = ["experiment", "runs", "hours", "length", "learning rate", "pruning", "stopped early"]
    return {
        "lottery/rounds.csv": Table("", round_head, rounds),
        "lottery/crossings.csv": Table("", crossing_head, crossings),
        "lottery/experiments.csv": Table("", [*head, "date", "processor", "cores", "torch", "commit"], about),
    }


def totals() -> dict[str, str]:
    """Count the training runs of all experiments, their hours and dates."""
    files = [*RESULTS.glob("*.json"), *tickets.RESULTS.glob("*.json")]
    stored = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    rows = [row for results in stored for row in results.get("lottery", results)["rows"]]
    dates = sorted(results["machine"]["date"] for results in stored)
    hours = sum(row["seconds"] for row in rows) / 3600
    return {"runs": f"{len(rows):,}", "hours": f"{hours:.0f}", "dates": f"{dates[0]} to {dates[-1]}"}


def read(file: Path) -> tuple[dict[str, Any], list[Curve]]:
    """Read the results of an experiment and the curves of its arms."""
    results = json.loads(file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "lottery.json").write_text(json.dumps(results["lottery"]), encoding="utf-8")
        runs = read_runs([folder])
    return results, collect(runs, "test", results["lottery"]["metric"])


def missing() -> list[str]:
    """List the experiments that are configured but have no results."""
    folders = {"lottery": RESULTS, "tickets": tickets.RESULTS}
    files = [file for name in folders for file in sorted((ROOT / "configs" / name).glob("*.yaml"))]
    return [
        f"{file.parent.name}/{file.name}" for file in files if not (folders[file.parent.name] / f"{file.stem}.json").exists()
    ]


def details(results: dict[str, Any]) -> list[str]:
    """Return the size of an experiment, what it prunes, and where and when it was run."""
    record, where, trainer = results["lottery"], results["machine"], results["config"]["trainer"]
    hours = sum(row["seconds"] for row in record["rows"]) / 3600
    length = f"{trainer['max_epochs']} epochs" if "max_epochs" in trainer else f"{trainer['max_steps']} steps"
    rate = str(results["config"].get("optimizer", {}).get("lr", "default"))
    cells = [str(len(record["rows"])), f"{hours:.1f}", length, rate, pruned(record["pruning"], record["rate"])]
    place = [str(where[name]) for name in ("date", "processor", "cores", "torch")]
    return [*cells, str(len(record["stopped"])), *place, machine.short(results["commit"])]


def pruned(options: dict[str, Any], rate: float) -> str:
    """Describe what an experiment prunes, the rate, and the rewind step."""
    matrices = "all matrices of the body" if options["matrices"] == "all" else f"the matrices {options['matrices']}"
    scope = {
        "tensor": "each parameter separately (all components of a matrix together)",
        "component": "each component matrix separately",
        "global": "all parameters together",
    }
    start = f"step {options['rewind_step']}" if options["rewind_step"] else "the initialization (step 0)"
    return (
        f"Each round prunes {rate:.0%} of the remaining weights by {options['score']} in {matrices}, "
        f"{scope.get(options['scope'], options['scope'])}, and rewinds to {start}."
    )


if __name__ == "__main__":
    main()
