"""``zoo report``: what a trained model has learned, in a table and a picture."""

import json
from pathlib import Path

from zoo.cli.plain_parser import plain_parser
from zoo.errors import InputError

REPORTS = ("frequencies",)


def run(command: str, argv: list[str]) -> int:
    """Make one report of a run and write its files into the run's folder."""
    parser = plain_parser(command, "Report what a trained model has learned.")
    parser.add_argument("report", metavar="REPORT", help="frequencies: words by their sensitivity to position, csv and png")
    parser.add_argument("run", metavar="RUN", help="a run (runs/NAME) or model folder; the files are written there")
    parser.add_argument("--top", type=int, default=50, help="words to show at each end (default 50)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    if options.report not in REPORTS:
        raise InputError(f"unknown report '{options.report}': use {', '.join(REPORTS)}")
    if options.top < 1:
        raise InputError(f"--top {options.top}: use a whole number from 1")
    return frequencies(options.run, options.top, options.json)


def frequencies(run: str, top: int, as_json: bool) -> int:
    """Rank the words of a run by how fast their vectors turn with the position."""
    from zoo.checkpoint import find, load
    from zoo.checkpoint.atomic import write_bytes, write_text
    from zoo.report import frequencies as report

    model, net = find(run), load(run)
    # Beside the model folder: its manifest lists every file in it.
    folder, tokenizer = Path(run).expanduser() if model != Path(run).expanduser() else model.parent, model / "tokenizer.json"
    found = report.find_frequencies(net, run)
    if not tokenizer.is_file():
        raise InputError(f"{tokenizer} is missing: without it nobody knows the words of this model")
    words = report.read_words(tokenizer.read_text(encoding="utf-8"), str(tokenizer))
    ranking = report.rank(found, words, run)
    write_text(folder / "frequencies.csv", report.as_csv(ranking))
    write_bytes(folder / "frequencies.png", report.draw_density(ranking, folder.resolve().name))
    files = {"csv": str(folder / "frequencies.csv"), "png": str(folder / "frequencies.png")}
    if as_json:
        most, least = ([word._asdict() for word in end] for end in report.ends(ranking, top))
        print(json.dumps({"run": run, "words": len(ranking), "most": most, "least": least, **files}, indent=2))
    else:
        report.print_ranking(ranking, top)
        print(f"all of them are in {files['csv']}, their density in {files['png']}")
    return 0
